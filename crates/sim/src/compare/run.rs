//! One run of a workload under one policy: threads with sessions of the real
//! client, until the last phase is over.

use super::Policy;
use super::costs::Port;
use super::server::Server;
use super::watched::FirstRead;
use super::work::{Admits, Does, Phase, Workload, key_name, unit};
use crate::tasks::Coroutines;
use remora_client_core::{
    Admission, CachePolicy, Client, ConcurrencyLimit, Issue, KeyForm, OpenOrdered, OpenTree,
    Options, OrderedCache, OrderedSettings, Path, PointerCacheKind, Predicate, Query, Session,
    TreeRead, TreeSettings, Wake,
};
use remora_fabric::sim::{Random, SimOptions, SimStage, SimWorld, Tasks};
use remora_layout::limits::STAGE_OBJECTS;
use remora_layout::packed::Field;
use remora_protocol::Command;
use remora_protocol::ordered::OrderedCommand;
use remora_protocol::tree::{Objects, TreeCommand};
use remora_protocol::{Condition, Expiry};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

const MS: u64 = 1_000_000;
/// By this time every thread has its session, its view of the tree, its pointers.
const BEGINS_NS: u64 = 500 * MS;
const TREE: &[u8] = b"places";
const ORDERED: &[u8] = b"ordered";
/// Entries of an ordered tree's nodes, as in Fat-B+Tree.
const FAN_OUT: usize = 16;
/// Bytes of an arena that a tree or keys lie in, for each of them.
const OBJECT_BYTES: usize = 160;
const KEY_BYTES: usize = 256;

/// The result of one phase's operations.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct Tally {
    /// Operations that ended within the run.
    pub operations: u64,
    /// How long they took, all together; ns.
    pub latency_ns: u64,
    /// Those that READs answered.
    pub read: u64,
    /// The time of those READs, from the first one's posting; ns.
    pub walk_ns: u64,
    /// Nodes that were visited, at either end.
    pub nodes: u64,
    /// Objects that were found.
    pub found: u64,
}

impl Tally {
    fn add(&mut self, other: &Self) {
        self.operations += other.operations;
        self.latency_ns += other.latency_ns;
        self.read += other.read;
        self.walk_ns += other.walk_ns;
        self.nodes += other.nodes;
        self.found += other.found;
    }

    /// Mean time of an operation, ns.
    pub fn mean_ns(&self) -> f64 {
        self.latency_ns as f64 / self.operations.max(1) as f64
    }
}

/// The result of a run.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// Each phase's operations, by when they began.
    pub phases: Vec<Tally>,
    /// How long the phases took together, ns.
    pub lasted_ns: u64,
    /// Busy share of the server's cores.
    pub utilisation: f64,
    /// Busy share of the server's port outwards.
    pub port: f64,
}

impl Outcome {
    /// All phases together.
    pub fn total(&self) -> Tally {
        let mut total = Tally::default();
        self.phases.iter().for_each(|phase| total.add(phase));
        total
    }

    /// Operations a second.
    pub fn per_second(&self) -> f64 {
        self.total().operations as f64 * 1e9 / self.lasted_ns as f64
    }
}

/// State that the threads of a run share.
struct Run {
    world: SimWorld,
    work: Workload,
    policy: Policy,
    tallies: RefCell<Vec<Tally>>,
}

/// Runs a workload.
pub fn run(work: &Workload, policy: Policy) -> Outcome {
    let world = SimWorld::new(SimOptions::default());
    world.run_tasks_by(Coroutines);
    let server = prepared(&world, work);
    let machine = |_| (Port::default(), coordination(work.admits));
    let machines: Vec<(Port, ConcurrencyLimit)> = (0..work.machines).map(machine).collect();
    let tallies = RefCell::new(vec![Tally::default(); work.phases.len()]);
    let run = Rc::new(Run { world: world.clone(), work: work.clone(), policy, tallies });
    for number in 0..work.threads() {
        let (run, server) = (Rc::clone(&run), server.clone());
        let machine = machines[number % work.machines].clone();
        Coroutines::spawn(&world, move || Thread::new(&run, &server, machine, number).run());
    }
    server.beat();
    server.set_absences(work.absences);
    while world.step(BEGINS_NS) {}
    let before = (server.load(), server.port.out.busy_ns());
    let ends_ns = BEGINS_NS + work.phases.iter().map(|phase| phase.ms * MS).sum::<u64>();
    let mut begins_ns = BEGINS_NS;
    for phase in &work.phases {
        server.set_pace(phase.pace_percent);
        begins_ns += phase.ms * MS;
        while world.step(begins_ns) {}
    }
    let load = server.load().busy_ns - before.0.busy_ns;
    let port_ns = server.port.out.busy_ns() - before.1;
    let lasted_ns = ends_ns - BEGINS_NS;
    Coroutines::forget_all();
    world.forget_all();
    let phases = run.tallies.borrow().clone();
    let utilisation = load as f64 / (lasted_ns * work.cores as u64) as f64;
    Outcome { phases, lasted_ns, utilisation, port: port_ns as f64 / lasted_ns as f64 }
}

/// How one machine's threads are to coordinate themselves.
fn coordination(admits: Admits) -> ConcurrencyLimit {
    let admission = match admits {
        Admits::All => return ConcurrencyLimit::Off,
        Admits::AtMost(most) => Admission::at_most(most),
        Admits::Auto => Admission::auto(),
    };
    ConcurrencyLimit::With(Arc::new(admission))
}

/// A server with the data of a workload.
fn prepared(world: &SimWorld, work: &Workload) -> Server {
    let bytes = (work.objects + work.ordered) as usize * OBJECT_BYTES
        + work.keys as usize * (KEY_BYTES + work.value_bytes);
    let arenas = vec![(bytes + (4 << 20)).next_multiple_of(4096); work.cores];
    let buckets = (work.keys / 4 / work.cores as u64).max(16).next_power_of_two();
    let server = Server::new(world, &work.costs, &arenas, buckets);
    let mut random = Random::new(7);
    let value = vec![7; work.value_bytes];
    for key in 0..work.keys {
        let (condition, expiry) = (Condition::Always, Expiry::Never);
        let key = &key_name(key)[..];
        server.prepare(&Command::Set { key, value: &value, condition, expiry, get: false });
    }
    if work.ordered > 0 {
        let settings =
            OrderedSettings { fan_out: FAN_OUT, ..OrderedSettings::of(KeyForm::Integers) };
        let tell = |command: OrderedCommand<'_>| {
            server.prepare(&Command::Of { key: ORDERED, request: command.request() });
        };
        tell(OrderedCommand::Create(settings));
        for key in 0..work.ordered {
            let value = Field { value: &value, is_link: false };
            tell(OrderedCommand::Set { key: key.to_string().as_bytes(), value });
        }
    }
    if work.objects > 0 {
        let tell = |command: TreeCommand<'_>| {
            let request = command.checked().map(TreeCommand::request).expect("it is a command");
            server.prepare(&Command::Of { key: TREE, request });
        };
        let capacity = work.capacity;
        tell(TreeCommand::Create(TreeSettings { capacity, ..TreeSettings::default() }));
        let ids: Vec<u64> = (0..work.objects).collect();
        for ids in ids.chunks(STAGE_OBJECTS) {
            let mut list = Vec::new();
            ids.iter().for_each(|id| Objects::push(&mut list, *id, &work.object(&mut random)));
            let objects = Objects::parse(&list).expect("whole objects");
            tell(TreeCommand::Stage { load: 1, first: ids[0] == 0, objects });
        }
        tell(TreeCommand::Build { load: 1 });
    }
    server
}

/// One thread of a client machine.
struct Thread {
    run: Rc<Run>,
    session: Session,
    /// Sessions that only take numbers: by its own a session knows which of
    /// the server's threads to ask.
    _spares: Vec<Session>,
    tree: Option<OpenTree>,
    ordered: Option<OpenOrdered>,
    random: Random,
    first_read: FirstRead,
    number: usize,
    task: u64,
}

impl Thread {
    fn new(
        run: &Rc<Run>,
        server: &Server,
        (machine, coordination): (Port, ConcurrencyLimit),
        number: usize,
    ) -> Self {
        let work = &run.work;
        let options = Options {
            wake: Wake::Event,
            pointer_cache: match work.keeps_pointers {
                true => PointerCacheKind::Private,
                false => PointerCacheKind::Off,
            },
            pointer_cache_entries: work.keys as usize,
            policy: run.policy,
            concurrency_limit: coordination,
            ..Options::default()
        };
        let first_read = FirstRead::default();
        let parts = server.connect(&machine, &SimStage::new(), &first_read, work.objects > 0);
        let client = Client::over(parts, &options).expect("no process forks here");
        let session = || client.session().expect("it is connected");
        let spares = (0..number % work.cores).map(|_| session()).collect();
        let mut session = session();
        let tree = (work.objects > 0).then(|| {
            let tree = session.open_tree(TREE).expect("it answers").expect("it is there");
            tree.reading(TreeRead { issue: Issue::Multi, cache_bytes: work.kept_bytes })
        });
        let ordered = (work.ordered > 0).then(|| {
            let mut ordered = session.open_ordered(ORDERED).expect("its key is short");
            let policy = CachePolicy::Levels;
            ordered.set_cache(OrderedCache { bytes: work.kept_bytes, policy });
            ordered
        });
        if work.keeps_pointers {
            for key in 0..work.keys {
                session.get(&key_name(key), Path::Read).expect("it answers");
            }
        }
        assert!(run.world.now_ns() < BEGINS_NS, "it is ready in time");
        let random = Random::new(1_000 + number as u64);
        let task = Coroutines.current().expect("it runs");
        Self {
            run: Rc::clone(run),
            session,
            _spares: spares,
            tree,
            ordered,
            random,
            first_read,
            number,
            task,
        }
    }

    fn sleep_until(&self, until_ns: u64) {
        // Events for it meanwhile may wake it.
        while self.run.world.now_ns() < until_ns {
            self.run.world.suspend_until(self.task, until_ns);
        }
    }

    fn run(mut self) {
        let run = Rc::clone(&self.run);
        let mut ends_ns = BEGINS_NS;
        for (index, phase) in run.work.phases.iter().enumerate() {
            let mut due_ns = ends_ns;
            ends_ns += phase.ms * MS;
            while self.number < phase.threads {
                match phase.every_ns {
                    None => due_ns = due_ns.max(run.world.now_ns()),
                    Some(mean) => {
                        due_ns += (-(1.0 - unit(&mut self.random)).ln() * mean as f64) as u64
                    }
                }
                if due_ns >= ends_ns {
                    break;
                }
                self.sleep_until(due_ns);
                self.first_read.take();
                let mut tally = self.operate(phase);
                if let Some(from_ns) = self.first_read.take().filter(|_| tally.read > 0) {
                    tally.walk_ns = run.world.now_ns() - from_ns;
                }
                tally.operations = 1;
                tally.latency_ns = run.world.now_ns() - due_ns;
                run.tallies.borrow_mut()[index].add(&tally);
                self.sleep_until(run.world.now_ns() + run.work.costs.thread_op_ns);
            }
            self.sleep_until(ends_ns);
        }
        // Threads that still work at the end of the run are not awaited.
        self.sleep_until(u64::MAX);
    }

    fn operate(&mut self, phase: &Phase) -> Tally {
        if phase.does == Does::Get {
            let key = key_name(self.random.below(self.run.work.keys));
            let got = self.session.get(&key, Path::Choose).expect("it answers");
            assert!(got.value.is_some(), "all keys are there");
            return Tally { read: got.counts.read, ..Tally::default() };
        }
        if phase.does == Does::Find {
            let key = self.random.below(self.run.work.ordered).to_string();
            let ordered = self.ordered.as_mut().expect("there is an ordered tree");
            let got = self.session.ordered_get(ordered, key.as_bytes(), Path::Choose);
            let got = got.expect("it answers");
            assert!(got.value.is_some(), "all keys are there");
            return Tally { read: got.counts.read, nodes: got.nodes_visited, ..Tally::default() };
        }
        let window = self.run.work.window(phase.does, &mut self.random);
        let query = Query::Window { window, predicate: Predicate::Intersects };
        let tree = self.tree.as_mut().expect("there are rectangles");
        let found = self.session.search_tree(tree, &query, Path::Choose).expect("it answers");
        let (read, nodes) = (found.counts.read, found.nodes_visited);
        Tally { read, nodes, found: found.objects.len() as u64, ..Tally::default() }
    }
}
