//! Entries that a walk has copied out of leaves.

use remora_layout::btree::{Value, ValueKind};

/// One entry: its key and its value lie in the buffer one after the other.
#[derive(Clone, Copy)]
struct Place {
    kind: ValueKind,
    key: usize,
    value: usize,
    end: usize,
}

/// Entries in the order in which they were gathered.
#[derive(Default)]
pub(super) struct Gathered {
    bytes: Vec<u8>,
    places: Vec<Place>,
}

impl Gathered {
    pub fn push(&mut self, key: &[u8], value: Value<'_>) {
        let from = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value.bytes);
        let (behind_key, end) = (from + key.len(), self.bytes.len());
        self.places.push(Place { kind: value.kind, key: from, value: behind_key, end });
    }

    pub fn len(&self) -> usize {
        self.places.len()
    }

    pub fn entries(&self) -> impl ExactSizeIterator<Item = (&[u8], Value<'_>)> {
        self.places.iter().map(|place| {
            let value = Value { kind: place.kind, bytes: &self.bytes[place.value..place.end] };
            (&self.bytes[place.key..place.value], value)
        })
    }
}
