//! What a client would send to give a key on another server what it holds here: a backup is restored
//! into a server that runs by ordinary requests, which that server checks as any client's.

use super::Shard;
use crate::store::Now;
use crate::types::object::DumpedPart;
use remora_arena::Journal;
use remora_index::hash::{record_field, record_value};
use remora_layout::hash::KeyHash;
use remora_layout::kind::Kind;
use remora_protocol::message::Status;
use remora_protocol::{Command, Condition, Expiry, Request};

impl<J: Journal> Shard<J> {
    /// Hands over the commands that give a key without an object all that this key holds, in order.
    /// They are commands for rings, of bounded size but for a string's value.
    ///
    /// # Errors
    /// `NotFound`: there is no such key, or it has expired. `Malformed`: objects of its type cannot
    /// be made by commands.
    pub fn rebuild(
        &mut self,
        (key, hash): (&[u8], KeyHash),
        now: Now,
        each: &mut dyn FnMut(&Command<'_>),
    ) -> Result<(), Status> {
        self.store.lag.begin_command();
        let found = self.store.lookup(key, hash, now).ok_or(Status::NotFound)?;
        let (slot, kind) = (found.slot.slot, self.store.kind(found));
        let expires_at_ms = found.mutable.expires_at_ms;
        if kind.of_type() == Kind::STRING {
            let value = record_value(&self.store.owner, slot);
            let expiry = if expires_at_ms == 0 { Expiry::Never } else { Expiry::At(expires_at_ms) };
            each(&Command::Set { key, value, condition: Condition::Always, expiry, get: false });
            return Ok(());
        }
        let of = self.types.get(kind.of_type()).ok_or(Status::Malformed)?;
        let mut is_known = true;
        let mut add = |part: DumpedPart<'_>| {
            let each = &mut |request: Request<'_>| each(&Command::Of { key, request });
            is_known &= of.requests(part, each);
        };
        if kind.is_root() {
            let (mut at, mut piece, mut ended) = (None, Vec::new(), false);
            of.head(&self.store, slot, &mut piece);
            add(DumpedPart::Head(&piece));
            while !ended {
                piece.clear();
                ended = of.dump(&self.store, slot, &mut at, &mut piece);
                add(DumpedPart::Piece(&piece));
            }
        } else {
            add(DumpedPart::Whole(record_field(&self.store.owner, slot).value));
        }
        if !is_known {
            return Err(Status::Malformed);
        }
        if expires_at_ms != 0 {
            each(&Command::Expire { key, at_ms: expires_at_ms, condition: Default::default() });
        }
        Ok(())
    }
}
