//! Sessions over shared memory: threads of client processes that ask over ring sets of their own,
//! some of them all the time, the others once. Or processes with one thread each whose frames
//! arrive as over a network.
//!
//! Rings, doorbells and sleeps are production's; only the wait for replies is written anew, in a
//! few lines. Each reply must be the next one of its ring, with the value that its key then has.

use crate::node::Process;
use crate::tasks::Coroutines;
use crate::world::World;
use remora_fabric::shm::{Doorbell, ShmLink, asleep};
use remora_fabric::sim::Tasks;
use remora_fabric::{Link, RemoteAddress, Work};
use remora_layout::frame::ring_seed;
use remora_layout::session::{
    CLIENT_ASLEEP_WORD, credit_word, ring_number, ring_offset, set_offset,
};
use remora_layout::slot::SlotTable;
use remora_protocol::Command;
use remora_protocol::message::{ReplyHeader, Status};
use remora_ring::{Poll, Receiver, Sender, WRITE_ID};
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use zerocopy::FromBytes;

/// How long a thread sleeps at most, as in production, ns.
const LONGEST_SLEEP_NS: u64 = 100_000_000;
/// Longest time of a thread between two rounds, ns.
const THINK_NS: u64 = 5_000;
/// Until the threads that ask once have asked, and their processes are parked, ns.
const IDLE_NS: u64 = 20_000_000;

/// One thread's ring pair at one shard.
struct Lane {
    sender: Sender,
    receiver: Receiver,
    doorbell: Doorbell,
    credit_word: usize,
    /// The numbers that are to come, with the ids of their requests.
    expected: VecDeque<(u32, i64)>,
}

/// One thread.
struct Thread {
    world: Rc<World>,
    process: Process,
    set: usize,
    number: usize,
    link: ShmLink,
    lanes: Vec<Lane>,
    slots: Box<SlotTable>,
    task: u64,
    /// Times that it asked each of its keys.
    asked: u64,
    next_id: u16,
}

/// Keys of each thread.
const KEYS: u64 = 32;

/// Begins the tasks of all threads.
pub fn spawn_all(world: &Rc<World>) -> Vec<u64> {
    let Some(crowd) = world.swarm.crowd else { return Vec::new() };
    let mut tasks = Vec::new();
    for process in 0..crowd.processes {
        let granted = world.node.borrow_mut().connect_process(crowd.sessions, crowd.is_remote);
        for set in 0..crowd.sessions {
            // Busy ones are spread over processes.
            let is_busy = set * crowd.processes + process < crowd.busy;
            let number = process * crowd.sessions + set;
            let (world, granted) = (Rc::clone(world), granted.clone());
            let sim = world.sim.clone();
            tasks.push(Coroutines::spawn(&sim, move || {
                let mut thread = Thread::new(world, granted, set, number);
                thread.round(1);
                thread.world.sim.suspend_until(thread.task, IDLE_NS);
                if is_busy {
                    for _ in 0..crowd.rounds {
                        thread.round(crowd.batch);
                        thread.think();
                    }
                }
            }));
        }
    }
    tasks
}

impl Thread {
    fn new(world: Rc<World>, process: Process, set: usize, number: usize) -> Self {
        let shards = process.shards;
        let block = set_offset(shards, set);
        let mut link = ShmLink::new(None);
        link.add_writable(0, process.to_server.clone());
        let lane = |shard| {
            let ring = block + ring_offset(shard);
            let seed = |direction| ring_seed(process.seed, ring_number(set, shard), direction);
            let mailboxes = (process.to_server.clone(), process.to_client.view());
            let bell = process.bells[shard].clone();
            let sender = Sender::new(0, ring as u64, seed(0));
            let receiver = Receiver::new(process.to_client.view(), ring, seed(1));
            let (sender, receiver) = match process.marks {
                Some(_) => (sender, receiver),
                None => (sender.in_short_laps(), receiver.in_short_laps()),
            };
            Lane {
                sender,
                receiver,
                doorbell: Doorbell::new(mailboxes, shards, shard, set, bell),
                credit_word: block / 8 + credit_word(shard),
                expected: VecDeque::new(),
            }
        };
        let lanes = (0..shards).map(lane).collect();
        let slots = Box::new(SlotTable::even(shards));
        let task = Coroutines.current().expect("it runs as a task");
        Self { world, process, set, number, link, lanes, slots, task, asked: 0, next_id: 0 }
    }

    /// Asks so often at once, and takes the replies.
    fn round(&mut self, batch: u64) {
        for _ in 0..batch {
            self.ask();
        }
        self.tell_shards();
        let mut reply = Vec::new();
        while self.lanes.iter().any(|lane| !lane.expected.is_empty()) {
            if !self.take(&mut reply) {
                self.sleep();
            }
        }
    }

    /// Announces frames to the shards that got some, each once for all of them.
    fn tell_shards(&self) {
        let sent = || self.lanes.iter().enumerate().filter(|(_, lane)| !lane.expected.is_empty());
        if self.process.marks.is_some() {
            let shards: Vec<usize> = sent().map(|(shard, _)| shard).collect();
            return self.world.node.borrow().received(&self.process, &shards);
        }
        let signals = sent().map(|(_, lane)| lane.doorbell.ring() as u64).sum();
        if signals > 0 {
            self.world.node.borrow_mut().signalled(signals);
        }
    }

    fn think(&self) {
        let sim = &self.world.sim;
        let until_ns = sim.now_ns() + sim.draw(|random| random.below(THINK_NS));
        sim.suspend_until(self.task, until_ns);
    }

    fn ask(&mut self) {
        let (at, times) = (self.asked % KEYS, self.asked / KEYS);
        self.asked += 1;
        let key = format!("crowd-{}-{at}", self.number);
        let id = (self.set as u32) << 16 | u32::from(self.next_id);
        self.next_id = self.next_id.wrapping_add(1);
        let mut frame = Vec::new();
        Command::Incr { key: key.as_bytes(), by: 1 }.encode_into(id, &mut frame);
        let Self { lanes, link, process, slots, .. } = self;
        let lane = &mut lanes[slots.shard_of(key.as_bytes())];
        let credit = process.to_client.load_acquire(lane.credit_word);
        lane.sender.take_credit(credit).expect("the server gives credit for what it took");
        lane.sender.send(link, &[&frame]).expect("few requests are under way");
        while link.poll().is_some() {}
        lane.expected.push_back((id, times as i64 + 1));
    }

    /// Takes arrived replies. Returns whether there were any.
    fn take(&mut self, reply: &mut Vec<u8>) -> bool {
        let Self { lanes, link, world, number, process, .. } = self;
        let mut has_taken = false;
        for (shard, lane) in lanes.iter_mut().enumerate() {
            reply.clear();
            while let Poll::Frame(_) = lane.receiver.poll(reply) {
                has_taken = true;
                let (header, _) = ReplyHeader::ref_from_prefix(reply).expect("a reply");
                let came = (header.id.get(), header.number.get());
                let expected = lane.expected.pop_front();
                if header.status != Status::Ok as u8 || Some(came) != expected {
                    let seen = format!("session {number}: {came:?}, not {expected:?}");
                    world.history.borrow_mut().violate("each ring has its replies in order", seen);
                }
                reply.clear();
                if let Some(credit) = lane.receiver.credit_due() {
                    let to = RemoteAddress { region: 0, offset: lane.credit_word as u64 * 8 };
                    let bytes = credit.to_le_bytes();
                    link.post(&[Work::Write { id: WRITE_ID, to, bytes: &bytes, imm: None }]);
                    while link.poll().is_some() {}
                    match process.marks {
                        Some(_) => world.node.borrow().received(process, &[shard]),
                        None => lane.doorbell.ring_for_credit(),
                    }
                }
            }
        }
        has_taken
    }

    /// Sleeps until the server signals, unless something has come.
    fn sleep(&self) {
        let block = set_offset(self.process.shards, self.set) / 8;
        let word = self.process.to_server.word(block + CLIENT_ASLEEP_WORD);
        let sim = &self.world.sim;
        let waiting = Arc::new(Mutex::new(Some(self.task)));
        self.world.node.borrow_mut().thread_sleeps(&self.process, self.set, Arc::clone(&waiting));
        let scan = || self.lanes.iter().any(|lane| lane.receiver.has_frame());
        let until_ns = sim.now_ns() + LONGEST_SLEEP_NS;
        asleep::sleep_unless(word, scan, || sim.suspend_until(self.task, until_ns));
        if sim.now_ns() >= until_ns && scan() {
            let seen = format!("session {} slept while its replies were there", self.number);
            self.world.history.borrow_mut().violate("no wake-up is lost", seen);
        }
    }
}
