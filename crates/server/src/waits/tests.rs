use super::*;
use crate::large_jobs::LargeJobs;
use remora_arena::{NoJournal, Owner};
use remora_engine::{Now, Shard, ShardOptions};
use remora_frontend::PARKED;
use remora_layout::database::Database;
use remora_protocol::hash::HashCommand;
use remora_protocol::{Command, Items, Request};
use remora_testing::Random;

fn token(serial: u64) -> Token {
    Token { home: 0, connection: serial as usize, serial, request: 0, part: 0, shard: 0 }
}

fn run(shard: usize) -> Run {
    Run { shard, commands: vec![Box::from(&b"some"[..])] }
}

/// The orders that are to go: the shard, and whether the request ends there.
fn orders(waits: &mut Waits) -> Vec<(usize, bool)> {
    let jobs = std::iter::from_fn(|| waits.pop_job());
    jobs.map(|(shard, job)| (shard, matches!(job.order, Order::Withdraw))).collect()
}

fn statuses(waits: &mut Waits) -> Vec<(u64, Status)> {
    let replies = std::iter::from_fn(|| waits.pop_reply());
    replies.map(|(token, reply)| (token.serial, reply.status)).collect()
}

#[test]
fn a_request_comes_to_its_shards_one_after_the_other() {
    let mut waits = Waits::default();
    waits.begin(token(1), vec![run(2), run(0), run(2)], 0);
    for shard in [2, 0, 2] {
        assert!(!waits.has_parked(1));
        assert_eq!(orders(&mut waits), [(shard, false)]);
        waits.parked(&Token { part: PARKED, shard, ..token(1) });
    }
    assert!(waits.has_parked(1) && orders(&mut waits).is_empty());
    // The shard that answers has forgotten it, for all of its keys.
    waits.answered(&Token { shard: 2, ..token(1) });
    assert_eq!(orders(&mut waits), [(0, true)]);
    assert!(waits.is_empty() && !waits.has_output());
}

#[test]
fn a_wait_that_ends_is_answered_once_and_the_shards_that_have_it_are_told() {
    let mut waits = Waits::default();
    waits.begin(token(1), vec![run(1), run(0)], 0);
    assert_eq!(orders(&mut waits), [(1, false)]);
    assert!(waits.end(1, Status::Unblocked) && !waits.end(1, Status::Unblocked));
    assert_eq!(statuses(&mut waits), [(1, Status::Unblocked)]);
    assert_eq!(orders(&mut waits), [(1, true)]);
    // The shard had kept it before.
    waits.parked(&Token { part: PARKED, shard: 1, ..token(1) });
    assert!(!waits.has_output());
}

#[test]
fn nobody_ends_a_wait_that_a_shard_answers() {
    let mut waits = Waits::default();
    waits.begin(token(1), vec![run(0)], 5);
    let (_, job) = waits.pop_job().unwrap();
    let Order::WaitFor(wait) = job.order else { panic!("an order to wait") };
    assert!(wait.claim.take());
    assert!(!waits.end(1, Status::Unblocked));
    waits.time_out(5);
    assert_eq!(waits.forget(1), None);
    waits.end_all(Status::WaitEnded);
    assert!(!waits.has_output() && waits.len() == 1 && waits.next_deadline_ms().is_none());
    waits.answered(&token(1));
    assert!(!waits.has_output() && waits.is_empty());
}

#[test]
fn waits_end_in_the_order_of_their_deadlines() {
    let mut waits = Waits::default();
    for (serial, until_ms) in [(1, 30), (2, 0), (3, 10), (4, 20), (5, 10)] {
        waits.begin(token(serial), vec![run(0)], until_ms);
        waits.parked(&Token { part: PARKED, ..token(serial) });
    }
    assert_eq!(waits.next_deadline_ms(), Some(10));
    waits.time_out(9);
    assert_eq!(statuses(&mut waits), []);
    waits.time_out(20);
    let over = Status::NotFound;
    assert_eq!(statuses(&mut waits), [(3, over), (5, over), (4, over)]);
    assert_eq!(waits.next_deadline_ms(), Some(30));
    assert_eq!(waits.forget(1), Some(token(1)));
    assert_eq!((waits.next_deadline_ms(), waits.len()), (None, 1));
    assert_eq!(statuses(&mut waits), []);
}

#[test]
fn a_wait_ends_by_time_only_once_all_of_its_keys_were_looked_at() {
    let mut waits = Waits::default();
    waits.begin(token(1), vec![run(0), run(1)], 5);
    waits.time_out(6);
    assert_eq!((waits.next_deadline_ms(), statuses(&mut waits)), (None, vec![]));
    waits.parked(&Token { part: PARKED, ..token(1) });
    waits.time_out(7);
    assert_eq!(statuses(&mut waits), []);
    // The second shard has nothing for it either.
    waits.parked(&Token { part: PARKED, shard: 1, ..token(1) });
    assert_eq!(statuses(&mut waits), [(1, Status::NotFound)]);
    // One that has something answers.
    waits.begin(token(2), vec![run(0)], 5);
    waits.time_out(6);
    waits.answered(&token(2));
    assert!(statuses(&mut waits).is_empty() && waits.is_empty());
}

const SHARDS: usize = 3;
const KEYS: usize = 6;

/// Shards and their threads. Mail between two of them keeps its order, and takes any time. What a
/// request waits for is the only field of a hash, which it removes.
struct World {
    random: Random,
    shards: Vec<(Shard, LargeJobs)>,
    /// By sender and receiver.
    mail: BTreeMap<(usize, usize), VecDeque<Mail>>,
    now: Now,
    /// What the requests were answered, by the numbers of their connections.
    answers: BTreeMap<u64, Status>,
    /// Elements that were put into keys, and that requests took.
    put: u64,
    taken: u64,
    /// The keys of each request, and the requests of connections that are closed.
    asked: BTreeMap<u64, Vec<usize>>,
    closed: BTreeSet<u64>,
}

enum Mail {
    Job(Job),
    Reply(Token, OwnedReply),
}

fn key(number: usize) -> Vec<u8> {
    format!("k{number}").into_bytes()
}

/// The operations: putting the field, removing it.
fn operation(puts: bool, act: impl FnOnce(Request<'_>)) {
    let mut list = Vec::new();
    Items::push(&mut list, b"f");
    if puts {
        Items::push(&mut list, b"v");
    }
    let items = Items::parse(&list).unwrap();
    act(match puts {
        true => HashCommand::SetAbsent { pair: items }.request(),
        false => HashCommand::Remove { names: items }.request(),
    });
}

impl World {
    fn new(seed: u64) -> Self {
        let shard = |_| {
            let owner = Owner::heap(4 << 20, NoJournal);
            (Shard::new(owner, ShardOptions::default()), LargeJobs::default())
        };
        Self {
            random: Random::new(seed),
            shards: (0..SHARDS).map(shard).collect(),
            mail: BTreeMap::new(),
            now: Now { unix_ms: 1_000, since_start_s: 1 },
            answers: BTreeMap::new(),
            put: 0,
            taken: 0,
            asked: BTreeMap::new(),
            closed: BTreeSet::new(),
        }
    }

    fn below(&mut self, end: usize) -> usize {
        self.random.below(end as u64) as usize
    }

    /// A key's number says its shard.
    fn put(&mut self, number: usize) {
        let (shard, _) = &mut self.shards[number % SHARDS];
        let (key, now) = (key(number), self.now);
        let mut is_new = 0;
        operation(true, |request| {
            let hash = shard.hash(&key);
            is_new = shard.execute(&Command::Of { key: &key, request }, hash, now).number;
        });
        self.put += is_new as u64;
    }

    fn block(&mut self, serial: u64) {
        let mut runs: Vec<Run> = Vec::new();
        for _ in 0..=self.below(4) {
            let number = self.below(KEYS);
            self.asked.entry(serial).or_default().push(number);
            let (key, shard) = (key(number), number % SHARDS);
            let mut command = Vec::new();
            operation(false, |request| {
                Command::Of { key: &key, request }.encode_within(Database::ZERO, 0, &mut command);
            });
            match runs.last_mut() {
                Some(run) if run.shard == shard => run.commands.push(command.into()),
                _ => runs.push(Run { shard, commands: vec![command.into()] }),
            }
        }
        let home = serial as usize % SHARDS;
        let until_ms = [0, self.now.unix_ms + 1 + self.below(40) as u64][self.below(2)];
        let token = Token { home, ..token(serial) };
        self.shards[home].1.waits.begin(token, runs, until_ms);
    }

    /// One turn of a shard's thread.
    fn turn(&mut self, at: usize) {
        let senders: Vec<usize> = (0..SHARDS).filter(|_| self.random.below(2) == 0).collect();
        for from in senders {
            let Some(mail) = self.mail.get_mut(&(from, at)).and_then(VecDeque::pop_front) else {
                continue;
            };
            let (shard, jobs) = &mut self.shards[at];
            match mail {
                Mail::Job(job) => jobs.execute(shard, job, self.now),
                Mail::Reply(token, _) if token.part == PARKED => jobs.waits.parked(&token),
                Mail::Reply(token, reply) => {
                    jobs.waits.answered(&token);
                    self.taken += reply.number as u64;
                    let before = self.answers.insert(token.serial, reply.status);
                    assert_eq!(before, None, "a request is answered once");
                }
            }
        }
        let (shard, jobs) = &mut self.shards[at];
        jobs.waits.time_out(self.now.unix_ms);
        jobs.turn(shard, self.now);
        while let Some((to, job)) = jobs.waits.pop_job() {
            self.mail.entry((at, to)).or_default().push_back(Mail::Job(job));
        }
        while let Some((token, reply)) = jobs.pop_reply() {
            self.mail.entry((at, token.home)).or_default().push_back(Mail::Reply(token, reply));
        }
    }

    /// Another client ends a wait, or its own client goes.
    fn end(&mut self, serial: u64) {
        let is_closed = self.below(3) == 0;
        let waits = &mut self.shards[serial as usize % SHARDS].1.waits;
        if !is_closed {
            waits.end(serial, Status::Unblocked);
            return;
        }
        if waits.forget(serial).is_some() {
            self.closed.insert(serial);
        }
    }

    fn waiting(&self) -> usize {
        self.shards.iter().map(|(_, jobs)| jobs.waits.len()).sum()
    }

    /// Nobody waits for a key that holds something.
    fn check_waiting(&mut self) {
        for (serial, keys) in &self.asked {
            if !self.shards[*serial as usize % SHARDS].1.waits.has_parked(*serial) {
                continue;
            }
            for &number in keys {
                let (shard, _) = &mut self.shards[number % SHARDS];
                let (key, now) = (key(number), self.now);
                let there = shard.execute(&Command::Exists { key: &key }, shard.hash(&key), now);
                assert_eq!(there.number, 0, "request {serial}, key {number}");
            }
        }
    }

    /// Everything under way arrives.
    fn settle(&mut self) {
        for _ in 0..500 {
            (0..SHARDS).for_each(|at| self.turn(at));
        }
        assert!(self.mail.values().all(VecDeque::is_empty), "nothing is under way for ever");
    }

    fn keys(&self) -> u64 {
        self.shards.iter().map(|(shard, _)| shard.keys()).sum()
    }
}

#[test]
fn over_shards_each_element_goes_to_one_request_and_each_request_has_one_answer() {
    for seed in 0..40 {
        let mut world = World::new(seed);
        let mut begun = 0;
        for _ in 0..400 {
            match world.below(8) {
                0 | 1 => {
                    world.block(begun);
                    begun += 1;
                }
                2 | 3 => {
                    let number = world.below(KEYS);
                    world.put(number);
                }
                4 => world.now.unix_ms += 1,
                5 if begun > 0 => {
                    let serial = world.below(begun as usize) as u64;
                    world.end(serial);
                }
                at => world.turn(at % SHARDS),
            }
        }
        world.settle();
        world.check_waiting();
        assert_eq!(
            world.put,
            world.taken + world.keys(),
            "{seed}: nothing is lost, or taken twice"
        );
        let ended = world.answers.len() + world.closed.len();
        assert_eq!(ended + world.waiting(), begun as usize, "{seed}: nobody is forgotten");
        let served = world.answers.values().filter(|status| **status == Status::Ok).count();
        assert_eq!(served as u64, world.taken, "{seed}: an answer is an element");
        let keys = world.keys();
        (0..SHARDS).for_each(|at| world.shards[at].1.waits.end_all(Status::WaitEnded));
        world.settle();
        let left: usize = world.shards.iter().map(|(shard, _)| shard.waiters()).sum();
        assert_eq!((world.keys(), left, world.waiting()), (keys, 0, 0), "{seed}");
    }
}
