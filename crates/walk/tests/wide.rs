//! A walk that receives all its wants at once (Catfish 4.3, C23), over a fabric whose READs
//! complete in an order that the test chooses.

use remora_fabric::Work;
use remora_walk::remote::{NodeCache, Reads, Tally, Wide};
use remora_walk::{End, Proof, Step, Walk, Want, What};
use std::collections::VecDeque;

/// Bytes of what stands for a node.
const BYTES: usize = 64;
/// Children of each inner one.
const FANOUT: usize = 3;
/// Nodes of three levels: 1, 3 and 9. Those from here on have none below them.
const LEAVES_FROM: usize = 1 + FANOUT;
const NODES: usize = LEAVES_FROM + FANOUT * FANOUT;

/// A walk to every node of a tree; node `n`'s children are `3n + 1` to `3n + 3`.
struct Visit {
    wanted: VecDeque<usize>,
    fed: Vec<usize>,
}

impl Walk for Visit {
    type Found = ();
    type Reason = ();
    type Tag = usize;
    type Head = ();

    const OUT_OF_REGION: () = ();

    fn next_want(&mut self) -> Option<Want<usize>> {
        let tag = self.wanted.pop_front()?;
        Some(Want { offset: (tag * BYTES) as u64, bytes: BYTES, what: What::Words, tag })
    }

    fn feed(&mut self, want: Want<usize>, bytes: &[u8], _: Proof) -> Step<(), ()> {
        assert_eq!(bytes, [want.tag as u8; BYTES], "what was wanted");
        self.fed.push(want.tag);
        if want.tag < LEAVES_FROM {
            self.wanted.extend((1..=FANOUT).map(|child| want.tag * FANOUT + child));
        }
        if self.fed.len() == NODES { Step::Found(()) } else { Step::More }
    }

    fn restart(&mut self, (): &()) -> Result<(), ()> {
        Err(())
    }

    fn retries(&self) -> u32 {
        0
    }
}

/// Memory in which byte `n` belongs to node `n / 64`, and READs that complete in the order that
/// `choose` decides: it receives the number of in-flight READs, and picks one of them.
struct Scripted<F> {
    works: Vec<Work<'static>>,
    landing: Vec<u8>,
    under_way: Vec<u64>,
    /// READs in flight at each wait for a completion.
    waits: Vec<usize>,
    choose: F,
}

impl<F: FnMut(usize) -> usize> Reads for Scripted<F> {
    type Error = ();

    fn works(&mut self) -> &mut Vec<Work<'static>> {
        &mut self.works
    }

    fn reserve(&mut self, bytes: usize) {
        self.landing.resize(self.landing.len().max(bytes), 0);
    }

    fn post(&mut self, reads: &[Work<'_>]) {
        for read in reads {
            let Work::Read { id, from, into, bytes } = *read else { panic!("only READs") };
            self.landing[into..into + bytes].fill((from.offset as usize / BYTES) as u8);
            self.under_way.push(id);
        }
    }

    fn next(&mut self) -> Result<u64, ()> {
        self.waits.push(self.under_way.len());
        let chosen = (self.choose)(self.under_way.len());
        Ok(self.under_way.remove(chosen))
    }

    fn landed(&self, from: usize, bytes: usize) -> &[u8] {
        &self.landing[from..from + bytes]
    }
}

#[derive(Default)]
struct Counted {
    round_trips: u64,
    nodes: u64,
}

impl Tally for Counted {
    fn fetched(&mut self, round_trips: u64, nodes: u64, _: u64) {
        (self.round_trips, self.nodes) = (self.round_trips + round_trips, self.nodes + nodes);
    }
}

/// The order of visits, READs under way at each wait, and round trips.
fn visit(issued: usize, choose: impl FnMut(usize) -> usize) -> (Vec<usize>, Vec<usize>, u64) {
    let (works, landing, under_way, waits) = Default::default();
    let mut reads = Scripted { works, landing, under_way, waits, choose };
    let walk = Visit { wanted: VecDeque::from([0]), fed: Vec::new() };
    let (mut cache, mut cost) = (NodeCache::new(0), Counted::default());
    let mut wide = Wide::new(walk, (0, [(0, 0); 2]), BYTES, (issued, 1_000), &mut cache);
    assert_eq!(wide.run(&mut reads, &mut cost), Ok(End::Found(())));
    assert_eq!(cost.nodes, NODES as u64);
    (wide.walk.fed, reads.waits, cost.round_trips)
}

/// The driver reads all children of a node at once, and handles each when it completes: its own
/// children are in flight before the others have completed.
#[test]
fn all_children_are_read_at_once_and_each_is_worked_on_as_it_comes() {
    // The oldest completes first: level by level.
    let (fed, waits, round_trips) = visit(64, |_| 0);
    assert!(fed.into_iter().eq(0..NODES));
    // The root; its 3; with each of these that comes 3 more go out; then they drain.
    assert_eq!(waits, [1, 3, 5, 7, 9, 8, 7, 6, 5, 4, 3, 2, 1]);
    assert_eq!(round_trips, 3, "one for each level");
    // The newest first: depth first. The newest READ overtakes older ones.
    let (fed, waits, round_trips) = visit(64, |under_way| under_way - 1);
    assert_eq!(fed, [0, 3, 12, 11, 10, 2, 9, 8, 7, 1, 6, 5, 4]);
    assert_eq!(waits, [1, 3, 5, 4, 3, 2, 4, 3, 2, 1, 3, 2, 1]);
    assert_eq!(round_trips, 3);
}

/// One at a time (C20): a READ is in flight alone, and each is a round trip.
#[test]
fn one_at_a_time_each_is_a_round_trip() {
    let (fed, waits, round_trips) = visit(1, |_| 0);
    assert!(fed.into_iter().eq(0..NODES));
    assert_eq!((waits, round_trips), (vec![1; NODES], NODES as u64));
}
