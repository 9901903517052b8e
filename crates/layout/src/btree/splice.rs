//! A node with one entry more, another one, or one less, made from the node's bytes: no entry is
//! decoded, and the heap keeps no gaps.

use super::{
    HEAD_BYTES, IN_HEAP, Item, KeyForm, OrderedNode, Parts, Payload, Payloads, REST_BYTES,
    SHORT_VALUE_BYTES, head_of, heap_word, node_word, short_word, word_at,
};
use crate::limits::WORD_BYTES;
use crate::node::NODE_CHECKED_FROM;

/// What becomes of the entry at an index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Splice<'a> {
    /// One comes before it.
    Insert(Item<'a>),
    /// It keeps its key.
    Replace(Payload<'a>),
    /// It goes.
    Remove,
}

impl<'a> Splice<'a> {
    fn payload(&self) -> Option<Payload<'a>> {
        match self {
            Self::Insert(item) => Some(item.payload),
            Self::Replace(payload) => Some(*payload),
            Self::Remove => None,
        }
    }

    /// Keys that go, and that come.
    fn keys(&self) -> (usize, usize) {
        match self {
            Self::Insert(_) => (0, 1),
            Self::Replace(_) => (0, 0),
            Self::Remove => (1, 0),
        }
    }

    /// Payloads that go, and that come.
    fn payloads(&self) -> (usize, usize) {
        match self {
            Self::Replace(_) => (1, 1),
            _ => self.keys(),
        }
    }
}

/// How the heap moves: without the parts that belong to nothing any more, which are offsets with
/// lengths.
struct Moved {
    gaps: [(usize, usize); 2],
    from: usize,
    to: usize,
    /// The end of what is used before.
    end: usize,
}

impl Moved {
    /// Bytes that stay.
    fn kept(&self) -> usize {
        self.end - self.from - self.gaps.iter().map(|(_, bytes)| bytes).sum::<usize>()
    }

    /// Where comes to lie what lay at this offset.
    #[inline]
    fn place(&self, before: u32) -> u32 {
        let gone = self.gaps.map(|(at, bytes)| if (at as u32) < before { bytes as u32 } else { 0 });
        let moved = (self.to as u32).wrapping_sub(self.from as u32);
        before.wrapping_add(moved).wrapping_sub(gone[0] + gone[1])
    }

    /// Corrects the offset in the first two bytes.
    fn correct(&self, half: &mut [u8]) {
        let Some(half) = half.first_chunk_mut() else { return };
        *half = (self.place(u16::from_le_bytes(*half).into()) as u16).to_le_bytes();
    }

    /// Corrects the offsets of keys' rests, many of them at once.
    fn correct_rests(&self, rests: &mut [[u8; REST_BYTES]]) {
        for rest in rests {
            let word = u32::from_le_bytes(*rest);
            let (bytes, at) = (word & 0xffff_0000, word & 0xffff);
            *rest = (bytes | self.place(at) & 0xffff).to_le_bytes();
        }
    }

    /// Copies what stays; `into` begins where the heap will.
    fn copy(&self, bytes: &[u8], into: &mut [u8]) {
        let mut gaps = self.gaps;
        gaps.sort_unstable();
        let (mut from, mut to) = (self.from, 0);
        for (at, gap) in gaps.into_iter().filter(|(_, bytes)| *bytes > 0).chain([(self.end, 0)]) {
            into[to..to + at - from].copy_from_slice(&bytes[from..at]);
            (from, to) = (at + gap, to + at - from);
        }
    }
}

/// Copies elements of so many bytes; at an index some go and some come.
fn copy_around(from: &[u8], into: &mut [u8], at: usize, changed: (usize, usize), bytes: usize) {
    let (at, gone, come) = (at * bytes, changed.0 * bytes, changed.1 * bytes);
    into[..at].copy_from_slice(&from[..at]);
    into[at + come..].copy_from_slice(&from[at + gone..]);
}

fn put(into: &mut [u8], at: usize, word: u64) {
    into[at..at + WORD_BYTES].copy_from_slice(&word.to_le_bytes());
}

impl OrderedNode<'_> {
    /// Writes the owner's node with a change of one entry into `into`, which is as long as the node
    /// may be; the first three words are its writer's. A key that comes lies between the fences, in
    /// its place. Gives the used bytes; `None` if they do not fit, or if the values of the leaf take
    /// another form.
    pub fn spliced(&self, index: usize, splice: Splice<'_>, into: &mut [u8]) -> Option<usize> {
        if splice.payload().is_some_and(|payload| !self.takes(payload)) {
            return None;
        }
        let (gone, come) = splice.keys();
        let (entries, old) = (self.entries + come - gone, self.parts);
        let fence_bytes = self.low.len() + self.high.map_or(0, <[u8]>::len);
        let new = Parts::of(self.keys, self.payloads, entries, fence_bytes);
        let moved = self.moved(index, &splice, new.heap);
        let (rest, value) = self.of_heap(&splice);
        let behind = new.heap + moved.kept();
        let used = (behind + rest.len() + value.len()).next_multiple_of(WORD_BYTES);
        let into = into.get_mut(..used)?;

        let fixed = NODE_CHECKED_FROM..old.heads;
        into[fixed.clone()].copy_from_slice(&self.bytes[fixed]);
        let kinds = word_at(self.bytes, node_word::SHAPE) & 0xffff_0000;
        put(into, node_word::SHAPE * WORD_BYTES, entries as u64 | kinds | (used as u64) << 32);
        let heads = &self.bytes[old.heads..old.payloads];
        copy_around(heads, &mut into[new.heads..new.payloads], index, splice.keys(), WORD_BYTES);
        let payloads = &self.bytes[old.payloads..old.rests];
        let into_payloads = &mut into[new.payloads..new.rests];
        let payload_bytes = self.payloads.bytes();
        copy_around(payloads, into_payloads, index, splice.payloads(), payload_bytes);
        if self.has_heap() {
            self.splice_heap(index, &splice, (new, &moved), into);
            into[behind..].fill(0);
            into[behind..behind + rest.len()].copy_from_slice(rest);
            into[behind + rest.len()..][..value.len()].copy_from_slice(value);
        }
        if let Splice::Insert(item) = splice {
            let suffix = &item.key[self.prefix..];
            put(into, new.heads + index * WORD_BYTES, head_of(suffix));
            if self.keys == KeyForm::Bytes {
                let halves = [behind as u16, suffix.len() as u16].map(u16::to_le_bytes);
                into[new.rests + index * REST_BYTES..][..REST_BYTES]
                    .copy_from_slice(&halves.concat());
            }
        }
        if let Some(payload) = splice.payload()
            && self.payloads != Payloads::Empty
        {
            let word = self.payload_word(payload, behind + rest.len());
            put(into, new.payloads + index * WORD_BYTES, word);
        }
        Some(used)
    }

    /// Whether a payload can come to the others as they lie.
    pub fn takes(&self, payload: Payload<'_>) -> bool {
        !self.is_leaf() || (self.entries > 0 && self.payloads.has_room_for(payload))
    }

    /// Whether payloads or keys may lie in the heap.
    fn has_heap(&self) -> bool {
        self.keys == KeyForm::Bytes || self.has_heap_values()
    }

    /// Whether values may lie in the heap.
    fn has_heap_values(&self) -> bool {
        self.is_leaf() && self.payloads == Payloads::Tagged
    }

    /// The part of the heap that a payload names.
    fn heap_value(&self, index: usize) -> Option<(usize, usize)> {
        if !self.has_heap_values() {
            return None;
        }
        let range = self.value_range(index)?;
        let is_in_heap = range.from >= self.parts.heap && range.bytes > SHORT_VALUE_BYTES;
        is_in_heap.then_some((range.from, range.bytes))
    }

    /// The part of the heap that has the rest of a key.
    fn heap_rest(&self, index: usize) -> Option<(usize, usize)> {
        let (rest, _) = self.rest(index);
        let at = self.parts.rests + index * REST_BYTES;
        let half = || u16::from_le_bytes([self.bytes[at], self.bytes[at + 1]]) as usize;
        (!rest.is_empty()).then(|| (half(), rest.len()))
    }

    fn moved(&self, index: usize, splice: &Splice<'_>, to: usize) -> Moved {
        let from = self.parts.heap;
        let mut moved = Moved { gaps: [(0, 0); 2], from, to, end: from };
        if !self.has_heap() {
            return moved;
        }
        if self.keys == KeyForm::Bytes {
            let rests = &self.bytes[self.parts.rests..][..self.entries * REST_BYTES];
            let ends = rests.as_chunks().0.iter().map(|rest: &[u8; REST_BYTES]| {
                let word = u32::from_le_bytes(*rest);
                let (at, bytes) = (word & 0xffff, word >> 16);
                if bytes > HEAD_BYTES as u32 { at + bytes - HEAD_BYTES as u32 } else { 0 }
            });
            moved.end = moved.end.max(ends.fold(0, u32::max) as usize);
        }
        if self.has_heap_values() {
            for (at, bytes) in (0..self.entries).filter_map(|index| self.heap_value(index)) {
                moved.end = moved.end.max(at + bytes);
            }
        }
        if splice.payloads().0 > 0 {
            moved.gaps[0] = self.heap_value(index).unwrap_or_default();
        }
        if splice.keys().0 > 0 {
            moved.gaps[1] = self.heap_rest(index).unwrap_or_default();
        }
        moved
    }

    /// What comes into the heap: the rest of a key, and a value.
    fn of_heap<'s>(&self, splice: &Splice<'s>) -> (&'s [u8], &'s [u8]) {
        let rest = match splice {
            Splice::Insert(item) if self.keys == KeyForm::Bytes => {
                item.key.get(self.prefix + HEAD_BYTES..).unwrap_or_default()
            }
            _ => &[],
        };
        let value = match splice.payload() {
            Some(Payload::Value(value)) if self.payloads == Payloads::Tagged => value.bytes,
            _ => &[],
        };
        (rest, if value.len() > SHORT_VALUE_BYTES { value } else { &[] })
    }

    fn splice_heap(
        &self,
        index: usize,
        splice: &Splice<'_>,
        (new, moved): (Parts, &Moved),
        into: &mut [u8],
    ) {
        moved.copy(self.bytes, &mut into[new.heap..]);
        if self.has_heap_values() {
            let words = into[new.payloads..new.rests].as_chunks_mut::<WORD_BYTES>().0;
            let new = Some(index).filter(|_| splice.payloads().1 > 0);
            for (at, word) in words.iter_mut().enumerate() {
                if word[1] == IN_HEAP && Some(at) != new {
                    moved.correct(&mut word[2..]);
                }
            }
        }
        if self.keys == KeyForm::Bytes {
            let rests = &self.bytes[self.parts.rests..][..self.entries * REST_BYTES];
            let (into, padding) =
                into[new.rests..new.heap].split_at_mut(entries_bytes(self.entries, splice));
            copy_around(rests, into, index, splice.keys(), REST_BYTES);
            // That of a key that comes is written later.
            moved.correct_rests(into.as_chunks_mut().0);
            padding.fill(0);
        }
    }

    /// A payload's word; its value comes to lie at an offset, if in the heap.
    fn payload_word(&self, payload: Payload<'_>, at: usize) -> u64 {
        match payload {
            Payload::Child(child) => child.to_word(),
            Payload::Value(value) if self.payloads == Payloads::Words => word_at(value.bytes, 0),
            Payload::Value(value) if value.bytes.len() <= SHORT_VALUE_BYTES => short_word(value),
            Payload::Value(value) => heap_word(value, at),
        }
    }
}

fn entries_bytes(before: usize, splice: &Splice<'_>) -> usize {
    let (gone, come) = splice.keys();
    (before + come - gone) * REST_BYTES
}
