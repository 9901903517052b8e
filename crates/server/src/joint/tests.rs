//! Moves between shards in random order: all end, nothing is lost and nothing is twice, also where the
//! logs are cut.

use super::*;
use crate::joint_gate::{JointGate, JointPlaces};
use crate::large_jobs::LargeJobs;
use remora_arena::{NoJournal, Owner};
use remora_engine::{Durability, Origin, ShardOptions};
use remora_layout::database::Database;
use remora_log::{KnownLog, OwnedEntry, consistent_cut};
use remora_protocol::list::{ListCommand, Side};
use remora_protocol::{Items, Request};
use remora_testing::Random;
use std::collections::{BTreeMap, BTreeSet};

const SHARDS: usize = 3;
const KEYS: usize = 6;
/// Connections, each of which has one request at a time.
const CLIENTS: u64 = 8;

/// A key's number says its shard.
fn key(number: usize) -> Vec<u8> {
    format!("k{number}").into_bytes()
}

fn encoded(number: usize, request: Request<'_>) -> Vec<u8> {
    let (key, mut bytes) = (key(number), Vec::new());
    Command::Of { key: &key, request }.encode_within(Database::ZERO, 0, &mut bytes);
    bytes
}

fn look(from: usize) -> Vec<u8> {
    encoded(from, ListCommand::Index { index: 0 }.request())
}

/// The first element of one list goes to the end of another one.
struct Move {
    from: usize,
    to: usize,
    element: Option<Vec<u8>>,
    is_given: bool,
}

impl Joint for Move {
    fn next(&mut self, answer: OwnedReply) -> JointStep {
        if self.is_given {
            return JointStep::Done(answer);
        }
        match self.element.take() {
            _ if answer.status == Status::TryAgain => JointStep::Again(look(self.from)),
            _ if answer.status != Status::Ok => JointStep::Done(answer),
            None => {
                let mut list = Vec::new();
                Items::push(&mut list, answer.value.as_deref().unwrap());
                self.element = answer.value;
                let items = Items::parse(&list).unwrap();
                let push = ListCommand::Push { side: Side::Right, if_there: false, items };
                JointStep::Ask(self.to % SHARDS, encoded(self.to, push.request()))
            }
            Some(_) => {
                self.is_given = true;
                let pop = ListCommand::Pop { side: Side::Left, count: 1, fits_frame: false };
                JointStep::Ask(self.from % SHARDS, encoded(self.from, pop.request()))
            }
        }
    }
}

struct OneShard {
    shard: Shard,
    jobs: LargeJobs,
    gate: JointGate,
    /// What the disk has.
    reached: u64,
}

struct World {
    random: Random,
    shards: Vec<OneShard>,
    /// By sender and receiver.
    mail: BTreeMap<(usize, usize), VecDeque<Job>>,
    now: Now,
    /// Requests that are not answered.
    asked: BTreeSet<u64>,
    pushed: u64,
    moved: u64,
    put_off: u64,
}

fn shard(number: usize, durability: Durability, arena_bytes: usize) -> Shard {
    let log_shard = number as u32;
    let options = ShardOptions { log_shard, durability, ..ShardOptions::default() };
    Shard::new(Owner::heap(arena_bytes, NoJournal), options)
}

impl World {
    fn new(seed: u64) -> Self {
        let places = JointPlaces::new(SHARDS);
        let one = |number| OneShard {
            shard: shard(number, Durability::Told, 4 << 20),
            jobs: LargeJobs::default(),
            gate: JointGate::new(number, places.clone()),
            reached: 0,
        };
        Self {
            random: Random::new(seed),
            shards: (0..SHARDS).map(one).collect(),
            mail: BTreeMap::new(),
            now: Now { unix_ms: 1_000, since_start_s: 1 },
            asked: BTreeSet::new(),
            pushed: 0,
            moved: 0,
            put_off: 0,
        }
    }

    fn below(&mut self, end: usize) -> usize {
        self.random.below(end as u64) as usize
    }

    /// A client's request: a move, or one that adds an element.
    fn ask(&mut self, serial: u64) {
        let (from, to) = (self.below(KEYS), self.below(KEYS));
        let (home, at) = (serial as usize % SHARDS, from % SHARDS);
        let token = Token { home, connection: 0, serial, request: 0, part: 0, shard: at };
        let order = if from % SHARDS == to % SHARDS {
            let (mut list, element) = (Vec::new(), format!("e{}", self.pushed));
            self.pushed += 1;
            Items::push(&mut list, element.as_bytes());
            let items = Items::parse(&list).unwrap();
            let push = ListCommand::Push { side: Side::Left, if_there: false, items };
            Order::Execute(encoded(from, push.request()))
        } else {
            let joint = Box::new(Move { from, to, element: None, is_given: false });
            Order::Joint(Box::new(JointOrder { look: look(from), joint }))
        };
        self.asked.insert(serial);
        self.mail.entry((home, at)).or_default().push_back(Job::new(order, token));
    }

    /// One turn of a shard's thread, which takes some of its mail.
    fn turn(&mut self, at: usize) {
        for from in 0..SHARDS {
            if self.random.below(2) == 0
                && let Some(job) = self.mail.get_mut(&(from, at)).and_then(VecDeque::pop_front)
            {
                let OneShard { shard, jobs, .. } = &mut self.shards[at];
                self.put_off += u64::from(jobs.joint.is_held());
                jobs.execute(shard, job, self.now);
            }
        }
        let OneShard { shard, jobs, gate, .. } = &mut self.shards[at];
        jobs.turn(shard, self.now);
        while let Some((to, job)) = jobs.joint.pop_job() {
            self.mail.entry((at, to)).or_default().push_back(job);
        }
        jobs.joint.take_made().into_iter().for_each(|part| gate.note(part));
        while let Some((token, reply)) = jobs.pop_reply() {
            assert!(self.asked.remove(&token.serial), "one answer");
            assert!(matches!(reply.status, Status::Ok | Status::NotFound), "{reply:?}");
            self.moved += u64::from(reply.value.is_some());
        }
    }

    /// The disk gets on, and what is durable is a part of a consistent cut.
    fn sync(&mut self, at: usize) {
        let left = self.shards[at].shard.last_sequence() - self.shards[at].reached;
        self.shards[at].reached += self.random.below(left + 1);
        let OneShard { shard, gate, reached, .. } = &mut self.shards[at];
        shard.set_durable(gate.pass(*reached));
    }

    fn logs(&self) -> Vec<Vec<OwnedEntry>> {
        self.shards.iter().map(|of| of.shard.log().entries()).collect()
    }
}

fn known(logs: &[Vec<OwnedEntry>], last: impl Fn(usize) -> u64) -> BTreeMap<u32, KnownLog> {
    let log = |(at, entries): (usize, &Vec<OwnedEntry>)| {
        let with_parts = entries.iter().map(OwnedEntry::entry).filter(|of| !of.parts.is_empty());
        let shared = with_parts.map(|of| (of.sequence, of.parts.iter().collect())).collect();
        (at as u32, KnownLog { covered: 0, last: last(at), shared })
    };
    logs.iter().enumerate().map(log).collect()
}

/// All elements of all lists, after the logs up to these sequences.
fn elements(logs: &[Vec<OwnedEntry>], cuts: &BTreeMap<u32, u64>) -> Vec<Vec<u8>> {
    let (mut all, now) = (Vec::new(), Now::default());
    for (at, entries) in logs.iter().enumerate() {
        let mut shard = shard(at, Durability::Memory, 4 << 20);
        shard.begin_applying();
        let cut = cuts[&(at as u32)];
        let origin = Origin { cut, ..Origin::WHOLE };
        for entry in entries.iter().filter(|entry| entry.sequence <= cut) {
            shard.apply(&entry.entry(), &origin, now).unwrap();
        }
        shard.end_applying(9).unwrap();
        for number in (at..KEYS).step_by(SHARDS) {
            // Until the list is empty.
            loop {
                let (key, hash) = (key(number), shard.hash(&key(number)));
                let request =
                    ListCommand::Pop { side: Side::Left, count: 1, fits_frame: false }.request();
                let reply = shard.execute(&Command::Of { key: &key, request }, hash, now);
                let Some(value) = reply.value else { break };
                all.push(Items::split(value).unwrap().0.unwrap().to_vec());
            }
        }
    }
    all.sort();
    all
}

fn run(seed: u64, steps: usize) -> World {
    let mut world = World::new(seed);
    for _ in 0..steps {
        let at = world.below(SHARDS);
        match world.below(8) {
            0 | 1 => {
                let serial = world.random.below(CLIENTS);
                if !world.asked.contains(&serial) {
                    world.ask(serial);
                }
            }
            2 => world.sync(at),
            _ => world.turn(at),
        }
    }
    world
}

#[test]
fn crossing_moves_end_and_lose_nothing() {
    let (mut moved, mut put_off) = (0, 0);
    for seed in 1..=20 {
        let mut world = run(seed, 6_000);
        // Bounded: far more turns than the requests under way take.
        for _ in 0..20_000 {
            let at = world.below(SHARDS);
            world.turn(at);
            world.sync(at);
        }
        assert_eq!(world.asked, BTreeSet::new(), "seed {seed}: all are answered");
        for at in 0..SHARDS {
            let of = &mut world.shards[at];
            assert!(!of.jobs.joint.is_held() && !of.jobs.joint.puts_off(), "seed {seed}");
            assert_eq!(of.shard.durable_sequence(), of.shard.last_sequence(), "seed {seed}");
            of.shard.audit().unwrap();
        }
        let logs = world.logs();
        let cuts = consistent_cut(&known(&logs, |at| world.shards[at].shard.last_sequence()));
        let all = elements(&logs, &cuts);
        let distinct: BTreeSet<_> = all.iter().collect();
        assert_eq!((all.len() as u64, distinct.len()), (world.pushed, all.len()), "seed {seed}");
        (moved, put_off) = (moved + world.moved, put_off + world.put_off);
    }
    assert!(moved > 1_000 && put_off > 1_000, "{moved} moves, {put_off} jobs at held shards");
}

/// Wherever a crash cuts the logs, each element that was pushed before is there once, and nothing that
/// was durable goes.
#[test]
fn a_cut_anywhere_leaves_each_element_once() {
    for seed in 101..=110 {
        let mut world = run(seed, 1_500);
        let logs = world.logs();
        for _ in 0..20 {
            (0..SHARDS).for_each(|at| world.sync(at));
            let reached: Vec<u64> = world.shards.iter().map(|of| of.reached).collect();
            let cuts = consistent_cut(&known(&logs, |at| reached[at]));
            for (at, of) in world.shards.iter().enumerate() {
                let (durable, cut) = (of.shard.durable_sequence(), cuts[&(at as u32)]);
                assert!(durable <= cut, "seed {seed}: {durable} is acknowledged, {cut} is left");
            }
            let all = elements(&logs, &cuts);
            let distinct: BTreeSet<_> = all.iter().collect();
            assert_eq!(distinct.len(), all.len(), "seed {seed}: none is twice");
            let pushes = pushed_up_to(&logs, &cuts);
            assert_eq!(all.len(), pushes, "seed {seed}: none is lost");
        }
    }
}

/// The elements that clients have added up to a cut.
fn pushed_up_to(logs: &[Vec<OwnedEntry>], cuts: &BTreeMap<u32, u64>) -> usize {
    let of_log = |(at, entries): (usize, &Vec<OwnedEntry>)| {
        let kept = entries
            .iter()
            .map(OwnedEntry::entry)
            .filter(|of| of.sequence <= cuts[&(at as u32)] && of.parts.is_empty());
        kept.count()
    };
    logs.iter().enumerate().map(of_log).sum()
}
