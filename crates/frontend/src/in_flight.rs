//! A connection's in-flight questions to the shards. They decide when the connection may read a key
//! from a shard's memory by itself, so that its view never goes back, and when its own shard may
//! execute a command at once, so that no command overtakes another one.

use remora_layout::hash::KeyHash;

/// Keys are distinguished by this many values of their hash: if two keys collide, one of them is
/// asked for although it could be read. The counts exist only while a connection has requests: they
/// are small enough for an allocator's thread-local list.
const READ_GROUPS: usize = 128;

/// The question of one part of a request to a shard.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Question {
    /// The shard.
    pub shard: usize,
    /// The kind of work.
    pub what: What,
    /// Bytes of the job that asks it.
    pub bytes: usize,
}

/// The kind of work that a shard is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// To change something.
    Write,
    /// To read a key of this group.
    Read(usize),
    /// Something that no later reading is compared with.
    Other,
}

/// The group of the key with this hash.
pub fn group(hash: KeyHash) -> usize {
    hash.0 as usize % READ_GROUPS
}

/// Counts of what one connection waits for.
#[derive(Default)]
pub struct InFlight {
    /// Nothing while nothing is asked: most connections are idle.
    counts: Option<Box<InFlightCounts>>,
}

struct InFlightCounts {
    /// All that is in flight.
    all: u32,
    /// By shard.
    of_shards: Vec<OfShard>,
    /// By group of keys. A key with a read in flight must be asked for too: a direct read could
    /// return an older value than the read in flight will.
    reads: [u32; READ_GROUPS],
}

#[derive(Clone, Default)]
struct OfShard {
    all: u32,
    /// A read goes to the shard too while there are writes in flight, so that the connection sees
    /// its own writes.
    writes: u32,
}

impl InFlight {
    /// Counts a question to one of this many shards.
    pub fn ask(&mut self, asked: Question, shards: usize) {
        let counts = self.counts.get_or_insert_with(|| {
            let of_shards = vec![OfShard::default(); shards];
            Box::new(InFlightCounts { all: 0, of_shards, reads: [0; READ_GROUPS] })
        });
        counts.change(asked, |count| *count += 1);
    }

    /// The shard has replied to it.
    pub fn answered(&mut self, asked: Question) {
        if let Some(counts) = &mut self.counts {
            counts.change(asked, |count| *count -= 1);
        }
    }

    /// Frees the counts if nothing is in flight.
    pub fn settle(&mut self) {
        if self.counts.as_ref().is_some_and(|counts| counts.all == 0) {
            self.counts = None;
        }
    }

    /// Whether the key with this hash may be read from the memory of its
    /// shard.
    #[inline]
    pub fn may_read(&self, shard: usize, hash: KeyHash) -> bool {
        let Some(counts) = &self.counts else { return true };
        counts.reads[group(hash)] == 0 && counts.of_shards[shard].writes == 0
    }

    /// Whether nothing is asked of this shard.
    #[inline]
    pub fn is_quiet(&self, shard: usize) -> bool {
        self.counts.as_ref().is_none_or(|counts| counts.of_shards[shard].all == 0)
    }
}

impl InFlightCounts {
    fn change(&mut self, asked: Question, change: impl Fn(&mut u32)) {
        change(&mut self.all);
        let of_shard = &mut self.of_shards[asked.shard];
        change(&mut of_shard.all);
        match asked.what {
            What::Write => change(&mut of_shard.writes),
            What::Read(group) => change(&mut self.reads[group]),
            What::Other => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_holds_up_reads_of_its_key_or_shard_until_it_is_answered() {
        let (key, other) = (KeyHash(7), KeyHash(8));
        let mut in_flight = InFlight::default();
        let may_read = |in_flight: &InFlight| {
            [(0, key), (0, other), (1, key)].map(|(shard, hash)| in_flight.may_read(shard, hash))
        };
        let of = |shard, what| Question { shard, what, bytes: 0 };
        assert_eq!(may_read(&in_flight), [true; 3]);
        let read = of(0, What::Read(group(key)));
        in_flight.ask(read, 2);
        in_flight.ask(read, 2);
        in_flight.answered(read);
        assert_eq!(may_read(&in_flight), [false, true, false], "one is still asked for");
        assert_eq!([0, 1].map(|shard| in_flight.is_quiet(shard)), [false, true]);
        in_flight.answered(read);
        in_flight.ask(of(1, What::Other), 2);
        in_flight.ask(of(0, What::Write), 2);
        assert_eq!(may_read(&in_flight), [false, false, true]);
        in_flight.answered(of(0, What::Write));
        assert_eq!([0, 1].map(|shard| in_flight.is_quiet(shard)), [true, false]);
        in_flight.settle();
        assert!(in_flight.counts.is_some(), "something is asked");
        in_flight.answered(of(1, What::Other));
        assert_eq!(may_read(&in_flight), [true; 3]);
        in_flight.settle();
        assert!(in_flight.counts.is_none());
    }
}
