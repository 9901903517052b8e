//! Walks whose upper nodes a reader keeps, over B+trees that change at the same time: nothing but the
//! leaf is read anew, torn and late. The rules are those of `btree_walks`.

use crate::btree_history::{Checker, KEYS, bytes_of, record};
use crate::fixture::HOME;
use crate::replay::Replay;
use remora_index::btree::{Direction, Get, Range, Scan};
use remora_layout::btree::{KeyForm, OrderedHeader};
use remora_layout::node::NodeRef;
use remora_testing::Random;
use remora_walk::remote::Work;
use remora_walk::remote::{NodeCache, Reads, Tally, Wide};
use remora_walk::{End, Walk};
use std::collections::BTreeSet;
use std::ops::Bound;

/// READs of a history, which goes on while they are under way.
struct Late<'l, 'r> {
    replay: &'l mut Replay<'r>,
    random: &'l mut Random,
    works: Vec<Work<'static>>,
    posted: Vec<(u64, u64, usize, usize)>,
    landing: Vec<u8>,
}

impl Reads for Late<'_, '_> {
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
            self.posted.push((id, from.offset, into, bytes));
        }
    }

    fn next(&mut self) -> Result<u64, ()> {
        let chosen = self.random.below(self.posted.len());
        let (id, offset, into, bytes) = self.posted.remove(chosen);
        let at = NodeRef { slot: (offset / 16) as u32, generation: 0 };
        let read = self.replay.read(at, bytes, self.random);
        self.landing[into..into + bytes].copy_from_slice(&read);
        Ok(id)
    }

    fn landed(&self, from: usize, bytes: usize) -> &[u8] {
        &self.landing[from..from + bytes]
    }
}

struct Nodes(u64);

impl Tally for Nodes {
    fn fetched(&mut self, _: u64, nodes: u64, _: u64) {
        self.0 += nodes;
    }
}

/// Counts of walks.
#[derive(Default, Debug)]
struct Counts {
    walks: u64,
    found: u64,
    /// That fetched one node.
    direct: u64,
    restarted: u64,
    went_around: u64,
    asked: u64,
}

/// A reader, with what it keeps.
struct Reader<'h> {
    replay: Replay<'h>,
    header_at: NodeRef,
    header: OrderedHeader,
    cache: NodeCache,
}

impl Reader<'_> {
    /// Carries a walk out, under the header that it knows from before. `None`: the owner would be asked.
    fn walk<W: Walk<Head = OrderedHeader>>(
        &mut self,
        walk: W,
        random: &mut Random,
        counts: &mut Counts,
    ) -> Option<W> {
        let bytes = self.header.node_bytes as usize;
        let mut wide = Wide::new(walk, (0, [(0, 0); 2]), bytes, (3, u64::MAX), &mut self.cache);
        let mut nodes = Nodes(0);
        counts.walks += 1;
        loop {
            let mut late = Late {
                replay: &mut self.replay,
                random,
                works: Vec::new(),
                posted: Vec::new(),
                landing: Vec::new(),
            };
            let end = wide.run(&mut late, &mut nodes).unwrap();
            counts.went_around += u64::from(wide.walk.detours() > 0);
            match end {
                End::Found(_) => {
                    counts.direct += u64::from(nodes.0 == 1);
                    return Some(wide.walk);
                }
                End::Restart => {
                    counts.restarted += 1;
                    self.header = self.replay.ordered_header(self.header_at, random);
                    if wide.walk.restart(&self.header).is_err() {
                        break;
                    }
                }
                _ => break,
            }
        }
        counts.asked += 1;
        None
    }
}

fn run(keys: KeyForm, fan_out: usize, calm: u64, seed: u64, counts: &mut Counts) {
    let mut random = Random::new(seed);
    let history = record(keys, fan_out, 3_000, &mut random);
    let mut checker = Checker::new(&history.changes);
    let mut replay =
        Replay { words: history.start.clone(), stores: &history.stores, time: 0, calm };
    let header_at = history.header_at;
    let header = replay.ordered_header(header_at, &mut random);
    let mut reader = Reader { replay, header_at, header, cache: NodeCache::counting(1 << 16, 64) };
    let region = reader.replay.words.len() as u64 * 8;
    while reader.replay.time < history.stores.len() {
        let between = random.pick(&[3, 60]);
        reader.replay.go_on(random.below(between));
        let key = random.below(KEYS);
        let bytes = bytes_of(keys, key);
        let from = reader.replay.time;
        let value = if random.one_in(3) {
            let bound = Bound::Included(&bytes[..]);
            let range = Range { from: bound, to: bound, direction: Direction::Ascending, limit: 9 };
            let walk = Scan::begin(range, 3, HOME, header_at, reader.header, region);
            let Some(walk) = reader.walk(walk, &mut random, counts) else { continue };
            let value = walk.entries().next().map(|(_, value)| value.bytes.to_vec());
            assert!(walk.entries().len() <= 1);
            value
        } else {
            let walk = Get::begin(&bytes, HOME, header_at, reader.header, region);
            let Some(walk) = reader.walk(walk, &mut random, counts) else { continue };
            let value = walk.value().bytes.to_vec();
            (!value.is_empty()).then_some(value)
        };
        let value = value.map(|value| u64::from_le_bytes(value.try_into().unwrap()));
        counts.found += u64::from(value.is_some());
        checker.check(key, (from, reader.replay.time), value);
        if random.one_in(200) {
            reader.cache.choose(BTreeSet::from([reader.header.root]), 1 << 10);
        } else if random.one_in(200) {
            reader.cache.clear();
        }
    }
}

#[test]
fn kept_nodes_lead_to_no_wrong_result() {
    let mut counts = Counts::default();
    for keys in [KeyForm::Integers, KeyForm::Bytes] {
        for (seed, fan_out) in [4, 5, 16].into_iter().enumerate() {
            for calm in [10, 60, 300, 2_000] {
                run(keys, fan_out, calm, seed as u64 * 37 + calm, &mut counts);
            }
        }
    }
    let Counts { walks, found, direct, restarted, went_around, asked } = counts;
    let is_telling = walks > 10_000 && found > walks / 10 && direct > walks / 4;
    assert!(is_telling && restarted > 200 && went_around > 200 && asked < walks / 2, "{counts:?}");
}
