//! Giving an object of parts to another key, step by step (docs/decisions/0036). Each
//! step is one command, and a bounded one; the server asks for one after the other.

use super::Shard;
use crate::store::{Load, Now, with_expiry};
use crate::types::object::On;
use remora_arena::{Journal, mutable_of, set_mutable};
use remora_layout::hash::KeyHash;
use remora_layout::limits::MAX_KEY_BYTES;
use remora_protocol::message::Status;
use remora_protocol::{Command, Dumped, LoadStep, Reply, Source};

impl<J: Journal> Shard<J> {
    /// What a key has, whole, and held if that is wanted; or the beginning of a dump in
    /// pieces.
    pub(super) fn dump(
        &mut self,
        (key, hash): (&[u8], KeyHash),
        holds: bool,
        now: Now,
    ) -> Reply<'_> {
        let Some(found) = self.store.lookup(key, hash, now) else {
            return Reply::status(Status::NotFound);
        };
        let (kind, mut head) = (self.store.kind(found), Vec::new());
        let begun = match kind.is_root() || holds {
            true => self.store.begin_dump(found, hash),
            false => Ok(0),
        };
        let number = match begun {
            Ok(number) if !kind.is_root() => return self.store.dump((key, hash), number, now),
            Ok(number) => number,
            Err(status) => return Reply::status(status),
        };
        if let Some((of, store)) = self.of(kind) {
            of.head(store, found.slot.slot, &mut head);
        }
        self.written_value.clear();
        let expires_at_ms = found.mutable.expires_at_ms;
        Dumped::push(&mut self.written_value, kind, expires_at_ms, number, &head);
        Reply { value: Some(&self.written_value), ..Reply::status(Status::InPieces) }
    }

    /// The next piece of a dump.
    pub(super) fn dump_part(
        &mut self,
        (key, hash): (&[u8], KeyHash),
        number: u64,
        now: Now,
    ) -> Reply<'_> {
        let Some(found) = self.store.lookup(key, hash, now) else {
            return Reply::status(Status::NotFound);
        };
        let kind = self.store.kind(found);
        let Some((root, at)) = self.store.dump_under_way(hash, number) else {
            // Another object has the key now, or nothing asked for too long.
            return Reply::status(Status::TryAgain);
        };
        let mut at = std::mem::take(at);
        let mut piece = std::mem::take(&mut self.written_value);
        piece.clear();
        let ended = match self.of(kind) {
            Some((of, store)) => of.dump(store, root, &mut at, &mut piece),
            None => true,
        };
        if let Some((_, kept)) = self.store.dump_under_way(hash, number) {
            *kept = at;
        }
        self.written_value = piece;
        Reply { value: Some(&self.written_value), ..Reply::number((!ended).into()) }
    }

    pub(super) fn load(
        &mut self,
        on: On<'_>,
        number: u64,
        step: LoadStep<'_>,
    ) -> Result<i64, Status> {
        match step {
            LoadStep::Begin { dumped, replaces } => self.begin_load(on, number, dumped, replaces),
            LoadStep::Piece(piece) => self.fill(on, number, piece),
            LoadStep::Enter { replaces, from } => self.enter_load(on, number, replaces, from),
            LoadStep::Drop => match self.store.take_load(number, (on.key, on.hash)) {
                Some(load) => {
                    self.store.drop_load(&load);
                    Ok(1)
                }
                None => Ok(0),
            },
        }
    }

    fn begin_load(
        &mut self,
        on: On<'_>,
        number: u64,
        dumped: Dumped<'_>,
        replaces: bool,
    ) -> Result<i64, Status> {
        let On { key, hash, now } = on;
        if key.len() > MAX_KEY_BYTES {
            return Err(Status::TooLarge);
        }
        if !replaces && self.store.lookup(key, hash, now).is_some() {
            return Err(Status::NotDone);
        }
        if !self.store.may_load() {
            return Err(Status::TryAgain);
        }
        if !self.cover_heap(now) {
            return Err(Status::OutOfMemory);
        }
        // Below the sequence of its entry, and not below that of any load before.
        let number = if number == 0 { self.store.last_sequence() + 1 } else { number };
        let (of, store) = self.of(dumped.kind).ok_or(Status::Malformed)?;
        let root = of.begin_load(store, on, dumped.value)?;
        let step = LoadStep::Begin { dumped, replaces: true };
        let entry = Command::Load { key, load: number, step };
        store.commit(hash.database(), &entry, |store| {
            store.begin_load(number, (key, hash), root, dumped);
        });
        Ok(number as i64)
    }

    fn fill(&mut self, on: On<'_>, number: u64, piece: &[u8]) -> Result<i64, Status> {
        let named = (on.key, on.hash);
        let (root, kind) = self.store.load_under_way(number, named).ok_or(Status::TryAgain)?;
        let is_covered = self.cover_heap(on.now);
        let (of, store) = self.of(kind).ok_or(Status::Malformed)?;
        let filled = match is_covered {
            true => of.load(store, on, root, piece),
            false => Err(Status::OutOfMemory),
        };
        match filled {
            Ok(()) => {
                let step = LoadStep::Piece(piece);
                let entry = Command::Load { key: on.key, load: number, step };
                // No key leads to what was filled.
                store.commit(on.hash.database(), &entry, |_| {});
                Ok(0)
            }
            Err(status) => {
                // A copy keeps it: the log tells whether it is given up.
                let comes_again = status == Status::OutOfMemory && store.making_room.tries_again;
                let is_dropped = !store.is_applying && !comes_again;
                if let Some(load) = is_dropped.then(|| store.take_load(number, named)).flatten() {
                    store.drop_load(&load);
                }
                Err(status)
            }
        }
    }

    fn enter_load(
        &mut self,
        on: On<'_>,
        number: u64,
        replaces: bool,
        from: Option<Source<'_>>,
    ) -> Result<i64, Status> {
        let On { key, hash, now } = on;
        let from = from.map(|Source { key, database }| (key, self.store.hash(database, key)));
        let load = self.store.take_load(number, (key, hash)).ok_or(Status::TryAgain)?;
        let is_gone = |store: &mut crate::store::Store<J>, (key, hash): (&[u8], KeyHash)| {
            store.lookup(key, hash, now).is_none() || !store.is_dump_under_way(hash, load.dump)
        };
        let entered = match from.filter(|from| is_gone(&mut self.store, *from)) {
            Some(_) => Err(Status::NotFound),
            None => self.enter(&load, replaces, now),
        };
        match (entered, from) {
            (Ok(true), Some((key, hash))) => {
                if let Some(found) = self.store.found(key, hash) {
                    self.store.commit(hash.database(), &Command::Del { key }, |store| {
                        store.remove(found, hash, now);
                    });
                }
            }
            (Ok(true), None) => {}
            // A copy keeps it: the log tells whether it is given up.
            (Ok(false) | Err(_), _) if self.store.is_applying => self.store.keep_load(load),
            (Err(Status::OutOfMemory), _) if self.store.making_room.tries_again => {
                self.store.keep_load(load);
            }
            (Ok(false) | Err(_), _) => self.store.drop_load(&load),
        }
        entered.map(i64::from)
    }

    /// Lets a key lead to an object that is filled. Whether that was done; if not,
    /// nothing was.
    fn enter(&mut self, load: &Load, replaces: bool, now: Now) -> Result<bool, Status> {
        let Load { number, ref key, hash, root, expires_at_ms, .. } = *load;
        let store = &mut self.store;
        let found = store.lookup(key, hash, now);
        if found.is_some() && !replaces {
            return Ok(false);
        }
        let mutable = with_expiry(mutable_of(&store.owner, root.slot), expires_at_ms);
        set_mutable(&mut store.owner, root.slot, mutable);
        let step = LoadStep::Enter { replaces: true, from: None };
        let entry = Command::Load { key, load: number, step };
        store
            .enter_loaded((key, hash), (root, expires_at_ms), found, &entry, now)
            .map(|()| true)
            .map_err(|_| Status::OutOfMemory)
    }
}
