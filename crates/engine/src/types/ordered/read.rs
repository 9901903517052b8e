//! Reads: of one key, and of many in turns.

use super::entry::{LongValues, field_of, native};
use super::trees::OrderedTrees;
use crate::store::Store;
use crate::types::content::Content;
use crate::types::object::{Turn, resume};
use crate::types::tree_range::{OwnBound, OwnFrom, range_some};
use remora_arena::{Journal, Slot};
use remora_index::btree::{Direction, Range};
use remora_layout::btree::{INTEGER_BYTES, KeyForm, LEVEL_INFO_WORDS, OrderedInfo, ValueKind};
use remora_layout::limits::{MAX_ORDERED_KEY_BYTES, RANGE_TURN_BYTES, RANGE_TURN_KEYS};
use remora_layout::packed::Field;
use remora_protocol::message::Status;
use remora_protocol::ordered::{OrderedCommand, OrderedRange};
use remora_protocol::{Items, Reply};
use std::ops::Bound;
use zerocopy::IntoBytes;

/// A range that is read in turns.
pub(super) struct Ranging {
    /// `None`: there is no such key.
    root: Option<Slot>,
    from: OwnBound,
    to: OwnBound,
    direction: Direction,
    left: u64,
    found: i64,
}

/// The key at which a range begins that is read in this direction. Without a bound it is one at the
/// end of the tree.
fn first_key<'k>(
    keys: KeyForm,
    (from, to, direction): (&'k OwnBound, &'k OwnBound, Direction),
) -> &'k [u8] {
    const FIRST: &[u8] = &[0; INTEGER_BYTES];
    const LAST: &[u8] = &[u8::MAX; MAX_ORDERED_KEY_BYTES];
    let (bound, end) = match direction {
        Direction::Ascending => (from, FIRST),
        Direction::Descending => (to, LAST),
    };
    match (bound, keys) {
        (Bound::Included(key) | Bound::Excluded(key), _) => key,
        (Bound::Unbounded, KeyForm::Integers) => &end[..INTEGER_BYTES],
        (Bound::Unbounded, KeyForm::Bytes) => end,
    }
}

fn own(keys: KeyForm, bound: Bound<&[u8]>) -> Result<OwnBound, Status> {
    let mut integer = [0; INTEGER_BYTES];
    Ok(match bound {
        Bound::Unbounded => Bound::Unbounded,
        Bound::Included(key) => Bound::Included(native(keys, key, &mut integer)?.to_vec()),
        Bound::Excluded(key) => Bound::Excluded(native(keys, key, &mut integer)?.to_vec()),
    })
}

impl OrderedTrees {
    /// A look at a key that is not there.
    pub(super) fn look_at_nothing(command: OrderedCommand<'_>) -> Reply<'static> {
        match command {
            OrderedCommand::Count { .. } => Reply::number(0),
            _ => Reply::status(Status::NotFound),
        }
    }

    /// A look that takes one step.
    pub(super) fn look<'s, J: Journal>(
        &'s mut self,
        store: &'s Store<J>,
        root: u32,
        command: OrderedCommand<'_>,
    ) -> Reply<'s> {
        let looked = match command {
            OrderedCommand::Get { key } => self.get(store, root, key),
            OrderedCommand::Rank { key } => self.rank(store, root, key).map(Reply::number),
            OrderedCommand::Count { range } => {
                self.count_keys(store, root, range).map(Reply::number)
            }
            OrderedCommand::Select { rank } => self.select(store, root, rank),
            OrderedCommand::Info => Ok(self.info(root)),
            OrderedCommand::Levels => Ok(self.levels(store, root)),
            OrderedCommand::Nodes { level, limit } => Ok(self.nodes(store, root, (level, limit))),
            OrderedCommand::Hold(_)
            | OrderedCommand::Release { .. }
            | OrderedCommand::Create(_)
            | OrderedCommand::Set { .. }
            | OrderedCommand::Delete { .. }
            | OrderedCommand::Range { .. } => unreachable!("executed before"),
        };
        looked.unwrap_or_else(Reply::status)
    }

    fn get<'s, J: Journal>(
        &mut self,
        store: &'s Store<J>,
        root: u32,
        text: &[u8],
    ) -> Result<Reply<'s>, Status> {
        let mut integer = [0; INTEGER_BYTES];
        let key = native(self.named(root).keys_are(), text, &mut integer)?;
        self.trees.note_lookup(root, &store.owner, key);
        let field =
            field_of(store, self.named(root).tree.get(&store.owner, key).ok_or(Status::NotFound)?);
        Ok(Reply { value: Some(field.value), ..Reply::number(field.is_link.into()) })
    }

    fn rank<J: Journal>(&self, store: &Store<J>, root: u32, text: &[u8]) -> Result<i64, Status> {
        let (named, mut integer) = (self.named(root), [0; INTEGER_BYTES]);
        let key = native(named.keys_are(), text, &mut integer)?;
        named.tree.get(&store.owner, key).ok_or(Status::NotFound)?;
        Ok(named.tree.rank(&store.owner, key) as i64)
    }

    fn count_keys<J: Journal>(
        &mut self,
        store: &Store<J>,
        root: u32,
        range: OrderedRange<'_>,
    ) -> Result<i64, Status> {
        let keys = self.named(root).keys_are();
        let (from, to) = (own(keys, range.from)?, own(keys, range.to)?);
        let first = first_key(keys, (&from, &to, Direction::Ascending));
        self.trees.note_lookup(root, &store.owner, first);
        let range = Range {
            from: from.as_ref().map(Vec::as_slice),
            to: to.as_ref().map(Vec::as_slice),
            ..Range::ALL
        };
        Ok(self.named(root).tree.count(&store.owner, range) as i64)
    }

    fn select<J: Journal>(
        &mut self,
        store: &Store<J>,
        root: u32,
        rank: i64,
    ) -> Result<Reply<'_>, Status> {
        let named = self.trees.named(root);
        let from_end = named.tree.keys().checked_sub(rank.unsigned_abs());
        let rank = if rank < 0 { from_end } else { Some(rank as u64) };
        let selected = rank.and_then(|rank| named.tree.select(&store.owner, rank));
        let (key, value) = selected.ok_or(Status::NotFound)?;
        let scratch = &mut self.scratch;
        scratch.clear();
        named.keys_are().with_text(&key, |key| Items::push(scratch, key));
        Items::push_field(scratch, field_of(store, value));
        Ok(Reply { value: Some(scratch), ..Reply::number(2) })
    }

    fn info(&mut self, root: u32) -> Reply<'_> {
        let named = self.trees.named(root);
        let (tree, options) = (&named.tree, named.tree.options());
        let LongValues { values, bytes } = named.long;
        let info = OrderedInfo {
            at: tree.at(),
            keys_are: named.keys_are(),
            fan_out: options.fan_out as u64,
            key_bytes: options.key_bytes as u64,
            value_bytes: options.value_bytes as u64,
            node_bytes: options.node_bytes as u64,
            height: tree.header().height.into(),
            keys: tree.keys(),
            nodes: tree.nodes(),
            bytes: tree.bytes(),
            long_values: values,
            long_bytes: bytes,
        };
        self.scratch.clear();
        self.scratch.extend_from_slice(info.to_words().as_bytes());
        Reply { value: Some(&self.scratch), ..Reply::status(Status::Ok) }
    }

    fn levels<J: Journal>(&mut self, store: &Store<J>, root: u32) -> Reply<'_> {
        let levels = self.named(root).tree.levels(&store.owner);
        self.scratch.clear();
        for level in &levels {
            let words: [u64; LEVEL_INFO_WORDS] = level.to_words();
            self.scratch.extend_from_slice(words.as_bytes());
        }
        Reply { value: Some(&self.scratch), ..Reply::number(levels.len() as i64) }
    }

    pub(super) fn begin_range<J: Journal>(
        &mut self,
        store: &Store<J>,
        root: Option<Slot>,
        command: OrderedCommand<'_>,
    ) -> Result<Ranging, Status> {
        let OrderedCommand::Range { range, is_reverse, limit } = command else {
            return Err(Status::Malformed);
        };
        let keys = root.map_or(KeyForm::Bytes, |root| self.named(root.slot).keys_are());
        let direction = if is_reverse { Direction::Descending } else { Direction::Ascending };
        let (from, to) = (own(keys, range.from)?, own(keys, range.to)?);
        if let Some(root) = root.filter(|root| self.trees.get(root.slot).is_some()) {
            let first = first_key(keys, (&from, &to, direction));
            self.trees.note_lookup(root.slot, &store.owner, first);
        }
        Ok(Ranging { root, from, to, direction, left: limit, found: 0 })
    }

    /// Reads some more of a range: each turn the tree as it is then, behind the last key that was given.
    pub(super) fn range_turn<J: Journal>(
        &self,
        store: &Store<J>,
        reading: &mut Ranging,
        found: &mut Vec<u8>,
    ) -> Result<Turn, Status> {
        let turn =
            |ended, found| Turn { ended, number: found, gives_value: true, ..Turn::default() };
        let Some(root) = reading.root else { return Ok(turn(true, 0)) };
        if !store.is_live(root) {
            return Err(Status::NotFound);
        }
        let named = self.named(root.slot);
        let most = RANGE_TURN_KEYS.min(usize::try_from(reading.left).unwrap_or(usize::MAX));
        let Ranging { from, to, direction, .. } = reading;
        let before = found.len();
        let some = range_some(store, &named.tree, (from, to, *direction), most, |key, value| {
            let at = found.len();
            named.keys_are().with_text(key, |key| Items::push(found, key));
            Items::push_field(found, field_of(store, value));
            found.len() - at
        });
        reading.left -= some as u64;
        reading.found += 2 * some as i64;
        let is_full = found.len() - before >= RANGE_TURN_BYTES;
        let ended = reading.left == 0 || (some < most && !is_full);
        Ok(turn(ended, reading.found))
    }

    /// Adds some entries of a tree to the sum of its content.
    pub(super) fn digest_tree<J: Journal>(
        &self,
        store: &Store<J>,
        root: u32,
        content: &mut Content,
    ) -> bool {
        let named = self.named(root);
        if content.at.is_none() {
            let mut settings = Vec::new();
            named.settings.write(&mut settings);
            content.add(&[b"settings", &settings]);
        }
        let mut from: Box<OwnFrom> = resume(&mut content.at);
        let bounds = (&mut from.0, &mut Bound::Unbounded, Direction::Ascending);
        let mut bytes = 0;
        let some = range_some(store, &named.tree, bounds, RANGE_TURN_KEYS, |key, value| {
            let Field { value, is_link } = field_of(store, value);
            let kind = if is_link { ValueKind::Link } else { ValueKind::Bytes };
            content.add(&[key, &[kind as u8], value]);
            bytes += key.len() + value.len();
            key.len() + value.len()
        });
        content.at = Some(from);
        some < RANGE_TURN_KEYS && bytes < RANGE_TURN_BYTES
    }
}
