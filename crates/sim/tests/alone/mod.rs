//! A client process alone with a server of one shard.

use remora_client::{Client, Counts, Options, Path, PointerCacheKind, Policy, Session, Via, Wake};
use remora_engine::ShardOptions;
use remora_fabric::sim::{SimOptions, SimWorld, Tasks};
use remora_sim::clock::HostClock;
use remora_sim::faults::Faults;
use remora_sim::node::{Node, NodeOptions};
use remora_sim::tasks::Coroutines;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

pub const MS: u64 = 1_000_000;

/// What a client's task has in hand.
pub struct Alone {
    pub world: SimWorld,
    client: Client,
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

    /// Lets the server stand still for so long, heartbeats too.
    pub fn stall_server(&self, ns: u64) {
        let server = self.server;
        Coroutines::stop(server);
        self.world.schedule(ns, move || Coroutines::go_on(server));
    }
}

/// Runs `body` as the client's task.
pub fn alone(pointer_cache: PointerCacheKind, body: impl FnOnce(&Alone) + 'static) {
    let world = SimWorld::new(SimOptions::default());
    world.run_tasks_by(Coroutines);
    let options = NodeOptions {
        shards: 1,
        arena_bytes: 8 << 20,
        shard: ShardOptions::default(),
        clock_gains_ppm: 0,
        pointer_lines: 0,
        audits: true,
    };
    let faults = Rc::new(Faults::new(&world, BTreeMap::new()));
    let node = Rc::new(RefCell::new(Node::new(&world, options, faults)));
    node.borrow_mut().start();
    let parts = node.borrow_mut().connect(&HostClock::new(&world, MS, 0)).expect("it is up");
    let serves = Rc::clone(&node);
    let server = Coroutines::spawn(&world, move || Node::run(&serves));
    let options =
        Options { wake: Wake::Event, pointer_cache, policy: Policy::Pointer, ..Options::default() };
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

/// What one read saw and cost.
#[derive(PartialEq, Debug)]
pub struct Seen {
    pub value: Option<Vec<u8>>,
    pub via: Via,
    pub counts: Counts,
}

/// Reads one key, by itself or as a batch of one.
pub fn read(session: &mut Session, key: &[u8], in_batch: bool, path: Path) -> Seen {
    if !in_batch {
        let got = session.get(key, path).expect("an answer");
        return Seen { value: got.value.map(<[u8]>::to_vec), via: got.via, counts: got.counts };
    }
    let mut found = None;
    let mut each = |_, value: Option<&[u8]>, via| found = Some((value.map(<[u8]>::to_vec), via));
    let counts = session.get_batch(&[key], path, &mut each).expect("an answer");
    let (value, via) = found.expect("the key's answer");
    Seen { value, via, counts }
}
