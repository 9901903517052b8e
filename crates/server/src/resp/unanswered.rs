//! What a connection has asked of the shards and not been answered: it says
//! when the connection may read a key from a shard's memory by itself, so that
//! what it sees never goes back.

use remora_layout::hash::KeyHash;
use remora_layout::plant::{Plant, planted};

/// Keys are told apart by so many values of their hash: two that fall together
/// are asked for where one could have been read.
const READ_GROUPS: usize = 256;

/// What one part of a request asks of a shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asked {
    /// To change something at the shard with this number.
    Write(usize),
    /// To read a key of this group.
    Read(usize),
    /// Something that no later reading is compared with, or nothing: the part
    /// was read.
    Other,
}

/// The group of the key with this hash.
pub fn group(hash: KeyHash) -> usize {
    hash.0 as usize % READ_GROUPS
}

/// Counts of what one connection waits for.
pub struct Unanswered {
    /// By shard. A read goes to the shard too while there are any, so that the
    /// connection sees its own writes.
    writes: Vec<u32>,
    /// By group of keys. A read of such a key is asked for too: by itself it
    /// could see an older value than the one that is asked for will.
    reads: [u32; READ_GROUPS],
}

impl Unanswered {
    /// Nothing, at so many shards.
    pub fn new(shards: usize) -> Self {
        Self { writes: vec![0; shards], reads: [0; READ_GROUPS] }
    }

    /// Something is asked.
    pub fn ask(&mut self, asked: Asked) {
        if let Some(count) = self.count(asked) {
            *count += 1;
        }
    }

    /// The shard has replied to it.
    pub fn answered(&mut self, asked: Asked) {
        if let Some(count) = self.count(asked) {
            *count -= 1;
        }
    }

    /// Whether the key with this hash may be read from the memory of its
    /// shard.
    pub fn may_read(&self, shard: usize, hash: KeyHash) -> bool {
        self.reads[group(hash)] == 0
            && (self.writes[shard] == 0 || planted(Plant::RespPastOwnWrites))
    }

    fn count(&mut self, asked: Asked) -> Option<&mut u32> {
        match asked {
            Asked::Write(shard) => Some(&mut self.writes[shard]),
            Asked::Read(group) => Some(&mut self.reads[group]),
            Asked::Other => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_holds_up_reads_of_its_key_or_shard_until_it_is_answered() {
        let (key, other) = (KeyHash(7), KeyHash(8));
        let mut unanswered = Unanswered::new(2);
        let may_read = |unanswered: &Unanswered| {
            [(0, key), (0, other), (1, key)].map(|(shard, hash)| unanswered.may_read(shard, hash))
        };
        assert_eq!(may_read(&unanswered), [true; 3]);
        let read = Asked::Read(group(key));
        unanswered.ask(read);
        unanswered.ask(read);
        unanswered.answered(read);
        assert_eq!(may_read(&unanswered), [false, true, false], "one is still asked for");
        unanswered.answered(read);
        unanswered.ask(Asked::Other);
        unanswered.ask(Asked::Write(0));
        assert_eq!(may_read(&unanswered), [false, false, true]);
        unanswered.answered(Asked::Write(0));
        unanswered.answered(Asked::Other);
        assert_eq!(may_read(&unanswered), [true; 3]);
    }
}
