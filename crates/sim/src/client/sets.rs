//! A simulated client's operations on sets: each member is judged as a key that is there or not.

use super::SimClient;
use crate::check::keys::{If, KeyOp, Value, said_of_each};
use crate::history::Begun;
use crate::probes::Probe;
use crate::swarm::SETS;
use crate::values::{HashName, Register};
use remora_client_core::{Error, OpenSet, Session};

/// What a member that is there has.
const THERE: Value = Value { number: 1, expiry: None };

impl SimClient {
    /// Operates on a set.
    pub(super) fn use_set(&mut self, session: &mut Session) -> Result<(), Error> {
        let set = HashName::Set(self.draw(SETS as u64) as u8);
        if self.draw(100) == 0 {
            return self.drop_set(session, set);
        }
        let known = self.views.sets.remove(&set);
        let mut view = known.map_or_else(|| session.open_set(&set.key()), Ok)?;
        let done = match self.draw(100) {
            0..50 => self.has_member(session, set, &mut view),
            50..60 => self.all_members(session, set, &mut view),
            60..85 => self.add_members(session, set, &view),
            _ => self.remove_members(session, set, &view),
        };
        self.views.sets.insert(set, view);
        done
    }

    fn members_below(&self) -> u32 {
        self.world.swarm.lists.as_ref().map_or(1, |lists| lists.members)
    }

    fn member(&self, set: HashName) -> Register {
        let number = self.popular(self.members_below());
        Register { database: self.database(), hash: Some(set), number }
    }

    /// Some members, each once; now and then many, so that the set gets parts.
    fn some_members(&self, set: HashName) -> Vec<Register> {
        let most = [1, 1, 3, 200][self.draw(4) as usize];
        let drawn = (0..1 + self.draw(most)).map(|_| self.member(set));
        let mut members: Vec<Register> = drawn.collect();
        members.sort_unstable();
        members.dedup();
        members
    }

    fn begin_members(&self, members: &[Register], op: KeyOp) -> Vec<Begun> {
        let calls = members.iter().map(|&member| (member, op, None));
        self.world.history.borrow_mut().begin_all(self.number, self.now_ns(), calls)
    }

    fn members_end(&self, begun: &[Begun], result: Result<KeyOp, Error>) -> Result<(), Error> {
        match result {
            Ok(op) => {
                begun.iter().for_each(|&begun| self.end(begun, op));
                Ok(())
            }
            Err(error) => begun.iter().try_for_each(|&begun| self.failed(begun, error)),
        }
    }

    fn has_member(
        &self,
        session: &mut Session,
        set: HashName,
        view: &mut OpenSet,
    ) -> Result<(), Error> {
        let (member, path) = (self.member(set), self.path());
        let begun = self.begin(member, KeyOp::Nothing);
        match session.set_has(view, &member.name(), path) {
            Ok(got) => {
                self.world.probes.borrow_mut().add(Probe::SetRead, got.served_by.is_read() as u64);
                self.end(begun, KeyOp::Exists { there: got.value.is_some() });
                Ok(())
            }
            Err(error) => self.failed(begun, error),
        }
    }

    fn all_members(
        &self,
        session: &mut Session,
        set: HashName,
        view: &mut OpenSet,
    ) -> Result<(), Error> {
        let database = self.database();
        let member = |number| Register { database, hash: Some(set), number };
        let members: Vec<Register> = (0..self.members_below()).map(member).collect();
        let begun = self.begin_members(&members, KeyOp::Nothing);
        match session.set_members(view, self.path()) {
            Ok(mut all) => {
                for &begun in &begun {
                    let there = all.members.remove(&begun.key.name());
                    self.end(begun, KeyOp::Exists { there });
                }
                if !all.members.is_empty() {
                    let seen = format!("client {}, {set}: {:02x?}", self.number, all.members);
                    let promise = "a set has the members that were added";
                    self.world.history.borrow_mut().violate(promise, seen);
                }
                Ok(())
            }
            Err(error) => self.members_end(&begun, Err(error)),
        }
    }

    fn add_members(
        &self,
        session: &mut Session,
        set: HashName,
        view: &OpenSet,
    ) -> Result<(), Error> {
        let members = self.some_members(set);
        let add = |condition, done| KeyOp::Set { value: THERE, condition, done };
        let begun = self.begin_members(&members, add(If::Always, None));
        let names: Vec<Vec<u8>> = members.iter().map(|member| member.name()).collect();
        let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        // One that is there stays as it is: the same as if it were written again.
        let added = session.set_add(view, &names).map(|new| match said_of_each(new, names.len()) {
            Some(true) => add(If::Absent, Some(true)),
            Some(false) => add(If::Present, Some(true)),
            None => add(If::Always, Some(true)),
        });
        self.members_end(&begun, added)
    }

    fn remove_members(
        &self,
        session: &mut Session,
        set: HashName,
        view: &OpenSet,
    ) -> Result<(), Error> {
        let members = self.some_members(set);
        let begun = self.begin_members(&members, KeyOp::Del { removed: None });
        let names: Vec<Vec<u8>> = members.iter().map(|member| member.name()).collect();
        let names: Vec<&[u8]> = names.iter().map(Vec::as_slice).collect();
        let removed = session.set_remove(view, &names);
        let of = |removed| KeyOp::Del { removed: said_of_each(removed, names.len()) };
        self.members_end(&begun, removed.map(of))
    }

    fn drop_set(&self, session: &mut Session, set: HashName) -> Result<(), Error> {
        let database = self.database();
        let member = |number| Register { database, hash: Some(set), number };
        let members: Vec<Register> = (0..self.members_below()).map(member).collect();
        let begun = self.begin_members(&members, KeyOp::Del { removed: None });
        let removed = session.del(&set.key());
        // The reply does not name the members that it had.
        let of = |removed| KeyOp::Del { removed: if removed { None } else { Some(false) } };
        self.members_end(&begun, removed.map(of))
    }
}
