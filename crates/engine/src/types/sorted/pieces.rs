//! Removals of many members, which go in pieces: a turn and a change for each. Others see the set
//! between two pieces. A removal of all members of a set is one change.

use super::held::SortedSets;
use super::ranges::{KeyBounds, Span, direction_of};
use super::read::Reading;
use crate::elements::Held;
use crate::store::Store;
use crate::types::object::{ChangeStep, LongRead, On};
use remora_arena::Journal;
use remora_index::btree::{Direction, Range};
use remora_layout::bucket::BucketSlot;
use remora_layout::kind::Kind;
use remora_layout::limits::{
    KEPT_PARTS_SHARE, MAX_COMMAND_MEMBERS, MAX_KEY_BYTES, POP_REPLY_BYTES, SORTED_TURN_CHANGES,
};

// A piece is never too long for a step.
const _: () = assert!(SORTED_TURN_CHANGES * (MAX_KEY_BYTES + 64) <= POP_REPLY_BYTES + (1 << 20));
use remora_protocol::message::Status;
use remora_protocol::sorted::{Scored, SortedCommand, SortedRange};
use remora_protocol::{Command, Items, Reply};
use std::ops::Bound;

/// A removal that goes in turns.
pub(super) struct Removal {
    what: Removing,
    /// The root record of the large set of which it has removed some: another set that comes to the key
    /// loses nothing.
    of: Option<BucketSlot>,
}

/// What is still to be removed.
enum Removing {
    /// So many from one end, which the reply has.
    Popped { count: u64, from_greatest: bool },
    /// So many at most of a range.
    Range { range: OwnRange, left: u64, is_new: bool },
}

/// A range that outlives its request.
enum OwnRange {
    /// By keys of the tree.
    Keys(KeyBounds),
    /// A small set: the members.
    Members(Vec<u8>),
}

/// The root record of a set, if it is a large one.
fn large_root(held: Held) -> Option<BucketSlot> {
    match held {
        Held::Parts(root) => Some(root.slot),
        Held::Whole(_) => None,
    }
}

/// A span in pieces, in this direction.
fn pieces(span: Span, direction: Direction) -> impl Iterator<Item = Span> {
    let most = SORTED_TURN_CHANGES as u64;
    (0..span.count().div_ceil(most)).map(move |at| match direction {
        Direction::Ascending => {
            let from = span.from + at * most;
            Span { from, to: span.to.min(from + most) }
        }
        Direction::Descending => {
            let to = span.to - at * most;
            Span { from: span.from.max(to.saturating_sub(most)), to }
        }
    })
}

fn encoded(on: On<'_>, command: &Command<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    command.encode_within(on.hash.database(), 0, &mut bytes);
    bytes
}

/// Takes up to so many members of a span: with their scores, and their bytes in a reply.
fn some_of<J: Journal>(
    sets: &SortedSets,
    store: &Store<J>,
    held: Held,
    of: (Span, Direction),
) -> Vec<u8> {
    let mut list = Vec::new();
    sets.each_of(store, held, of, |score, member| Scored::push(&mut list, score, member));
    list
}

impl SortedSets {
    /// The places of so many members at one end.
    fn end<J: Journal>(
        &self,
        store: &Store<J>,
        held: Held,
        (count, from_greatest): (u64, bool),
    ) -> (Span, Direction) {
        let (members, direction) = (self.length(store, held), direction_of(from_greatest));
        let count = count.min(members);
        let from = if from_greatest { members - count } else { 0 };
        (Span { from, to: from + count }, direction)
    }

    /// Removes members at one end, and gives them. `NeedsBuffer` if they are too many, or too long, for
    /// one step.
    pub(super) fn pop<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, held): (On<'_>, Option<Held>),
        (count, from_greatest): (u64, bool),
    ) -> Reply<'_> {
        let mut list = Vec::new();
        if let Some(held) = held {
            let (span, direction) = self.end(store, held, (count, from_greatest));
            if span.count() > MAX_COMMAND_MEMBERS as u64 {
                return Reply::status(Status::NeedsBuffer);
            }
            // Long members are not all copied to find out that they are too long.
            for some in pieces(span, direction) {
                let push = |score, member: &[u8]| Scored::push(&mut list, score, member);
                self.each_of(store, held, (some, direction), push);
                if list.len() > POP_REPLY_BYTES {
                    return Reply::status(Status::NeedsBuffer);
                }
            }
            let gone: Vec<(f64, &[u8])> = Scored::in_list(&list).collect();
            if let Err(status) = self.remove_these(store, (on, held), &gone) {
                return Reply::status(status);
            }
        }
        let popped = Scored::in_list(&list).count();
        self.scratch = list;
        Reply { value: Some(&self.scratch), ..Reply::number(popped as i64) }
    }

    /// Removes the members of a range. `NeedsBuffer` if they are too many for one step.
    pub(super) fn remove_range<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        (on, held): (On<'_>, Option<Held>),
        range: &SortedRange<'_>,
    ) -> Reply<'static> {
        let Some(held) = held else { return Reply::number(0) };
        let span = self.span(store, held, range, Direction::Ascending);
        let is_all = span.count() == self.length(store, held);
        if span.count() > SORTED_TURN_CHANGES as u64 && !is_all {
            return Reply::status(Status::NeedsBuffer);
        }
        if is_all && span.count() > SORTED_TURN_CHANGES as u64 {
            crate::keys::del(store, on);
            return Reply::number(span.count() as i64);
        }
        let list = some_of(self, store, held, (span, Direction::Ascending));
        let gone: Vec<(f64, &[u8])> = Scored::in_list(&list).collect();
        let removed = self.remove_these(store, (on, held), &gone);
        removed.map_or_else(Reply::status, |()| Reply::number(gone.len() as i64))
    }

    /// Begins a removal that goes in turns.
    pub(super) fn begin_removal<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        on: On<'_>,
        command: SortedCommand<'_>,
    ) -> Result<LongRead, Status> {
        let (what, of) = match command {
            SortedCommand::Pop { count, from_greatest } => {
                (Removing::Popped { count, from_greatest }, None)
            }
            SortedCommand::RemoveRange { range } => {
                let held = Self::find(store, on)?;
                let of = held.and_then(large_root);
                let span = held.map(|held| self.span(store, held, &range, Direction::Ascending));
                let span = span.unwrap_or_default();
                let range = match (held, range) {
                    (
                        Some(Held::Parts(root)),
                        SortedRange::Score { .. } | SortedRange::Lex { .. },
                    ) => {
                        let bounds = self.large_of(root).bounds(store, &range);
                        OwnRange::Keys(bounds.unwrap_or_default())
                    }
                    (Some(held @ Held::Whole(_)), _) => {
                        let some = (span, Direction::Ascending);
                        OwnRange::Members(some_of(self, store, held, some))
                    }
                    (Some(Held::Parts(root)), _) => {
                        let tree = &self.large_of(root).tree;
                        let key = |at| tree.select(&store.owner, at).map(|(key, _)| key);
                        OwnRange::Keys([key(span.from), key(span.to)])
                    }
                    (None, _) => OwnRange::Members(Vec::new()),
                };
                (Removing::Range { range, left: span.count(), is_new: true }, of)
            }
            _ => return Err(Status::Malformed),
        };
        Ok(LongRead::new(Kind::SORTED_SET, Box::new(Removal { what, of })))
    }

    /// The next piece.
    pub(super) fn remove_piece<J: Journal>(
        &mut self,
        store: &mut Store<J>,
        on: On<'_>,
        read: &mut LongRead,
    ) -> Result<ChangeStep, Status> {
        let held = Self::find(store, on)?;
        let taken = read.taken;
        let ended = Ok(ChangeStep::Ended(taken.elements as i64));
        let Some(held) = held else { return ended };
        let removal = read.state.downcast_mut::<Removal>().ok_or(Status::Malformed)?;
        let root = large_root(held);
        if removal.of.is_some() && removal.of != root {
            return ended;
        }
        removal.of = root;
        match &mut removal.what {
            Removing::Popped { count, from_greatest } => {
                let (left, from_greatest) = (count.saturating_sub(taken.elements), *from_greatest);
                if left == 0 || taken.bytes >= POP_REPLY_BYTES {
                    return ended;
                }
                // Members that come to the key after it was empty are another set's.
                let left = left.min(self.length(store, held));
                *count = taken.elements + left;
                self.pop_piece(store, (on, held), (left, from_greatest), taken.elements == 0)
            }
            Removing::Range { left: 0, .. } => ended,
            Removing::Range { range, left, is_new } => {
                let is_all = std::mem::take(is_new) && *left == self.length(store, held);
                if is_all {
                    let command = encoded(on, &Command::Del { key: on.key });
                    return Ok(ChangeStep::Change { command, number: *left as i64 });
                }
                let most = (*left).min(SORTED_TURN_CHANGES as u64);
                let list = self.some_of_range(store, held, range, most);
                *left -= (Scored::in_list(&list).count() as u64).max(1).min(*left);
                let mut names = Vec::new();
                Scored::in_list(&list).for_each(|(_, member)| Items::push(&mut names, member));
                if names.is_empty() {
                    return ended;
                }
                let members = Items::parse(&names).expect("just made");
                let request = SortedCommand::Remove { members }.request();
                Ok(ChangeStep::Take(encoded(on, &Command::Of { key: on.key, request })))
            }
        }
    }

    /// A piece of what is popped.
    fn pop_piece<J: Journal>(
        &mut self,
        store: &Store<J>,
        (on, held): (On<'_>, Held),
        (left, from_greatest): (u64, bool),
        is_first: bool,
    ) -> Result<ChangeStep, Status> {
        if let Held::Parts(root) = held
            && is_first
            && left >= self.length(store, held)
        {
            let bytes = store.parts.of(root.slot.slot).bytes();
            let most = store.owner.region_bytes() as u64 / KEPT_PARTS_SHARE / 2;
            if bytes <= most.min(POP_REPLY_BYTES as u64) {
                let end = self.end(store, held, (left, from_greatest));
                let ranging = self.begin_large(store, root.slot.slot, end);
                let state = Box::new(Reading { ranging, is_one: true });
                let command = encoded(on, &Command::Del { key: on.key });
                return Ok(ChangeStep::Read { command, state });
            }
        }
        // Far fewer bytes than a step may give.
        let count = left.min(SORTED_TURN_CHANGES as u64);
        let request = SortedCommand::Pop { count, from_greatest }.request();
        Ok(ChangeStep::Take(encoded(on, &Command::Of { key: on.key, request })))
    }

    /// Some members of a range.
    fn some_of_range<J: Journal>(
        &self,
        store: &Store<J>,
        held: Held,
        range: &OwnRange,
        most: u64,
    ) -> Vec<u8> {
        let Held::Parts(root) = held else {
            let OwnRange::Members(list) = range else { return Vec::new() };
            return list.clone();
        };
        let (large, mut list) = (self.large_of(root), Vec::new());
        let (from, to) = match range {
            OwnRange::Members(_) => return list,
            OwnRange::Keys([from, to]) => (
                from.as_deref().map_or(Bound::Unbounded, Bound::Included),
                to.as_deref().map_or(Bound::Unbounded, Bound::Excluded),
            ),
        };
        let range = Range { from, to, direction: Direction::Ascending, limit: most as usize };
        large.tree.range(&store.owner, range, |key, _| {
            large.with_member(store, key, |score, member| Scored::push(&mut list, score, member));
        });
        list
    }
}
