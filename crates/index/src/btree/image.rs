//! A node's content, as a change works on it.

use remora_layout::btree::{
    Content, Item, KeyForm, MoveMark, OrderedNode, Payload, Value, ValueKind, common_bytes,
    encoded_bytes, item_bytes, prefix_bytes, room_bytes,
};
use remora_layout::limits::MAX_ORDERED_KEY_BYTES;
use remora_layout::node::NodeRef;

/// What the nodes of a tree have room for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub keys: KeyForm,
    pub fan_out: usize,
    pub node_bytes: usize,
}

/// What an entry has beside its key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Owned {
    /// A child, and the keys below it.
    Child(NodeRef, u64),
    /// A value.
    Value(ValueKind, Vec<u8>),
}

/// An entry of an image.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Entry {
    pub key: Vec<u8>,
    pub payload: Owned,
}

impl Entry {
    /// An entry of a leaf.
    pub fn of_value(key: &[u8], value: Value<'_>) -> Self {
        Self { key: key.to_vec(), payload: Owned::Value(value.kind, value.bytes.to_vec()) }
    }

    fn item(&self) -> Item<'_> {
        let payload = match &self.payload {
            Owned::Child(at, _) => Payload::Child(*at),
            Owned::Value(kind, bytes) => Payload::Value(Value { kind: *kind, bytes }),
        };
        Item { key: &self.key, payload }
    }

    /// Keys that it stands for.
    fn count(&self) -> u64 {
        match self.payload {
            Owned::Child(_, count) => count,
            Owned::Value(..) => 1,
        }
    }
}

/// How many of two or more items, by the bytes of each, `share` of 100 of the bytes hold; not all,
/// and one at least.
pub(super) fn items_at_share(
    items: impl ExactSizeIterator<Item = usize> + Clone,
    share: usize,
) -> usize {
    let (count, whole) = (items.len(), items.clone().sum::<usize>());
    let mut before = 0;
    let first_behind = items.into_iter().position(|bytes| {
        before += bytes;
        before * 100 > whole * share
    });
    first_behind.unwrap_or(0).clamp(1, count - 1)
}

/// The fence between two leaves: the shortest key that tells the last key of the first from the
/// first of the second.
pub(super) fn separator<'k>(keys: KeyForm, last: &[u8], next: &'k [u8]) -> &'k [u8] {
    match keys {
        KeyForm::Integers => next,
        KeyForm::Bytes => &next[..common_bytes(last, next) + 1],
    }
}

/// The content of a node.
#[derive(Clone, Default, Debug)]
pub(super) struct Image {
    pub level: u8,
    pub is_deep: bool,
    pub low: Vec<u8>,
    pub high: Option<Vec<u8>>,
    pub right: NodeRef,
    /// Of a leaf: what has moved out of it or into it.
    pub mark: MoveMark,
    pub entries: Vec<Entry>,
}

impl Image {
    /// The image of a node of the owner; `count` gives the keys below a child.
    pub fn of(node: &OrderedNode<'_>, count: impl Fn(usize) -> u64) -> Self {
        let mut key = [0; MAX_ORDERED_KEY_BYTES];
        let entries = (0..node.entries()).map(|index| {
            let payload = if node.is_leaf() {
                let value = node.value(index).expect("the owner's own");
                Owned::Value(value.kind, value.bytes.to_vec())
            } else {
                Owned::Child(node.child(index).expect("the owner's own"), count(index))
            };
            let key = node.key(index, &mut key).expect("the owner's own").to_vec();
            Entry { key, payload }
        });
        Self {
            level: node.level(),
            is_deep: node.is_deep(),
            low: node.low().to_vec(),
            high: node.high().map(<[u8]>::to_vec),
            right: node.right().unwrap_or_default(),
            mark: node.move_mark(),
            entries: entries.collect(),
        }
    }

    /// Whether it has values.
    pub fn is_leaf(&self) -> bool {
        self.level == 0 && !self.is_deep
    }

    /// The child that only one entry leads to.
    pub fn only_child(&self) -> Option<NodeRef> {
        match self.entries[..] {
            [Entry { payload: Owned::Child(at, _), .. }] => Some(at),
            _ => None,
        }
    }

    /// The child before all others, of an inner node.
    pub fn first_child(&self) -> Option<NodeRef> {
        match self.entries.first()?.payload {
            Owned::Child(at, _) => Some(at),
            Owned::Value(..) => None,
        }
    }

    /// The child behind all others, of an inner node.
    pub fn last_child(&self) -> Option<NodeRef> {
        match self.entries.last()?.payload {
            Owned::Child(at, _) => Some(at),
            Owned::Value(..) => None,
        }
    }

    /// Keys below it, or in it.
    pub fn count(&self) -> u64 {
        self.entries.iter().map(Entry::count).sum()
    }

    /// Hands the content over in the form that is encoded.
    pub fn with_content<R>(&self, keys: KeyForm, each: impl FnOnce(&Content<'_>) -> R) -> R {
        let items: Vec<Item<'_>> = self.entries.iter().map(Entry::item).collect();
        each(&Content {
            level: self.level,
            is_deep: self.is_deep,
            keys,
            low: &self.low,
            high: self.high.as_deref(),
            right: self.right,
            items: &items,
        })
    }

    /// Bytes that its node uses.
    pub fn bytes(&self, keys: KeyForm) -> usize {
        self.with_content(keys, encoded_bytes)
    }

    /// Whether it fits a node.
    pub fn fits(&self, room: &Room) -> bool {
        let bytes = room_bytes(room.node_bytes, self.is_leaf(), room.fan_out);
        self.entries.len() <= room.fan_out && self.bytes(room.keys) <= bytes
    }

    /// Its first entry and those behind it that `share` of 100 of its bytes hold; not all.
    fn index_at_share(&self, room: &Room, share: usize) -> usize {
        let prefix = prefix_bytes(room.keys, &self.low, self.high.as_deref());
        let bytes = |entry: &Entry| item_bytes(room.keys, prefix, &entry.item());
        items_at_share(self.entries.iter().map(bytes), share)
    }

    /// The fence between two neighbours in this image: in leaves the shortest key that tells them
    /// apart.
    fn separator(&self, room: &Room, index: usize) -> Vec<u8> {
        let next = &self.entries[index].key;
        match self.is_leaf() {
            true => separator(room.keys, &self.entries[index - 1].key, next).to_vec(),
            false => next.clone(),
        }
    }

    /// Divides it at an entry; `right` is the second node's place.
    pub fn divided_at(&self, room: &Room, index: usize, right: NodeRef) -> (Self, Self) {
        self.clone().into_divided_at(room, index, right)
    }

    /// The same, without a copy.
    pub fn into_divided_at(mut self, room: &Room, index: usize, right: NodeRef) -> (Self, Self) {
        let separator = self.separator(room, index);
        let behind = Self {
            low: separator.clone(),
            high: self.high.replace(separator),
            right: std::mem::replace(&mut self.right, right),
            entries: self.entries.split_off(index),
            ..self
        };
        (self, behind)
    }

    /// How many of its first entries, at most so many and not all, fit a node with others behind it. One
    /// does, by `least_node_bytes` of the layout.
    pub fn fitting(&self, room: &Room, most: usize) -> usize {
        let items: Vec<Item<'_>> = self.entries.iter().map(Entry::item).collect();
        let most_bytes = room_bytes(room.node_bytes, self.is_leaf(), room.fan_out);
        let fit = |index: usize| {
            let separator = self.separator(room, index);
            let first = Content {
                level: self.level,
                is_deep: self.is_deep,
                keys: room.keys,
                low: &self.low,
                high: Some(&separator),
                right: self.right,
                items: &items[..index],
            };
            encoded_bytes(&first) <= most_bytes
        };
        let (mut fits, mut most) = (1, most.min(room.fan_out).min(items.len() - 1));
        while fits < most {
            let middle = (fits + most).div_ceil(2);
            if fit(middle) {
                fits = middle;
            } else {
                most = middle - 1;
            }
        }
        fits
    }

    /// Divides an image that does not fit into two that do, so that the first one keeps `share` of
    /// 100, or what fits.
    pub fn divided(&self, room: &Room, share: usize, right: NodeRef) -> (Self, Self) {
        let index = self.index_at_share(room, share);
        let both = |&index: &usize| {
            let (left, behind) = self.divided_at(room, index, right);
            (left.fits(room) && behind.fits(room)).then_some((left, behind))
        };
        // Bounded by the entries: the wanted place, then those before it, then those behind.
        let places = (1..=index).rev().chain(index + 1..self.entries.len());
        let divided = places.into_iter().find_map(|index| both(&index));
        divided.expect("`least_node_bytes` of the layout")
    }

    /// This node and its right neighbour as one.
    pub fn joined(mut self, right: Self) -> Self {
        self.high = right.high;
        self.right = right.right;
        if self.is_leaf() {
            self.mark = self.mark.joined(right.mark);
        }
        self.entries.extend(right.entries);
        self
    }
}
