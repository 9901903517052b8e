//! The reader's side of ranges: the walk of many keys in order (Fat-B+Tree IV-C, F34, F35).
//!
//! It keeps the part of the range that it has not covered yet. Ascending, this part begins at
//! `next`; a leaf whose fences hold `next` has all keys from there to its high fence, which is the
//! new `next`. Descending, the part ends at `end`, and the leaf below it moves `end` to its low
//! fence. So each key is covered once, by one leaf, also over restarts: these keep what is gathered.
//!
//! ```text
//!  inner nodes   one at a time: from the root to level 1, then along the right links of level 1
//!  children      leaves that a node of level 1 named, not wanted yet
//!  line          leaves that are wanted, in flight or here, in the order of keys
//!  gathered      entries of leaves that were first in line
//! ```
//! Ascending, the line has up to `parallel` leaves, and the next node of level 1 comes beside the
//! last of them. So a range takes about as many round trips as the tree is high, and one for each
//! `parallel` leaves; more if `parallel` is beyond the children of one node. With a `parallel` of 1 the
//! leaves after the first node's follow their right links (F35), and no other inner node is read. A leaf that is first in
//! line and begins behind `next` follows leaves that were divided off later than their parent was
//! read: these come first, by the right link of the leaf before. Descending, there is one leaf at a
//! time.
//!
//! A deep node in line makes place for its children as soon as it is here: they are in line as if
//! a node of level 1 had named them. Of the line no more are fetched than the line is wide.
//!
//! Invariants: those of [`super::Get`] for each node. Only leaves in line wait with their bytes:
//! `parallel`, and one that a right link named.

use super::gathered::Gathered;
use super::get::{AskReason, Want};
use super::range::{Direction, Range, index_from};
use crate::round::Round;
use remora_layout::arena_header::{durable_of, word};
use remora_layout::btree::{Expected, OrderedHeader, OrderedNode, Value};
use remora_layout::limits::{
    MAX_ORDERED_KEY_BYTES, WALK_DEPTH, WALK_RESTARTS, WALK_RETRIES, WALK_RIGHT_LINKS, WORD_BYTES,
};
use remora_layout::node::{Home, NodeRef, NotANode, Proof};
use remora_walk::{Step, Walk, What};
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::ops::Bound;

/// Where the bytes of a leaf are.
enum Fetch {
    Wanted,
    InFlight,
    Here(Vec<u8>),
}

/// A leaf in line.
struct Slot {
    at: NodeRef,
    /// A right link named it, and no parent.
    is_link: bool,
    /// Deep nodes that led to it.
    depth: u32,
    fetch: Fetch,
}

impl Slot {
    const fn wanted(at: NodeRef, is_link: bool) -> Self {
        Self { at, is_link, depth: 0, fetch: Fetch::Wanted }
    }

    const fn is_wanted(&self) -> bool {
        matches!(self.fetch, Fetch::Wanted)
    }
}

/// The inner node that is wanted or in flight.
struct Inner {
    at: NodeRef,
    level: u8,
    is_in_flight: bool,
}

/// The walk of a range.
pub struct Scan {
    home: Home,
    /// The place of the tree's header.
    tree: NodeRef,
    header: OrderedHeader,
    region_bytes: u64,
    direction: Direction,
    limit: usize,
    parallel: usize,
    /// The whole range: its `next` and its `end`.
    whole: (Vec<u8>, Option<Vec<u8>>),
    /// The header's `moves` when the walk began.
    moves: u64,
    /// A leaf has been covered since then.
    has_covered: bool,
    /// What is gathered does not fit what was found behind it.
    begins_anew: bool,
    /// The part not covered yet, from here, inclusive.
    next: Vec<u8>,
    /// To here, exclusive; `None`: to the last key.
    end: Option<Vec<u8>>,
    /// The last leaf is covered.
    is_at_end: bool,
    inner: Option<Inner>,
    /// Ascending: the smallest key whose leaf no parent has named.
    named_to: Vec<u8>,
    /// The node of level 1 that begins there.
    neighbour: Option<NodeRef>,
    /// Each with the deep nodes that led to it.
    children: VecDeque<(NodeRef, u32)>,
    line: VecDeque<Slot>,
    /// Ascending: the leaf that follows the one which left the line last.
    link: Option<NodeRef>,
    gathered: Gathered,
    durable: u64,
    wants_durable: bool,
    round: u32,
    right_links: u32,
    /// Right links since the last restart.
    detours: u32,
    /// Inner nodes in a row that led to no leaf.
    depth: u32,
    /// Leaves since the last restart; more do not fit into the region.
    leaves: u64,
    nodes: u64,
    retries: u32,
}

/// The smallest key behind this one.
fn successor(key: &[u8]) -> Vec<u8> {
    [key, &[0]].concat()
}

/// The place of the keys shortly before `end` in relation to a node.
fn place_before(node: &OrderedNode<'_>, end: Option<&[u8]>) -> Ordering {
    match (end, node.high()) {
        (Some(end), _) if end <= node.low() => Ordering::Less,
        (Some(end), Some(high)) if end > high => Ordering::Greater,
        (None, Some(_)) => Ordering::Greater,
        _ => Ordering::Equal,
    }
}

impl Scan {
    /// A walk over the tree whose header was just read at `tree`, in a region of so many bytes, with
    /// up to `parallel` leaves at a time.
    pub fn begin(
        range: Range<'_>,
        parallel: usize,
        home: Home,
        tree: NodeRef,
        header: OrderedHeader,
        region_bytes: u64,
    ) -> Self {
        let next = match range.from {
            Bound::Unbounded => Vec::new(),
            Bound::Included(key) => key.to_vec(),
            Bound::Excluded(key) => successor(key),
        };
        let end = match range.to {
            Bound::Unbounded => None,
            Bound::Included(key) => Some(successor(key)),
            Bound::Excluded(key) => Some(key.to_vec()),
        };
        let mut walk = Self {
            home,
            tree,
            header,
            region_bytes,
            direction: range.direction,
            limit: range.limit,
            parallel: parallel.max(1),
            whole: (next.clone(), end.clone()),
            moves: header.moves,
            has_covered: false,
            begins_anew: false,
            next,
            end,
            is_at_end: false,
            inner: None,
            named_to: Vec::new(),
            neighbour: None,
            children: VecDeque::new(),
            line: VecDeque::new(),
            link: None,
            gathered: Gathered::default(),
            durable: u64::MAX,
            wants_durable: false,
            round: 0,
            right_links: 0,
            detours: 0,
            depth: 0,
            leaves: 0,
            nodes: 0,
            retries: 0,
        };
        walk.start();
        walk
    }

    fn start(&mut self) {
        self.children.clear();
        self.line.clear();
        self.link = None;
        (self.right_links, self.detours, self.depth) = (0, 0, 0);
        (self.leaves, self.nodes) = (0, 0);
        self.descend();
    }

    /// Wants the root, on the way to the first leaf that is not covered.
    fn descend(&mut self) {
        self.named_to.clone_from(&self.next);
        self.neighbour = None;
        let (at, level) = (self.header.root, self.header.height - 1);
        match level {
            0 => self.line.push_back(Slot::wanted(at, false)),
            _ => self.inner = Some(Inner { at, level, is_in_flight: false }),
        }
    }

    /// Changes beyond this sequence must not be shown.
    pub fn set_durable(&mut self, sequence: u64) {
        self.durable = sequence;
    }

    /// Reads the durable sequence in the batch of the root. Call it before the walk wants anything.
    pub fn want_durable(&mut self) {
        self.wants_durable = true;
    }

    /// The durable sequence, as far as it is known.
    pub fn durable(&self) -> u64 {
        self.durable
    }

    /// The entries so far, in the order of the range. After the end of the walk they are all of it.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = (&[u8], Value<'_>)> {
        self.gathered.entries()
    }

    fn learn_durable(&mut self, bytes: &[u8]) {
        let word = bytes.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
        self.durable = self.durable.max(durable_of(word));
    }

    fn is_in_region(&self, at: NodeRef) -> bool {
        let end = (at.offset() + self.header.node_bytes as usize) as u64;
        at.slot != 0 && end <= self.region_bytes
    }

    fn is_finished(&self) -> bool {
        let is_covered = self.end.as_ref().is_some_and(|end| self.next >= *end);
        self.is_at_end || is_covered || self.gathered.len() >= self.limit
    }

    /// Leaves that the range still needs, if they are half full and its end is far.
    fn needed_leaves(&self) -> usize {
        let half = (self.header.fan_out as usize / 2).max(1);
        self.limit.saturating_sub(self.gathered.len()).div_ceil(half).max(1)
    }

    /// Leaves in line at a time.
    fn width(&self) -> usize {
        match self.direction {
            Direction::Ascending => self.parallel.min(self.needed_leaves()),
            Direction::Descending => 1,
        }
    }

    /// Whether one more right link may be followed.
    fn count_link(&mut self) -> bool {
        self.right_links += 1;
        self.detours += 1;
        self.right_links <= WALK_RIGHT_LINKS
    }

    /// Whether one more inner node may lead down.
    fn count_depth(&mut self) -> bool {
        self.depth += 1;
        self.depth <= WALK_DEPTH
    }

    fn want_inner(&mut self, at: Option<NodeRef>, level: u8) -> Step<(), AskReason> {
        match at.filter(|at| self.is_in_region(*at)) {
            Some(at) => {
                self.inner = Some(Inner { at, level, is_in_flight: false });
                Step::More
            }
            None => Step::Ask(AskReason::Broken),
        }
    }

    /// Wants a leaf before all others in line.
    fn want_first(&mut self, at: Option<NodeRef>) -> Step<(), AskReason> {
        if !self.count_link() {
            return Step::Ask(AskReason::TooManyRestarts);
        }
        match at.filter(|at| self.is_in_region(*at)) {
            Some(at) => {
                self.line.push_front(Slot::wanted(at, true));
                Step::More
            }
            None => Step::Ask(AskReason::Broken),
        }
    }

    fn take_inner(&mut self, node: &OrderedNode<'_>) -> Step<(), AskReason> {
        self.inner = None;
        let place = match self.direction {
            Direction::Ascending => node.place_of(&self.named_to),
            Direction::Descending => place_before(node, self.end.as_deref()),
        };
        match place {
            Ordering::Less => return Step::Restart,
            Ordering::Greater if !self.count_link() => {
                return Step::Ask(AskReason::TooManyRestarts);
            }
            Ordering::Greater => return self.want_inner(node.right(), node.level()),
            Ordering::Equal => {}
        }
        let behind = self.index_of_end(node);
        if !self.count_depth() {
            return Step::Ask(AskReason::TooDeep);
        }
        if node.child_level() > 0 {
            let index = match self.direction {
                Direction::Ascending => node.child_index(&self.named_to),
                Direction::Descending => behind.saturating_sub(1),
            };
            return self.want_inner(node.child(index), node.child_level());
        }
        if self.name_children(node, behind) { self.advance() } else { Step::Ask(AskReason::Broken) }
    }

    /// The index of the first entry that is behind the range.
    fn index_of_end(&self, node: &OrderedNode<'_>) -> usize {
        match &self.end {
            Some(end) => index_from(node, Bound::Included(end)),
            None => node.entries(),
        }
    }

    /// The indices of the children, of a node above leaves, with keys that are not covered.
    fn children_in_range(&self, node: &OrderedNode<'_>) -> std::ops::Range<usize> {
        let first = match node.place_of(&self.next) {
            Ordering::Less => 0,
            Ordering::Equal => node.child_index(&self.next),
            Ordering::Greater => node.entries(),
        };
        first..self.index_of_end(node)
    }

    /// Takes the children before the index `behind`, of a node of level 1. False if there is none.
    fn name_children(&mut self, node: &OrderedNode<'_>, behind: usize) -> bool {
        let first = match self.direction {
            Direction::Ascending => node.child_index(&self.named_to),
            Direction::Descending if node.place_of(&self.next).is_lt() => 0,
            Direction::Descending => node.child_index(&self.next),
        };
        if first >= behind {
            return false;
        }
        let named = (first..behind).filter_map(|index| node.child(index));
        self.children.extend(named.map(|at| (at, 0)));
        self.neighbour = None;
        self.depth = 0;
        let is_before_end = |high: &&[u8]| self.end.as_ref().is_none_or(|end| *high < &end[..]);
        if let Some(high) = node.high().filter(is_before_end)
            && self.direction == Direction::Ascending
        {
            self.named_to = high.to_vec();
            self.neighbour = node.right();
        }
        true
    }

    fn take_leaf(
        &mut self,
        at: NodeRef,
        node: &OrderedNode<'_>,
        bytes: &[u8],
    ) -> Step<(), AskReason> {
        self.leaves += 1;
        if self.leaves > self.region_bytes / u64::from(self.header.node_bytes) {
            return Step::Ask(AskReason::Broken);
        }
        let is_it = |slot: &Slot| slot.at == at && matches!(slot.fetch, Fetch::InFlight);
        let Some(index) = self.line.iter().position(is_it) else { return self.advance() };
        let place = match self.direction {
            Direction::Ascending => node.place_of(&self.next),
            Direction::Descending => place_before(node, self.end.as_deref()),
        };
        // A deep node whose keys are covered leads on by its right link, as a leaf does.
        let is_ahead = place.is_lt() && self.direction == Direction::Ascending;
        if node.is_deep() && (place.is_eq() || is_ahead) {
            let children = self.children_in_range(node);
            let children: Vec<_> = children.filter_map(|index| node.child(index)).collect();
            if !children.is_empty() {
                return self.replace_deep(index, children);
            }
        }
        self.line[index].fetch = Fetch::Here(bytes[..node.used_bytes()].to_vec());
        self.advance()
    }

    /// The children of a deep node take its place in line.
    fn replace_deep(&mut self, index: usize, children: Vec<NodeRef>) -> Step<(), AskReason> {
        let Some(slot) = self.line.remove(index) else { return Step::More };
        let depth = slot.depth + 1;
        if depth > WALK_DEPTH {
            return Step::Ask(AskReason::TooDeep);
        }
        if !children.iter().all(|at| self.is_in_region(*at)) {
            return Step::Ask(AskReason::Broken);
        }
        match self.direction {
            Direction::Ascending => {
                let behind = self.line.split_off(index);
                let slots = children.into_iter().enumerate().map(|(index, at)| {
                    let is_link = slot.is_link && index == 0;
                    Slot { depth, ..Slot::wanted(at, is_link) }
                });
                self.line.extend(slots);
                self.line.extend(behind);
            }
            Direction::Descending => {
                self.children.extend(children.into_iter().map(|at| (at, depth)));
            }
        }
        self.advance()
    }

    /// Takes the leaves that are first in line and here; then wants more.
    fn advance(&mut self) -> Step<(), AskReason> {
        // Bounded: each turn takes a leaf out of the line, or ends.
        while let Some(Slot { fetch: Fetch::Here(_), .. }) = self.line.front()
            && let Some(slot) = self.line.pop_front()
        {
            let step = self.take_first(slot);
            if step != Step::More {
                return step;
            }
            if self.is_finished() {
                return Step::Found(());
            }
        }
        self.refill()
    }

    /// Takes the leaf that was first in line.
    fn take_first(&mut self, slot: Slot) -> Step<(), AskReason> {
        let Fetch::Here(bytes) = &slot.fetch else { return Step::More };
        let Some(node) = OrderedNode::parse(bytes) else { return Step::Ask(AskReason::Broken) };
        let is_descending = self.direction == Direction::Descending;
        let place = match self.direction {
            Direction::Ascending => node.place_of(&self.next),
            Direction::Descending => place_before(&node, self.end.as_deref()),
        };
        match place {
            Ordering::Equal if !node.is_leaf() => Step::Ask(AskReason::Broken),
            Ordering::Equal => {
                if is_descending || !slot.is_link {
                    self.right_links = 0;
                }
                self.cover(&node)
            }
            Ordering::Greater if is_descending => self.want_first(node.right()),
            // It was covered already, or it was divided and the next one in line is too far. The
            // link of a leaf that ended at `next` is the better one.
            Ordering::Greater => {
                self.link = self.link.or(node.right());
                Step::More
            }
            // Leaves came between after the parent was read.
            Ordering::Less => match self.link.take() {
                Some(link) if !slot.is_link => {
                    self.line.push_front(slot);
                    self.want_first(Some(link))
                }
                _ => Step::Restart,
            },
        }
    }

    /// Takes the entries of a leaf that are next. If one has moved out of it or into it since the walk
    /// began, what was gathered before may miss it, or have it too.
    fn cover(&mut self, node: &OrderedNode<'_>) -> Step<(), AskReason> {
        let is_alone = !std::mem::replace(&mut self.has_covered, true);
        let step = self.gather(node);
        // One leaf has all its entries as of one moment.
        let is_whole = is_alone && self.is_finished();
        if node.move_mark().moved_at > self.moves && !is_whole {
            self.begins_anew = true;
            return Step::Restart;
        }
        step
    }

    /// Forgets what is gathered, and begins under another header.
    fn begin_anew(&mut self) {
        (self.begins_anew, self.has_covered, self.is_at_end) = (false, false, false);
        (self.next, self.end) = self.whole.clone();
        self.gathered = Gathered::default();
        self.moves = self.header.moves;
    }

    /// Copies the entries of a leaf that are next, and moves the end of what is covered.
    fn gather(&mut self, node: &OrderedNode<'_>) -> Step<(), AskReason> {
        let from = index_from(node, Bound::Included(&self.next));
        let to = self.index_of_end(node);
        let entries = to.saturating_sub(from).min(self.limit - self.gathered.len());
        let mut key = [0; MAX_ORDERED_KEY_BYTES];
        for number in 0..entries {
            let index = match self.direction {
                Direction::Ascending => from + number,
                Direction::Descending => to - 1 - number,
            };
            let (Some(key), Some(value)) = (node.key(index, &mut key), node.value(index)) else {
                return Step::Ask(AskReason::Broken);
            };
            self.gathered.push(key, value);
        }
        match (self.direction, node.high()) {
            (Direction::Ascending, Some(high)) => self.next = high.to_vec(),
            (Direction::Ascending, None) => self.is_at_end = true,
            (Direction::Descending, _) => self.end = Some(node.low().to_vec()),
        }
        self.link = node.right();
        Step::More
    }

    /// Brings more leaves into line, and the node that names more.
    fn refill(&mut self) -> Step<(), AskReason> {
        while self.line.len() < self.width()
            && let Some((at, depth)) = match self.direction {
                Direction::Ascending => self.children.pop_front(),
                Direction::Descending => self.children.pop_back(),
            }
        {
            if !self.is_in_region(at) {
                return Step::Ask(AskReason::Broken);
            }
            self.line.push_back(Slot { depth, ..Slot::wanted(at, false) });
        }
        let named = self.line.len() + self.children.len();
        // One leaf at a time, their links lead to the next ones for nothing.
        if self.inner.is_none()
            && self.parallel > 1
            && named < self.needed_leaves().min(2 * self.parallel)
            && let Some(neighbour) = self.neighbour.take()
        {
            return self.want_inner(Some(neighbour), 1);
        }
        if !self.line.is_empty() || self.inner.is_some() {
            return Step::More;
        }
        match self.direction {
            Direction::Ascending => match self.link.take().filter(|at| self.is_in_region(*at)) {
                Some(link) => {
                    self.detours += u32::from(self.parallel > 1);
                    self.line.push_back(Slot::wanted(link, false));
                    Step::More
                }
                None => Step::Ask(AskReason::Broken),
            },
            Direction::Descending => {
                self.descend();
                Step::More
            }
        }
    }

    /// Fetches a node again that was being changed.
    fn fetch_again(&mut self, at: NodeRef, level: u8) -> Step<(), AskReason> {
        self.retries += 1;
        if self.retries > WALK_RETRIES {
            return Step::Ask(AskReason::TooManyRetries);
        }
        if level > 0 {
            return self.want_inner(Some(at), level);
        }
        let is_it = |slot: &&mut Slot| slot.at == at && matches!(slot.fetch, Fetch::InFlight);
        if let Some(slot) = self.line.iter_mut().find(is_it) {
            slot.fetch = Fetch::Wanted;
        }
        Step::More
    }

    fn want(&self, at: NodeRef, level: u8) -> Want {
        let bytes = self.header.node_bytes as usize;
        let what = What::Node { at, level };
        Want { offset: at.offset() as u64, bytes, what, tag: Round(self.round) }
    }
}

impl Walk for Scan {
    /// Its entries are in [`Scan::entries`].
    type Found = ();
    type Reason = AskReason;
    type Tag = Round;
    type Head = OrderedHeader;

    const OUT_OF_REGION: AskReason = AskReason::Broken;
    const NEEDS_INNER_NODES: bool = false;

    fn next_want(&mut self) -> Option<Want> {
        if std::mem::take(&mut self.wants_durable) {
            let offset = (word::DURABLE * WORD_BYTES) as u64;
            let tag = Round(self.round);
            return Some(Want { offset, bytes: WORD_BYTES, what: What::Beside, tag });
        }
        // The first one, and others while those that were fetched are no more than the line is wide.
        let fetched = self.line.iter().filter(|slot| !slot.is_wanted()).count();
        let may_be = if fetched < self.width() { self.line.len() } else { 1 };
        if let Some(slot) = self.line.iter_mut().take(may_be).find(|slot| slot.is_wanted()) {
            slot.fetch = Fetch::InFlight;
            let at = slot.at;
            return Some(self.want(at, 0));
        }
        let inner = self.inner.as_mut().filter(|inner| !inner.is_in_flight)?;
        inner.is_in_flight = true;
        let (at, level) = (inner.at, inner.level);
        Some(self.want(at, level))
    }

    fn feed(&mut self, want: Want, bytes: &[u8], proof: Proof) -> Step<(), AskReason> {
        let What::Node { at, level } = want.what else {
            self.learn_durable(bytes);
            return Step::More;
        };
        if want.tag != Round(self.round) {
            return Step::More;
        }
        let expected = Expected { at: Some(at), tree: self.tree, level };
        match OrderedNode::verify(bytes, self.home, expected, proof) {
            // A change marks the leaves that it divides or joins: what leads to them need not be durable.
            Ok(node) if node.is_leaf() && node.changed_at() > self.durable => {
                Step::Ask(AskReason::Pending)
            }
            Ok(node) => {
                self.nodes += 1;
                // A range of no key is known to be empty before any leaf is.
                match level {
                    _ if self.is_finished() => Step::Found(()),
                    0 => self.take_leaf(at, &node, bytes),
                    _ => self.take_inner(&node),
                }
            }
            Err(NotANode::Dead) => Step::Restart,
            Err(NotANode::Torn) => self.fetch_again(at, level),
        }
    }

    /// It goes on where it was, and keeps what it has gathered, unless an entry has moved.
    fn restart(&mut self, header: &OrderedHeader) -> Result<(), AskReason> {
        if self.round >= WALK_RESTARTS {
            return Err(AskReason::TooManyRestarts);
        }
        self.round += 1;
        self.header = *header;
        self.inner = None;
        if self.begins_anew {
            self.begin_anew();
        }
        self.start();
        Ok(())
    }

    fn retries(&self) -> u32 {
        self.retries + self.round
    }

    fn results(&self) -> usize {
        self.gathered.len()
    }

    fn believed(&self) -> u64 {
        self.nodes
    }

    fn detours(&self) -> u32 {
        self.detours
    }

    fn bytes_in_use(&self, want: &Want, shape: u64) -> usize {
        // The used bytes, if it is a shape; the checks are of these, and need the header's.
        ((shape >> 32) as usize).min(want.bytes)
    }
}
