//! A simulated client's operations on hashes: each field is judged as a key.

use super::{MS, SimClient};
use crate::check::keys::{If, KeyOp, Value, Window, said_of_each};
use crate::hashes::JUDGED_EXPIRY;
use crate::history::Begun;
use crate::probes::Probe;
use crate::resp::MOVED_KEYS;
use crate::values::{HashName, Register, encode};
use remora_client_core::{Error, OpenHash, Path, Session};
use remora_layout::limits::PARTS_TURN_BYTES;
use std::collections::BTreeMap;

impl SimClient {
    /// Operates on a hash.
    pub(super) fn use_hash(&mut self, session: &mut Session) -> Result<(), Error> {
        let swarm = self.world.swarm.hashes;
        let is_moved = swarm.moves && self.draw(2) == 0;
        let hash = match is_moved {
            true => {
                let key = self.draw(MOVED_KEYS as u64) as u8;
                HashName::Moved { generation: self.world.moved.get(), key }
            }
            false => HashName::Fixed(self.draw(swarm.hashes as u64) as u8),
        };
        if !is_moved && self.draw(1_000) < swarm.ends {
            return match self.draw(2) {
                0 => self.drop_hash(session, hash),
                _ => self.expire_hash(session, hash),
            };
        }
        let known = self.views.hashes.remove(&hash);
        let mut view = known.map_or_else(|| session.open_hash(&hash.key()), Ok)?;
        // Only the client that moves a hash changes it.
        let done = match self.draw(if is_moved { 65 } else { 100 }) {
            0..55 => self.get_field(session, hash, &mut view),
            55..61 => self.get_fields(session, hash, &view),
            61..65 => self.get_all(session, hash, &view),
            65..90 => self.set_fields(session, hash, &view),
            90..96 => self.remove_fields(session, hash, &view),
            _ => self.count_field(session, hash, &view),
        };
        self.views.hashes.insert(hash, view);
        done
    }

    fn field(&self, hash: HashName) -> Register {
        let number = self.popular(self.world.swarm.hashes.fields);
        Register { database: self.database(), hash: Some(hash), number }
    }

    /// Some fields, each once, and twins together.
    fn some_fields(&self, hash: HashName) -> Vec<Register> {
        let drawn = (0..1 + self.draw(4)).map(|_| self.field(hash).number);
        let fields = self.world.swarm.hashes.with_twins(drawn).into_iter();
        let database = self.database();
        fields.map(|number| Register { database, hash: Some(hash), number }).collect()
    }

    pub(super) fn all_fields(&self, hash: HashName) -> Vec<Register> {
        self.world.swarm.fields(self.database(), hash).collect()
    }

    /// Begins one call that does this to each of the fields.
    pub(super) fn begin_fields(&self, fields: &[Register], op: KeyOp) -> Vec<Begun> {
        let calls = fields.iter().map(|&field| (field, op, None));
        self.world.history.borrow_mut().begin_all(self.number, self.now_ns(), calls)
    }

    pub(super) fn end_fields(&self, begun: &[Begun], op: KeyOp) -> Result<(), Error> {
        begun.iter().for_each(|&begun| self.end(begun, op));
        Ok(())
    }

    /// As [`SimClient::failed`], of a call about several fields.
    pub(super) fn fields_failed(&self, begun: &[Begun], error: Error) -> Result<(), Error> {
        begun.iter().try_for_each(|&begun| self.failed(begun, error))
    }

    pub(super) fn get_field(
        &self,
        session: &mut Session,
        hash: HashName,
        view: &mut OpenHash,
    ) -> Result<(), Error> {
        let (field, path) = (self.field(hash), self.path());
        let begun = self.begin(field, KeyOp::Nothing);
        self.end_get(begun, session.hash_get(view, &field.name(), path))
    }

    fn set_fields(
        &self,
        session: &mut Session,
        hash: HashName,
        view: &OpenHash,
    ) -> Result<(), Error> {
        let (fields, number) = (self.some_fields(hash), self.world.next_number());
        let value = Value { number, expiry: None };
        let set = |condition, done| KeyOp::Set { value, condition, done };
        let begun = self.begin_fields(&fields, set(If::Always, None));
        let lengths = self.world.swarm.hashes.lengths;
        let pairs: Vec<(Vec<u8>, Vec<u8>)> =
            fields.iter().map(|&field| (field.name(), encode(field, number, lengths))).collect();
        let pairs: Vec<(&[u8], &[u8])> =
            pairs.iter().map(|(name, value)| (name.as_slice(), value.as_slice())).collect();
        match session.hash_set(view, &pairs) {
            Ok(new) => {
                // As a conditional SET, if the reply states it for each.
                let condition = match said_of_each(new, fields.len()) {
                    Some(true) => If::Absent,
                    Some(false) => If::Present,
                    None => If::Always,
                };
                self.end_fields(&begun, set(condition, Some(true)))
            }
            Err(error) => self.fields_failed(&begun, error),
        }
    }

    fn remove_fields(
        &self,
        session: &mut Session,
        hash: HashName,
        view: &OpenHash,
    ) -> Result<(), Error> {
        let fields = self.some_fields(hash);
        if self.are_unsettled(&fields) {
            return self.get_fields(session, hash, view);
        }
        let names: Vec<Vec<u8>> = fields.iter().map(|field| field.name()).collect();
        let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        let begun = self.begin_fields(&fields, KeyOp::Del { removed: None });
        match session.hash_remove(view, &names) {
            Ok(removed) => {
                let removed = said_of_each(removed, fields.len());
                self.end_fields(&begun, KeyOp::Del { removed })
            }
            Err(error) => self.fields_failed(&begun, error),
        }
    }

    fn count_field(
        &self,
        session: &mut Session,
        hash: HashName,
        view: &OpenHash,
    ) -> Result<(), Error> {
        let (field, by) = (self.field(hash).counter(), 1 + self.draw(9) as i64);
        if self.are_unsettled(&[field]) {
            return self.get_fields(session, hash, view);
        }
        let begun = self.begin(field, KeyOp::Incr { by, sum: None });
        match session.hash_increment(view, &field.name(), by) {
            Ok(sum) => {
                self.end(begun, KeyOp::Incr { by, sum: Some(sum) });
                Ok(())
            }
            Err(error) => self.failed(begun, error),
        }
    }

    fn get_fields(
        &self,
        session: &mut Session,
        hash: HashName,
        view: &OpenHash,
    ) -> Result<(), Error> {
        let fields = self.some_fields(hash);
        let names: Vec<Vec<u8>> = fields.iter().map(|field| field.name()).collect();
        let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        let begun = self.begin_fields(&fields, KeyOp::Nothing);
        match session.hash_get_many(view, &names) {
            Ok(values) => self.saw_fields(&begun, values),
            Err(error) => self.fields_failed(&begun, error),
        }
    }

    fn get_all(&self, session: &mut Session, hash: HashName, view: &OpenHash) -> Result<(), Error> {
        let begun = self.begin_fields(&self.all_fields(hash), KeyOp::Nothing);
        match session.hash_all(view) {
            Ok(mut all) => {
                let bytes: usize = all.iter().map(|(name, value)| name.len() + value.len()).sum();
                let in_turns = (bytes > PARTS_TURN_BYTES) as u64;
                self.world.probes.borrow_mut().add(Probe::HashInTurns, in_turns);
                let values = begun.iter().map(|begun| all.remove(&begun.key.name())).collect();
                if !all.is_empty() {
                    let seen = format!("client {}, {hash}: {all:02x?}", self.number);
                    let promise = "a hash has the fields that were set";
                    self.world.history.borrow_mut().violate(promise, seen);
                }
                self.saw_fields(&begun, values)
            }
            Err(error) => self.fields_failed(&begun, error),
        }
    }

    /// One look at some fields has come to its end.
    pub(super) fn saw_fields(
        &self,
        begun: &[Begun],
        values: Vec<Option<Vec<u8>>>,
    ) -> Result<(), Error> {
        let mut seen = BTreeMap::new();
        for (&begun, value) in begun.iter().zip(values) {
            let found = self.number_of(begun.key, value.as_deref());
            self.end(begun, KeyOp::Get { found });
            seen.insert(begun.key.number, found);
        }
        let twin_of = |field: u32| self.world.swarm.hashes.twin_of(field);
        let twins =
            seen.iter().map(|(&field, &found)| (found, twin_of(field).map(|twin| seen[&twin])));
        if let Some(twins) = { twins }.find(|&(one, other)| other.is_some_and(|other| other != one))
        {
            let seen = format!("client {}, {}: twins have {twins:?}", self.number, begun[0].key);
            let promise = "a look at a hash is a look at one moment";
            self.world.history.borrow_mut().violate(promise, seen);
        }
        Ok(())
    }

    pub(super) fn drop_hash(&self, session: &mut Session, hash: HashName) -> Result<(), Error> {
        let fields = self.all_fields(hash);
        if self.are_unsettled(&fields) {
            return Ok(());
        }
        let begun = self.begin_fields(&fields, KeyOp::Del { removed: None });
        match session.del(&hash.key()) {
            // The reply does not name the fields that it had.
            Ok(true) => self.end_fields(&begun, KeyOp::Del { removed: None }),
            Ok(false) => self.end_fields(&begun, KeyOp::Del { removed: Some(false) }),
            Err(error) => self.fields_failed(&begun, error),
        }
    }

    /// Reads fields of a hash around the time when it expires: a client that asks for one lets the
    /// server remove it.
    fn read_expired(
        &mut self,
        session: &mut Session,
        hash: HashName,
        at_ms: u64,
    ) -> Result<(), Error> {
        let Some(mut view) = self.views.hashes.remove(&hash) else { return Ok(()) };
        let left_ms = at_ms.saturating_sub(self.world.node.borrow().unix_ms());
        let (database, hash_of) = (self.database(), Some(hash));
        let done = [0, left_ms + 2].into_iter().try_for_each(|waits_ms| {
            self.pause((waits_ms + self.draw(8)) * MS);
            JUDGED_EXPIRY.into_iter().try_for_each(|number| {
                let field = Register { database, hash: hash_of, number };
                let begun = self.begin(field, KeyOp::Nothing);
                self.end_get(begun, session.hash_get(&mut view, &field.name(), Path::Read))
            })
        });
        self.views.hashes.insert(hash, view);
        done
    }

    /// Lets a hash expire, and waits until it has: its fields are removed then, or before. For the
    /// fields that each EXPIRE of the hash covers, it is also known that they are gone at that
    /// time, as for keys.
    pub(super) fn expire_hash(
        &mut self,
        session: &mut Session,
        hash: HashName,
    ) -> Result<(), Error> {
        let fields = self.all_fields(hash);
        if self.are_unsettled(&fields) {
            return Ok(());
        }
        let (key, at_ms) = (hash.key(), self.soon_ms());
        let begun = self.begin_fields(&fields, KeyOp::Del { removed: None });
        let expiry = Window::between_ms(at_ms, at_ms);
        let expire = |done| KeyOp::Expire { expiry, done };
        let mut judged = fields;
        judged.retain(|field| JUDGED_EXPIRY.contains(&field.number));
        let judged = self.begin_fields(&judged, expire(None));
        match session.expire_at(&key, at_ms) {
            // The reply does not name the fields that it has.
            Ok(true) => self.end_fields(&judged, expire(None))?,
            Ok(false) => {
                self.end_fields(&judged, expire(Some(false)))?;
                return self.end_fields(&begun, KeyOp::Del { removed: Some(false) });
            }
            Err(error) => {
                self.fields_failed(&judged, error)?;
                return self.fields_failed(&begun, error);
            }
        }
        if self.draw(2) == 0 {
            match hash {
                HashName::Ordered(_) => self.read_expired_ordered(session, hash, at_ms)?,
                HashName::Sorted(set) => self.read_expired_sorted(session, set, at_ms)?,
                HashName::Collection(_) => self.read_expired_documents(session, hash, at_ms)?,
                _ => self.read_expired(session, hash, at_ms)?,
            }
        }
        // If another client gives it another time it may have expired before.
        if self.await_expiry(session, &key, at_ms)? {
            self.end_fields(&begun, KeyOp::Del { removed: None })?;
        }
        Ok(())
    }
}
