//! Single operations of a simulated client, and several at once.

use super::{SimClient, is_open};
use crate::check::keys::{If, KeyOp, Value, Window};
use crate::history::Begun;
use crate::values::{Register, encode};
use remora_client_core::{Error, Path, Session, SetOptions};
use remora_protocol::{Condition, Expiry};

impl SimClient {
    pub(super) fn get(&mut self, session: &mut Session) -> Result<(), Error> {
        let (key, path) = (self.key(), self.path());
        self.get_after(session, key, path, None)
    }

    pub(super) fn get_after(
        &mut self,
        session: &mut Session,
        key: Register,
        path: Path,
        follows: Option<Begun>,
    ) -> Result<(), Error> {
        let begun = self.begin_after(key, KeyOp::Nothing, follows);
        self.end_get(begun, session.get(&key.name(), path))
    }

    pub(super) fn get_batch(&mut self, session: &mut Session) -> Result<(), Error> {
        let count = 1 + self.draw(6);
        let keys: Vec<Register> = (0..count).map(|_| self.key()).collect();
        let names: Vec<Vec<u8>> = keys.iter().map(|&key| key.name()).collect();
        let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        let begun: Vec<Begun> = keys.iter().map(|&key| self.begin(key, KeyOp::Nothing)).collect();
        let path = self.path();
        let mut found = vec![None; keys.len()];
        let result = session.get_batch(&names, path, &mut |index, value, _| {
            found[index] = Some(value.map(<[u8]>::to_vec));
        });
        let mut failed = result.err();
        for (at, found) in found.into_iter().enumerate() {
            match found {
                Some(value) => {
                    let found = self.number_of(keys[at], value.as_deref());
                    self.end(begun[at], KeyOp::Get { found });
                }
                None => match failed {
                    Some(error) if is_open(error) => {}
                    Some(error) => self.failed(begun[at], error)?,
                    None => {
                        let seen = format!("{} of a batch was left out", keys[at]);
                        self.world.history.borrow_mut().violate("a batch answers every key", seen);
                    }
                },
            }
        }
        match failed.take_if(|error| is_open(*error)) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    /// A value that was never written before, and how it is written.
    fn new_value(&self) -> (i64, SetOptions, Option<Window>) {
        let number = self.world.next_number();
        let condition = match self.draw(6) {
            0 => Condition::IfAbsent,
            1 => Condition::IfPresent,
            _ => Condition::Always,
        };
        let expires = self.draw(100) < self.world.swarm.mix.expiring_percent;
        let at_ms = self.world.node.borrow().unix_ms() + 1 + self.draw(2_000);
        let expiry = if expires { Expiry::At(at_ms) } else { Expiry::Never };
        let window = expires.then(|| Window::between_ms(at_ms, at_ms));
        (number, SetOptions { condition, expiry }, window)
    }

    pub(super) fn set(&mut self, session: &mut Session) -> Result<(), Error> {
        let key = self.key();
        let (number, options, expiry) = self.new_value();
        let condition = match options.condition {
            Condition::IfAbsent => If::Absent,
            Condition::IfPresent => If::Present,
            Condition::Always => If::Always,
        };
        let bytes = encode(key, number, self.world.swarm.lengths);
        let value = Value { number, expiry };
        let begun = self.begin(key, KeyOp::Set { value, condition, done: None });
        match session.set(&key.name(), &bytes, options) {
            Ok(done) => {
                self.end(begun, KeyOp::Set { value, condition, done: Some(done) });
                Ok(())
            }
            Err(error) => self.failed(begun, error),
        }
    }

    pub(super) fn set_many(&mut self, session: &mut Session) -> Result<(), Error> {
        let count = 1 + self.draw(5);
        let mut keys: Vec<Register> = (0..count).map(|_| self.key()).collect();
        keys.sort_unstable();
        keys.dedup();
        let plain = |number| KeyOp::Set {
            value: Value { number, expiry: None },
            condition: If::Always,
            done: None,
        };
        let numbers: Vec<i64> = keys.iter().map(|_| self.world.next_number()).collect();
        let pairs: Vec<(Vec<u8>, Vec<u8>)> = keys
            .iter()
            .zip(&numbers)
            .map(|(&key, &number)| (key.name(), encode(key, number, self.world.swarm.lengths)))
            .collect();
        let begun: Vec<Begun> = keys
            .iter()
            .zip(&numbers)
            .map(|(&key, &number)| self.begin(key, plain(number)))
            .collect();
        let pairs: Vec<(&[u8], &[u8])> =
            pairs.iter().map(|(key, value)| (key.as_slice(), value.as_slice())).collect();
        match session.set_many(&pairs) {
            Ok(()) => {
                for (&begun, &number) in begun.iter().zip(&numbers) {
                    self.end(begun, plain(number));
                }
                Ok(())
            }
            // Some may have been set.
            Err(error) if !is_open(error) && self.world.may_refuse(error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    pub(super) fn del(&mut self, session: &mut Session) -> Result<(), Error> {
        let key = self.key();
        if self.are_unsettled(&[key]) {
            return self.get(session);
        }
        let begun = self.begin(key, KeyOp::Del { removed: None });
        match session.del(&key.name()) {
            Ok(removed) => {
                self.end(begun, KeyOp::Del { removed: Some(removed) });
                Ok(())
            }
            Err(error) => self.failed(begun, error),
        }
    }

    pub(super) fn incr(&mut self, session: &mut Session) -> Result<(), Error> {
        let key = self.key().counter();
        if self.are_unsettled(&[key]) {
            return self.get(session);
        }
        let by = 1 + self.draw(9) as i64;
        let begun = self.begin(key, KeyOp::Incr { by, sum: None });
        match session.incr(&key.name(), by) {
            Ok(sum) => {
                self.end(begun, KeyOp::Incr { by, sum: Some(sum) });
                Ok(())
            }
            Err(error) => self.failed(begun, error),
        }
    }

    /// Writes a value over the present one, in place if that is long.
    pub(super) fn edit(&mut self, session: &mut Session) -> Result<(), Error> {
        let (key, number) = (self.key().no_counter(), self.world.next_number());
        let bytes = encode(key, number, self.world.swarm.lengths);
        let begun = self.begin(key, KeyOp::Edit { number });
        match session.set_range(&key.name(), 0, &bytes) {
            Ok(length) => {
                if length != bytes.len() as u64 {
                    let seen = format!("{key} has {length} bytes, not {}", bytes.len());
                    let mut history = self.world.history.borrow_mut();
                    history.violate("a value is one that was written to its key", seen);
                }
                self.end(begun, KeyOp::Edit { number });
                Ok(())
            }
            Err(error) => self.failed(begun, error),
        }
    }
}
