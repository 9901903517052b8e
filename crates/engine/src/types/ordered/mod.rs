//! Ordered trees: keys in order with values, in a B+tree that clients read (docs/decisions/0078).
//!
//! Invariant: a change is planned with all its memory, then logged, then published under the sequence
//! that the changed nodes carry. A value that is too long for a leaf lies in a record (`long`). A tree
//! without keys stays: its settings are its own.

mod change;
mod entry;
mod held;
mod long;
mod read;
mod seek;
mod table;
mod transfer;
mod trees;
mod waiting;

pub(crate) use trees::OrderedTrees;

use table::Named;

use super::content::Content;
use super::object::{DumpedPart, LongRead, On, Turn, Type, find_root, whole_read};
use super::sought::{Seek, Sought};
use crate::store::{DumpAt, Now, ShardStats, Store};
use remora_arena::{Journal, Slot, slot_of};
use remora_layout::kind::Kind;
use remora_protocol::message::Status;
use remora_protocol::ordered::OrderedCommand;
use remora_protocol::{Command, Reply, Request};

impl<J: Journal> Type<J> for OrderedTrees {
    fn id(&self) -> Kind {
        Kind::ORDERED
    }

    fn execute<'s>(
        &'s mut self,
        store: &'s mut Store<J>,
        on: On<'_>,
        request: Request<'_>,
    ) -> Reply<'s> {
        let command = OrderedCommand::of(request);
        let entry = Command::Of { key: on.key, request };
        let root = match find_root(store, on, Kind::ORDERED) {
            Ok(root) => root,
            Err(status) => return Reply::status(status),
        };
        match command {
            OrderedCommand::Create(_) if root.is_some() => Reply::status(Status::NotDone),
            OrderedCommand::Create(settings) => {
                let made = self.make(store, (on, settings), &entry, |_, _, _| Ok(()));
                made.map_or_else(Reply::status, |()| Reply::status(Status::Ok))
            }
            OrderedCommand::Set { key, value } => {
                let set = self.set(store, (on, root), (key, value), &entry);
                set.map_or_else(Reply::status, |is_new| Reply::number(is_new.into()))
            }
            OrderedCommand::Delete { key } => {
                let deleted = self.delete(store, (on, root), key, &entry);
                deleted.map_or_else(Reply::status, |was_there| Reply::number(was_there.into()))
            }
            OrderedCommand::Range { .. } => {
                let mut found = std::mem::take(&mut self.scratch);
                let reply = whole_read(self, store, (on, request), &mut found);
                self.scratch = found;
                let value = Some(&self.scratch[..]).filter(|_| reply.status == Status::Ok);
                Reply { value, ..reply }
            }
            OrderedCommand::Hold(hold) => match root {
                Some(root) => self.hold(store, (root, on.now), hold).unwrap_or_else(Reply::status),
                None => Reply::status(Status::NotFound),
            },
            OrderedCommand::Release { epoch } => {
                let was_there = root.is_some_and(|root| self.release_epoch(store, root, epoch));
                Reply::number(was_there.into())
            }
            command => match root {
                Some(root) => self.look(store, root, command),
                None => Self::look_at_nothing(command),
            },
        }
    }

    fn begin_read(
        &mut self,
        store: &mut Store<J>,
        on: On<'_>,
        request: Request<'_>,
    ) -> Result<LongRead, Status> {
        let root = find_root(store, on, Kind::ORDERED)?;
        let root = root.map(|root| slot_of(&store.owner, root));
        let reading = self.begin_range(store, root, OrderedCommand::of(request))?;
        Ok(LongRead::new(Kind::ORDERED, Box::new(reading)))
    }

    fn read_turn(
        &self,
        store: &Store<J>,
        read: &mut LongRead,
        found: &mut Vec<u8>,
        _now: Now,
    ) -> Result<Turn, Status> {
        let reading = read.state.downcast_mut().expect("it began here");
        self.range_turn(store, reading, found)
    }

    fn seek(&self, sought: &Sought<'_>) -> Option<Box<dyn Seek>> {
        seek::seek(sought)
    }

    fn release(&mut self, store: &mut Store<J>, root: u32, now: Now) -> bool {
        self.release_some(store, root, now)
    }

    fn tick(&mut self, _store: &mut Store<J>) {
        self.look_again();
    }

    fn sweep(&mut self, store: &mut Store<J>, now: Now) -> bool {
        !self.held.is_empty() && self.mend_turn(store, now)
    }

    fn bytes_of(&self, _store: &Store<J>, root: u32) -> u64 {
        let Named { tree, long, .. } = self.named(root);
        tree.bytes() + tree.heap_bytes() + long.bytes
    }

    fn digest(&self, store: &Store<J>, slot: u32, content: &mut Content) -> bool {
        self.digest_tree(store, slot, content)
    }

    fn encoding(&self, _is_whole: bool) -> &'static str {
        "btree"
    }

    fn head(&self, _store: &Store<J>, root: u32, head: &mut Vec<u8>) {
        self.named(root).settings.write(head);
    }

    fn dump(&self, store: &Store<J>, root: u32, at: &mut DumpAt, piece: &mut Vec<u8>) -> bool {
        self.dump_entries(store, root, at, piece)
    }

    fn begin_load(
        &mut self,
        store: &mut Store<J>,
        on: On<'_>,
        head: &[u8],
    ) -> Result<Slot, Status> {
        self.begin_load_tree(store, on, head)
    }

    fn load(
        &mut self,
        store: &mut Store<J>,
        on: On<'_>,
        root: u32,
        piece: &[u8],
    ) -> Result<(), Status> {
        self.load_entries(store, (on, root), piece)
    }

    fn requests(&self, part: DumpedPart<'_>, each: &mut dyn FnMut(Request<'_>)) -> bool {
        transfer::requests(part, each)
    }

    fn audit(&self, store: &Store<J>) -> Result<u64, String> {
        for named in self.trees.all().filter(|named| store.is_live(named.root)) {
            named.tree.check(&store.owner).map_err(|broken| broken.to_string())?;
            named.audit_long(store)?;
        }
        self.trees.audit()?;
        Ok(self.long_bytes)
    }

    fn heap_bytes(&mut self) -> u64 {
        self.trees.taken().heap_bytes
    }

    fn count(&self, stats: &mut ShardStats) {
        stats.ordered_trees = self.trees.count();
        stats.ordered_bytes = self.trees.taken().node_bytes + self.long_bytes;
    }
}
