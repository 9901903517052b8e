//! Members that were found, each once, in the order in which they were added, with a mark each.

use super::form::Form;
use hashbrown::HashTable;
use hashbrown::hash_table::Entry;
use remora_layout::hash::KeyHash;
use remora_protocol::Items;

/// See the module's text.
pub(super) struct Found<F: Form> {
    seed: u64,
    /// The members.
    list: Vec<u8>,
    /// Its hash, where it stands in the list, and its number: growing hashes nothing again.
    index: HashTable<(u64, u32, u32)>,
    /// By the members' numbers: their marks and scores.
    beside: Vec<(u32, F::Score)>,
    /// The member that is taken next: where it stands, and its number.
    next: (usize, usize),
}

fn at(list: &[u8], place: u32) -> &[u8] {
    let member = Items::split(&list[place as usize..]).and_then(|(member, _)| member);
    member.expect("a place in the index is a member's")
}

/// A member, its mark and its score.
type Marked<'l, F> = (&'l [u8], (u32, <F as Form>::Score));

impl<F: Form> Found<F> {
    /// No members.
    pub fn new(seed: u64) -> Self {
        let (index, beside) = (HashTable::new(), Vec::new());
        Self { seed, list: Vec::new(), index, beside, next: (0, 0) }
    }

    /// Bytes of the members with their scores.
    pub const fn bytes(&self) -> usize {
        self.list.len() + self.beside.len() * size_of::<F::Score>()
    }

    /// Adds a member with its score, if it is not there; else gives the score of the one that is.
    pub fn add(&mut self, member: &[u8], score: F::Score) -> Option<&mut F::Score> {
        let hash = KeyHash::of(member, self.seed).0;
        let Self { list, index, beside, .. } = self;
        let is_it = |&(of, place, _): &(u64, u32, u32)| of == hash && at(list, place) == member;
        let entry = index.entry(hash, is_it, |(of, ..)| *of);
        match entry {
            Entry::Vacant(entry) => {
                entry.insert((hash, list.len() as u32, beside.len() as u32));
                beside.push((0, score));
                Items::push(list, member);
                None
            }
            Entry::Occupied(entry) => Some(&mut beside[entry.get().2 as usize].1),
        }
    }

    /// Gives a member, if it is there, its next mark: the one after `mark - 1`. Then it also gives
    /// its score.
    pub fn mark(&mut self, member: &[u8], mark: u32) -> Option<&mut F::Score> {
        let hash = KeyHash::of(member, self.seed).0;
        let found =
            self.index.find(hash, |(of, place, _)| *of == hash && at(&self.list, *place) == member);
        let (present, score) = &mut self.beside[found?.2 as usize];
        if *present + 1 != mark {
            return None;
        }
        *present = mark;
        Some(score)
    }

    /// The next members, so many at most, with their marks and scores; none at the end.
    pub fn take_some(&mut self, most: usize) -> Option<impl Iterator<Item = Marked<'_, F>>> {
        let (mut place, from) = self.next;
        if place == self.list.len() {
            return None;
        }
        let to = self.beside.len().min(from + most);
        let first = place;
        for _ in from..to {
            let (_, rest) = Items::split(&self.list[place..])?;
            place = self.list.len() - rest.len();
        }
        self.next = (place, to);
        let members = Items::parse(&self.list[first..place])?.iter().flatten();
        Some(members.zip(self.beside[from..to].iter().copied()))
    }
}
