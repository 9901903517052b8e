//! A client process alone with a server.

#![allow(dead_code, reason = "not every test file needs everything")]

use remora_client_core::{
    Client, Counts, Options, Path, PointerCacheKind, Policy, ServedBy, Session, Wake,
};
use remora_engine::{Durability, ShardOptions};
use remora_fabric::sim::{SimOptions, SimWorld, Tasks};
use remora_replica::AskFor;
use remora_sim::clock::HostClock;
use remora_sim::disk::{DiskSwarm, IDENTITY};
use remora_sim::faults::Faults;
use remora_sim::node::{Node, NodeOptions};
use remora_sim::tasks::Coroutines;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

pub const MS: u64 = 1_000_000;

/// The handles of a client's task.
pub struct Alone {
    pub world: SimWorld,
    pub client: Client,
    node: Rc<RefCell<Node>>,
    server: u64,
}

impl Alone {
    pub fn session(&self) -> Session {
        self.client.session().expect("a free number")
    }

    /// The server's clock.
    pub fn unix_ms(&self) -> u64 {
        self.node.borrow().unix_ms()
    }

    /// Lets the client stand still for so long.
    pub fn pause(&self, ns: u64) {
        let until_ns = self.world.now_ns() + ns;
        let task = Coroutines.current().expect("it runs");
        while self.world.now_ns() < until_ns {
            self.world.suspend_until(task, until_ns);
        }
    }

    /// Keeps a shard busy with one long step, for this time; heartbeats continue.
    pub fn occupy_shard(&self, shard: usize, ns: u64) {
        self.node.borrow_mut().occupy_shard(shard, ns);
    }

    /// Heartbeats say from now on that the server is so busy: parts per million.
    pub fn tell_utilisation(&self, ppm: u32) {
        self.node.borrow_mut().tell_utilisation(ppm);
    }

    /// Keeps shard 0 busy for so long, as soon as the client has taken memory
    /// for a large reply.
    pub fn occupy_during_large_reply(&self, ns: u64) {
        let (client, world) = (self.client.clone(), self.world.clone());
        let node = Rc::clone(&self.node);
        Coroutines::spawn(&self.world, move || {
            let task = Coroutines.current().expect("it runs");
            while client.data_buffers().busy_bytes == 0 {
                world.suspend_until(task, world.now_ns() + 1_000);
            }
            node.borrow_mut().occupy_shard(0, ns);
        });
    }

    /// Removed objects keep their memory until the next tick.
    pub fn release_in_ticks(&self) {
        self.node.borrow_mut().release_in_ticks();
    }

    /// The disk hangs; the server lives on.
    pub fn hang_disk(&self) {
        self.node.borrow_mut().hang_disk();
    }

    /// Audits the server's memory.
    pub fn audit(&self) {
        self.node.borrow_mut().audit("when it was asked for");
    }

    /// Lets the server stand still for so long, heartbeats too.
    pub fn stall_server(&self, ns: u64) {
        self.stall_server_after(0, ns);
    }

    /// The same, some time later.
    pub fn stall_server_after(&self, after_ns: u64, ns: u64) {
        let server = self.server;
        self.world.schedule(after_ns, move || Coroutines::stop(server));
        self.world.schedule(after_ns + ns, move || Coroutines::go_on(server));
    }
}

/// Runs `body` as the client's task, with a server of one shard that audits its
/// memory while it serves. A known pointer is read, all else is asked.
pub fn alone(pointer_cache: PointerCacheKind, body: impl FnOnce(&Alone) + 'static) {
    alone_with(1, true, pointer_cache, body);
}

/// The same with so many shards.
pub fn alone_with(
    shards: usize,
    audits: bool,
    pointer_cache: PointerCacheKind,
    body: impl FnOnce(&Alone) + 'static,
) {
    run_alone(options(shards, audits), Policy::Pointer, pointer_cache, body);
}

/// As [`alone`], with a disk: changes become durable some microseconds later.
pub fn alone_with_disk(pointer_cache: PointerCacheKind, body: impl FnOnce(&Alone) + 'static) {
    let disk = Some(DiskSwarm::quick());
    let shard = ShardOptions {
        durability: Durability::Told,
        log_secret: IDENTITY.secret,
        ..ShardOptions::default()
    };
    let options = NodeOptions { disk, shard, ..options(1, true) };
    run_alone(options, Policy::Pointer, pointer_cache, body);
}

/// The same by another policy.
pub fn alone_by(
    policy: Policy,
    pointer_cache: PointerCacheKind,
    body: impl FnOnce(&Alone) + 'static,
) {
    run_alone(options(1, true), policy, pointer_cache, body);
}

fn options(shards: usize, audits: bool) -> NodeOptions {
    NodeOptions {
        disk: None,
        min_replicas: 0,
        replica_acks: AskFor::Some,
        shards,
        arena_bytes: 8 << 20,
        shard: ShardOptions::default(),
        clock_gains_ppm: 0,
        pointer_lines: 0,
        release_percent: 100,
        sweep_percent: 100,
        audits,
    }
}

fn run_alone(
    options: NodeOptions,
    policy: Policy,
    pointer_cache: PointerCacheKind,
    body: impl FnOnce(&Alone) + 'static,
) {
    let world = SimWorld::new(SimOptions::default());
    world.run_tasks_by(Coroutines);
    let faults = Rc::new(Faults::new(&world, BTreeMap::new()));
    let node = Rc::new(RefCell::new(Node::new(&world, options, faults)));
    node.borrow_mut().start();
    let parts = node.borrow_mut().connect(&HostClock::new(&world, MS, 0)).expect("it is up");
    let serves = Rc::clone(&node);
    let server = Coroutines::spawn(&world, move || Node::run(&serves));
    let options = Options { wake: Wake::Event, pointer_cache, policy, ..Options::default() };
    let client = Client::over(parts, &options).expect("no process forks here");
    let alone = Alone { world: world.clone(), client, node: Rc::clone(&node), server };
    let client = Coroutines::spawn(&world, move || body(&alone));
    let ran = catch_unwind(AssertUnwindSafe(|| {
        while Coroutines::is_alive(client) {
            assert!(world.step(u64::MAX), "the server's ticks do not end");
        }
    }));
    if let Err(panic) = ran {
        Coroutines::abandon_all();
        resume_unwind(panic);
    }
    node.borrow_mut().close();
    assert!(node.borrow().violations.is_empty(), "the client is honest");
    assert_eq!(node.borrow().misfits, [""; 0]);
    Coroutines::forget_all();
    world.forget_all();
}

/// The result and the cost of one read.
#[derive(PartialEq, Debug)]
pub struct Seen {
    pub value: Option<Vec<u8>>,
    pub served_by: ServedBy,
    pub counts: Counts,
}

/// Reads one key, by itself or as a batch of one.
pub fn read(session: &mut Session, key: &[u8], in_batch: bool, path: Path) -> Seen {
    if !in_batch {
        let got = session.get(key, path).expect("an answer");
        return Seen {
            value: got.value.map(<[u8]>::to_vec),
            served_by: got.served_by,
            counts: got.counts,
        };
    }
    let mut found = None;
    let mut each =
        |_, value: Option<&[u8]>, served_by| found = Some((value.map(<[u8]>::to_vec), served_by));
    let counts = session.get_batch(&[key], path, &mut each).expect("an answer");
    let (value, served_by) = found.expect("the key's answer");
    Seen { value, served_by, counts }
}
