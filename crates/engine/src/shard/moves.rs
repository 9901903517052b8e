//! Giving an object of parts to another key, step by step (docs/decisions/0036). Each
//! step is one command, and a bounded one; the server asks for one after the other.

use super::room::cover_heap;
use crate::keys::{self, Target};
use crate::store::{Load, Now, Store, with_expiry};
use crate::types::object::{On, Types};
use remora_arena::{Journal, mutable_of, set_mutable, slot_of};
use remora_layout::hash::KeyHash;
use remora_layout::kind::Kind;
use remora_layout::limits::MAX_KEY_BYTES;
use remora_protocol::message::Status;
use remora_protocol::{Command, Dumped, LoadStep, Reply, Source};

/// Executes the commands that give a key's object to another key.
pub(super) fn execute<'s, J: Journal>(
    (store, types): (&'s mut Store<J>, &mut Types<J>),
    command: &Command<'_>,
    hash: KeyHash,
    now: Now,
    written: &'s mut Vec<u8>,
) -> Reply<'s> {
    match *command {
        Command::Dump { key, holds } => dump((store, types), (key, hash), holds, now, written),
        Command::DumpPart { key, dump } => {
            dump_part((store, types), (key, hash), dump, now, written)
        }
        Command::Load { key, load: number, step } => {
            load((store, types), On { key, hash, now }, number, step)
                .map_or_else(Reply::status, Reply::number)
        }
        Command::Transfer { key, to, database, replaces, keeps } => {
            let target = Target { to, database, replaces, keeps };
            keys::transfer((store, types), (key, hash), target, now)
        }
        Command::Restore { dumped, .. } if !is_whole(types, dumped.kind) => {
            Reply::status(Status::Malformed)
        }
        Command::Restore { key, dumped, replaces } => {
            keys::restore((store, types), (key, hash), dumped, replaces, now)
        }
        Command::DelDumped { key, dump } => keys::del_dumped(store, (key, hash), dump, now),
        Command::EndDump { dump, .. } => {
            store.moves.end_dump(hash, dump);
            Reply::status(Status::Ok)
        }
        _ => unreachable!("the shard executes it itself"),
    }
}

/// Whether a record of this kind is all of its key. A primary may send any other.
fn is_whole<J: Journal>(types: &Types<J>, kind: Kind) -> bool {
    let has_whole = || types.get(kind.of_type()).is_some_and(|of| of.has_whole());
    let is_plain = kind.plain() == kind;
    kind == Kind::STRING || is_plain && !kind.is_root() && has_whole()
}

/// The whole value of a key, which is then held if the caller wants that; or the beginning of a
/// dump in pieces.
fn dump<'s, J: Journal>(
    (store, types): (&'s mut Store<J>, &mut Types<J>),
    (key, hash): (&[u8], KeyHash),
    holds: bool,
    now: Now,
    written: &'s mut Vec<u8>,
) -> Reply<'s> {
    let Some(found) = store.lookup(key, hash, now) else {
        return Reply::status(Status::NotFound);
    };
    let (kind, mut head) = (store.kind(found), Vec::new());
    let begun = match kind.is_root() || holds {
        true if store.is_applying => Err(Status::ReadOnly),
        true => {
            let slot = slot_of(&store.owner, found.slot.slot);
            store.moves.begin_dump(hash, (slot, kind.is_root()), store.ticked.get())
        }
        false => Ok(0),
    };
    let number = match begun {
        Ok(number) if !kind.is_root() => return keys::dump(store, (key, hash), number, now),
        Ok(number) => number,
        Err(status) => return Reply::status(status),
    };
    if let Some(of) = types.get(kind) {
        of.head(store, found.slot.slot, &mut head);
    }
    written.clear();
    let expires_at_ms = found.mutable.expires_at_ms;
    Dumped::push(written, kind, expires_at_ms, number, &head);
    Reply { value: Some(written), ..Reply::status(Status::InPieces) }
}

/// The next piece of a dump.
fn dump_part<'s, J: Journal>(
    (store, types): (&mut Store<J>, &mut Types<J>),
    (key, hash): (&[u8], KeyHash),
    number: u64,
    now: Now,
    written: &'s mut Vec<u8>,
) -> Reply<'s> {
    let Some(found) = store.lookup(key, hash, now) else {
        return Reply::status(Status::NotFound);
    };
    let kind = store.kind(found);
    let Some((root, at)) = store.moves.dump_under_way(hash, number, store.ticked.get()) else {
        // Another object has the key now, or nothing asked for too long.
        return Reply::status(Status::TryAgain);
    };
    let mut at = std::mem::take(at);
    let mut piece = std::mem::take(written);
    piece.clear();
    let ended = match types.get(kind) {
        Some(of) => of.dump(store, root, &mut at, &mut piece),
        None => true,
    };
    if let Some((_, kept)) = store.moves.dump_under_way(hash, number, store.ticked.get()) {
        *kept = at;
    }
    *written = piece;
    Reply { value: Some(written), ..Reply::number((!ended).into()) }
}

fn load<J: Journal>(
    (store, types): (&mut Store<J>, &mut Types<J>),
    on: On<'_>,
    number: u64,
    step: LoadStep<'_>,
) -> Result<i64, Status> {
    match step {
        LoadStep::Begin { dumped, replaces } => {
            begin_load((store, types), on, number, dumped, replaces)
        }
        LoadStep::Piece(piece) => fill((store, types), on, number, piece),
        LoadStep::Enter { replaces, from } => enter_load(store, on, number, replaces, from),
        LoadStep::Drop => match store.moves.take_load(number, (on.key, on.hash)) {
            Some(load) => {
                store.drop_load(&load);
                Ok(1)
            }
            None => Ok(0),
        },
        _ if !store.is_applying => Err(Status::Malformed),
        LoadStep::Make(dumped) => make((store, types), on, dumped),
        LoadStep::Fill(piece) => fill_key((store, types), on, piece),
        LoadStep::Filled => {
            let root = filling_root(store, on)?.0;
            store.moves.end_filling(root);
            store.commit(on.hash.database(), &snapshot_step(on.key, step), |_| {});
            Ok(0)
        }
    }
}

/// A step of a snapshot: it is of no load.
fn snapshot_step<'a>(key: &'a [u8], step: LoadStep<'a>) -> Command<'a> {
    Command::Load { key, load: 0, step }
}

/// The root record of a key that a snapshot is filling, and its type.
fn filling_root<J: Journal>(store: &Store<J>, on: On<'_>) -> Result<(u32, Kind), Status> {
    let found = store.found(on.key, on.hash);
    let found = found.filter(|found| store.moves.is_filling(found.slot.slot));
    found.map(|found| (found.slot.slot, store.kind(found))).ok_or(Status::NotFound)
}

/// Lets a key lead to an empty object, which a snapshot is to fill.
fn make<J: Journal>(
    (store, types): (&mut Store<J>, &mut Types<J>),
    on: On<'_>,
    dumped: Dumped<'_>,
) -> Result<i64, Status> {
    let On { key, hash, now } = on;
    if key.len() > MAX_KEY_BYTES {
        return Err(Status::TooLarge);
    }
    cover_heap(store, types, now);
    let of = types.get_mut(dumped.kind).ok_or(Status::Malformed)?;
    let root = of.begin_load(store, on, dumped.value)?;
    let load = Load::of_snapshot((key, hash), root, dumped);
    match enter(store, &load, LoadStep::Make(dumped), (true, now)) {
        Ok(_) => {
            store.moves.begin_filling(root.slot);
            Ok(1)
        }
        Err(status) => {
            store.bury_load(&load);
            Err(status)
        }
    }
}

/// Fills a piece into the object that a key leads to.
fn fill_key<J: Journal>(
    (store, types): (&mut Store<J>, &mut Types<J>),
    on: On<'_>,
    piece: &[u8],
) -> Result<i64, Status> {
    let (root, kind) = filling_root(store, on)?;
    cover_heap(store, types, on.now);
    let of = types.get_mut(kind).ok_or(Status::Malformed)?;
    of.load(store, on, root, piece)?;
    store.making_room.keep = Some(root);
    let step = LoadStep::Fill(piece);
    store.commit(on.hash.database(), &snapshot_step(on.key, step), |_| {});
    Ok(0)
}

fn begin_load<J: Journal>(
    (store, types): (&mut Store<J>, &mut Types<J>),
    on: On<'_>,
    number: u64,
    dumped: Dumped<'_>,
    replaces: bool,
) -> Result<i64, Status> {
    let On { key, hash, now } = on;
    if key.len() > MAX_KEY_BYTES {
        return Err(Status::TooLarge);
    }
    if !replaces && store.lookup(key, hash, now).is_some() {
        return Err(Status::NotDone);
    }
    if !store.is_applying && !store.moves.may_load() {
        return Err(Status::TryAgain);
    }
    if !cover_heap(store, types, now) {
        return Err(Status::OutOfMemory);
    }
    // Below the sequence of its entry, and not below that of any load before.
    let number = if number == 0 { store.last_sequence() + 1 } else { number };
    let of = types.get_mut(dumped.kind).ok_or(Status::Malformed)?;
    let root = of.begin_load(store, on, dumped.value)?;
    let step = LoadStep::Begin { dumped, replaces: true };
    let entry = Command::Load { key, load: number, step };
    store.commit(hash.database(), &entry, |store| {
        let at = (store.last_sequence(), store.ticked.get());
        store.moves.begin_load(number, (key, hash), root, dumped, at);
    });
    Ok(number as i64)
}

fn fill<J: Journal>(
    (store, types): (&mut Store<J>, &mut Types<J>),
    on: On<'_>,
    number: u64,
    piece: &[u8],
) -> Result<i64, Status> {
    let named = (on.key, on.hash);
    let (root, kind) =
        store.moves.load_under_way(number, named, store.ticked.get()).ok_or(Status::TryAgain)?;
    let is_covered = cover_heap(store, types, on.now);
    let of = types.get_mut(kind).ok_or(Status::Malformed)?;
    let filled = match is_covered {
        true => of.load(store, on, root, piece),
        false => Err(Status::OutOfMemory),
    };
    match filled {
        Ok(()) => {
            let step = LoadStep::Piece(piece);
            let entry = Command::Load { key: on.key, load: number, step };
            // No key leads to the filled object.
            store.commit(on.hash.database(), &entry, |_| {});
            Ok(0)
        }
        Err(status) => {
            // A copy keeps it: the log records whether it is given up.
            let comes_again = status == Status::OutOfMemory && store.making_room.tries_again;
            let is_dropped = !store.is_applying && !comes_again;
            if let Some(load) = is_dropped.then(|| store.moves.take_load(number, named)).flatten() {
                store.drop_load(&load);
            }
            Err(status)
        }
    }
}

fn enter_load<J: Journal>(
    store: &mut Store<J>,
    on: On<'_>,
    number: u64,
    replaces: bool,
    from: Option<Source<'_>>,
) -> Result<i64, Status> {
    let On { key, hash, now } = on;
    let from = from.map(|Source { key, database }| (key, store.hash(database, key)));
    let load = store.moves.take_load(number, (key, hash)).ok_or(Status::TryAgain)?;
    let is_gone = |store: &mut Store<J>, (key, hash): (&[u8], KeyHash)| {
        store.lookup(key, hash, now).is_none() || !store.moves.is_under_way(hash, load.dump)
    };
    let entered = match from.filter(|from| is_gone(store, *from)) {
        Some(_) => Err(Status::NotFound),
        None => {
            let step = LoadStep::Enter { replaces: true, from: None };
            enter(store, &load, step, (replaces, now))
        }
    };
    match (entered, from) {
        (Ok(true), Some((key, hash))) => {
            if let Some(found) = store.found(key, hash) {
                keys::remove(store, On { key, hash, now }, found);
            }
        }
        (Ok(true), None) => {}
        // A copy keeps it: the log records whether it is given up.
        (Ok(false) | Err(_), _) if store.is_applying => store.moves.keep_load(load),
        (Err(Status::OutOfMemory), _) if store.making_room.tries_again => {
            store.moves.keep_load(load);
        }
        (Ok(false) | Err(_), _) => store.drop_load(&load),
    }
    entered.map(i64::from)
}

/// Lets a key lead to an object that is filled, or that this step makes. Whether that was done; if
/// not, nothing was.
fn enter<J: Journal>(
    store: &mut Store<J>,
    load: &Load,
    step: LoadStep<'_>,
    (replaces, now): (bool, Now),
) -> Result<bool, Status> {
    let Load { number, ref key, hash, root, expires_at_ms, .. } = *load;
    let found = store.lookup(key, hash, now);
    if found.is_some() && !replaces {
        return Ok(false);
    }
    let mutable = with_expiry(mutable_of(&store.owner, root.slot), expires_at_ms);
    set_mutable(&mut store.owner, root.slot, mutable);
    let entry = Command::Load { key, load: number, step };
    store
        .enter_loaded((key, hash), (root, expires_at_ms), found, &entry, now)
        .map(|()| true)
        .map_err(|_| Status::OutOfMemory)
}
