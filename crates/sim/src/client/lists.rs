//! A simulated client's operations on lists: it reads them by READs, or asks.

use super::{SimClient, is_open};
use crate::check::lists::{End, ListOp};
use crate::lists::{ListBegun, ListKey};
use crate::probes::Probe;
use remora_client_core::{Error, OpenList, Session, Side};

impl SimClient {
    /// Operates on a list. Those of RESP clients are in database 0.
    pub(super) fn use_list(&mut self, session: &mut Session) -> Result<(), Error> {
        let keys = self.world.swarm.lists.as_ref().map_or(1, |lists| lists.keys);
        let generation = self.world.history.borrow_mut().lists.generation(keys);
        let key = ListKey { generation, number: self.draw(keys as u64) as u8 };
        let known = self.views.lists.remove(&key.number).filter(|known| known.key() == key.name());
        let mut view = known.map_or_else(|| session.open_list(&key.name()), Ok)?;
        let done = match self.draw(100) {
            0..60 => self.look_at_list(session, key, &mut view),
            60..85 => self.push_to_list(session, key, &view),
            85..95 => self.pop_from_list(session, key, &view),
            _ => self.remove_from_list(session, key, &view),
        };
        self.views.lists.insert(key.number, view);
        done
    }

    fn side(&self) -> (Side, End) {
        [(Side::Left, End::Left), (Side::Right, End::Right)][self.draw(2) as usize]
    }

    fn begin_list(&self, key: ListKey, op: ListOp) -> ListBegun {
        let mut history = self.world.history.borrow_mut();
        history.calls += 1;
        history.note(self.now_ns(), self.number, format_args!("{key} begins {op:?}"));
        history.lists.begin(key, self.now_ns(), op)
    }

    fn end_list(&self, begun: ListBegun, result: Result<ListOp, Error>) -> Result<(), Error> {
        let now_ns = self.now_ns();
        let mut history = self.world.history.borrow_mut();
        history.note(now_ns, self.number, format_args!("{} ends {result:?}", begun.key));
        match result {
            Ok(op) => history.lists.end(begun, now_ns, op),
            Err(error) if is_open(error) => {
                history.lists.lost(begun);
                return Err(error);
            }
            Err(error) => {
                history.lists.end(begun, now_ns, ListOp::Nothing);
                drop(history);
                if !self.world.may_refuse(error) {
                    let seen = format!("client {}: {error}", self.number);
                    let promise = "nothing is refused without a reason";
                    self.world.history.borrow_mut().violate(promise, seen);
                }
            }
        }
        Ok(())
    }

    /// The elements of these bytes.
    fn elements(&self, items: &[Vec<u8>]) -> Vec<i64> {
        let lists = self.world.swarm.lists.as_ref().expect("there are lists");
        let number = |item: &Vec<u8>| {
            lists.number_of(item).unwrap_or_else(|| {
                let seen = format!("client {} of a list: {item:02x?}", self.number);
                let promise = "an element is one that was pushed";
                self.world.history.borrow_mut().violate(promise, seen);
                0
            })
        };
        items.iter().map(number).collect()
    }

    fn look_at_list(
        &self,
        session: &mut Session,
        key: ListKey,
        view: &mut OpenList,
    ) -> Result<(), Error> {
        let begun = self.begin_list(key, ListOp::Nothing);
        let found = session.list_range(view, (0, -1), self.path());
        if found.as_ref().is_ok_and(|found| found.served_by.is_read()) {
            self.world.probes.borrow_mut().add(Probe::ListRead, 1);
            self.world.history.borrow_mut().lists.was_read(begun);
        }
        self.end_list(begun, found.map(|of| ListOp::Range { found: self.elements(&of.items) }))
    }

    fn push_to_list(
        &self,
        session: &mut Session,
        key: ListKey,
        view: &OpenList,
    ) -> Result<(), Error> {
        let lists = self.world.swarm.lists.as_ref().expect("there are lists");
        let (side, end) = self.side();
        let count = 1 + self.draw(lists.most_pushed);
        let items: Vec<i64> = (0..count).map(|_| self.world.next_number()).collect();
        let bytes: Vec<Vec<u8>> = items.iter().map(|&item| lists.element(item)).collect();
        let bytes: Vec<&[u8]> = bytes.iter().map(Vec::as_slice).collect();
        let push = |length| ListOp::Push { end, items: items.clone(), length };
        let begun = self.begin_list(key, push(None));
        let pushed = session.list_push(view, side, &bytes);
        self.end_list(begun, pushed.map(|length| push(Some(length))))
    }

    fn pop_from_list(
        &self,
        session: &mut Session,
        key: ListKey,
        view: &OpenList,
    ) -> Result<(), Error> {
        let (side, end) = self.side();
        let count = 1 + self.draw(3);
        let begun = self.begin_list(key, ListOp::PopAny { end, count: count as usize });
        let popped = session.list_pop(view, side, count);
        self.end_list(begun, popped.map(|of| ListOp::Pop { end, items: self.elements(&of) }))
    }

    fn remove_from_list(
        &self,
        session: &mut Session,
        key: ListKey,
        view: &OpenList,
    ) -> Result<(), Error> {
        let lists = self.world.swarm.lists.as_ref().expect("there are lists");
        let next = self.world.number.get().max(1) as u64;
        let item = 1_000_000 * next.saturating_sub(self.draw(next.min(12))) as i64;
        let begun = self.begin_list(key, ListOp::Remove { item, done: None });
        let removed = session.list_remove(view, 0, &lists.element(item));
        self.end_list(begun, removed.map(|of| ListOp::Remove { item, done: Some(of > 0) }))
    }
}
