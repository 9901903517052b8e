//! Members that were found, each once, in the order in which they were added, with a mark each.

use hashbrown::HashTable;
use remora_layout::hash::KeyHash;
use remora_protocol::Items;

/// See the module's text.
pub(super) struct Found {
    seed: u64,
    /// The members.
    list: Vec<u8>,
    /// Where each stands in the list, and its number.
    index: HashTable<(u32, u32)>,
    /// By the members' numbers.
    marks: Vec<u32>,
    /// The member that is taken next: where it stands, and its number.
    next: (usize, usize),
}

fn at(list: &[u8], place: u32) -> &[u8] {
    let member = Items::split(&list[place as usize..]).and_then(|(member, _)| member);
    member.expect("a place in the index is a member's")
}

impl Found {
    /// No members.
    pub fn new(seed: u64) -> Self {
        let (index, marks) = (HashTable::new(), Vec::new());
        Self { seed, list: Vec::new(), index, marks, next: (0, 0) }
    }

    /// Bytes of the members.
    pub const fn bytes(&self) -> usize {
        self.list.len()
    }

    /// Adds the members of an encoded list, and hands over those that are new.
    pub fn add_all(&mut self, list: &[u8], mut new: impl FnMut(&[u8])) {
        let mut rest = list;
        while let Some((Some(member), after)) = Items::split(rest) {
            rest = after;
            let hash = KeyHash::of(member, self.seed).0;
            let Self { seed, list, index, marks, .. } = self;
            let entry = index.entry(
                hash,
                |(place, _)| at(list, *place) == member,
                |(place, _)| KeyHash::of(at(list, *place), *seed).0,
            );
            if let hashbrown::hash_table::Entry::Vacant(entry) = entry {
                entry.insert((list.len() as u32, marks.len() as u32));
                marks.push(0);
                Items::push(list, member);
                new(member);
            }
        }
    }

    /// Gives a member, if it is there, its next mark: the one after `mark - 1`.
    pub fn mark(&mut self, member: &[u8], mark: u32) {
        let hash = KeyHash::of(member, self.seed).0;
        let found = self.index.find(hash, |(place, _)| at(&self.list, *place) == member);
        if let Some(&(_, number)) = found
            && self.marks[number as usize] + 1 == mark
        {
            self.marks[number as usize] = mark;
        }
    }

    /// The next members, so many at most, and their marks; none at the end.
    pub fn take_some(&mut self, most: usize) -> Option<impl Iterator<Item = (&[u8], u32)>> {
        let (mut place, from) = self.next;
        if place == self.list.len() {
            return None;
        }
        let to = self.marks.len().min(from + most);
        let first = place;
        for _ in from..to {
            let (_, rest) = Items::split(&self.list[place..])?;
            place = self.list.len() - rest.len();
        }
        self.next = (place, to);
        let members = Items::parse(&self.list[first..place])?.iter().flatten();
        Some(members.zip(self.marks[from..to].iter().copied()))
    }
}
