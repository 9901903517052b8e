//! The server of a compared world: shards on cores, sessions, heartbeats.

use super::core::{Absences, Core, Load};
use super::costs::{Costs, Port, Way};
use super::gate::lock;
use super::watched::{FirstRead, Watched};
use crate::clock::HostClock;
use remora_arena::{Mapping, NoJournal, Owner, ReadView, Words};
use remora_client_core::{Clock, Parts};
use remora_engine::{Now, Shard, ShardOptions};
use remora_fabric::remote::{CLIENT_LARGE, CLIENT_MAILBOX};
use remora_fabric::sim::{SimJournal, SimLink, SimStage, SimTarget, SimWorld};
use remora_fabric::{AnyLink, Link, RemoteAddress, Work};
use remora_index::hash::TableRef;
use remora_layout::hash::KeyHash;
use remora_layout::hello::{HELLO_MAGIC, PROTOCOL_VERSION, ServerHello};
use remora_layout::immediate::shard_of;
use remora_layout::lag::Lag;
use remora_layout::limits::{HEARTBEAT_MS, LARGE_BUFFER_BYTES};
use remora_layout::session::{CLIENT_CLOCK_WORD, HEARTBEAT_WORD, Heartbeat, mailbox_bytes};
use remora_layout::slot::SlotTable;
use remora_protocol::Command;
use remora_protocol::message::Status;
use remora_ring::WRITE_ID;
use remora_server::TurnView;
use remora_server::ring_session::{ClientEnd, RemoteEnd, RingParts, RingSession};
use std::sync::{Arc, Mutex};
use zerocopy::FromZeros;

const MS: u64 = 1_000_000;
/// Any number: nothing here is secret.
const SEED: u64 = 0x7265_6d6f_7261;
const INCARNATION: u64 = 1;

/// The server's state of a session.
struct Session {
    to_server: Words,
    heart: SimLink,
    beats: u64,
}

/// A server. Cheap to clone.
#[derive(Clone)]
pub struct Server {
    world: SimWorld,
    costs: Costs,
    cores: Vec<Core>,
    /// Its port.
    pub port: Port,
    /// The thread that executes READs, where one does.
    pub agent: SimStage,
    sessions: Arc<Mutex<Vec<Session>>>,
    /// The work of all cores in total.
    total: Arc<Mutex<Load>>,
}

impl Server {
    /// A server whose shards have arenas of these bytes each.
    pub fn new(world: &SimWorld, costs: &Costs, arena_bytes: &[usize], buckets: u64) -> Self {
        let core = |(region, &bytes)| {
            let owner = Owner::heap(bytes, NoJournal);
            let hash_seed = SEED;
            let (incarnation, record_secret) = (INCARNATION, SEED);
            let options = ShardOptions {
                region,
                incarnation,
                hash_seed,
                record_secret,
                buckets,
                ..ShardOptions::default()
            };
            Core::new(world, costs, Shard::new(owner, options))
        };
        let cores = (0u32..).zip(arena_bytes).map(core).collect();
        Self {
            world: world.clone(),
            costs: *costs,
            cores,
            port: Port::default(),
            agent: SimStage::new(),
            sessions: Arc::default(),
            total: Arc::default(),
        }
    }

    /// Executes a command of the time before the world began.
    pub fn prepare(&self, command: &Command<'_>) {
        let key = command.key().expect("it is about a key or tree");
        let hash = KeyHash::of(key, SEED);
        let shard = SlotTable::even(self.cores.len()).shard_of(key);
        self.cores[shard].with_shard(|shard| {
            let now = Now { unix_ms: 1, since_start_s: 0 };
            // Bounded: a tree is built in a finite number of steps.
            let status = loop {
                match shard.execute(command, hash, now).status {
                    Status::InPieces => {}
                    status => break status,
                }
            };
            assert_eq!(status, Status::Ok, "there is room for what is prepared");
        });
    }

    /// From now on the cores' own work takes this percentage of its time.
    pub fn set_pace(&self, percent: u64) {
        self.cores.iter().for_each(|core| core.set_pace(percent));
    }

    /// When the cores will not be there.
    pub fn set_absences(&self, absences: Absences) {
        self.cores.iter().for_each(|core| core.set_absences(absences));
    }

    /// Grants a session to a thread of a machine.
    pub fn connect(
        &self,
        machine: &Port,
        thread: &SimStage,
        first_read: &FirstRead,
        has_searches: bool,
    ) -> Parts {
        let way = Way { server: &self.port, agent: &self.agent, machine, thread };
        let (from_client, from_server) = (self.costs.from_client(way), self.costs.from_server(way));
        let mut sessions = lock(&self.sessions);
        let (index, shards) = (sessions.len(), self.cores.len());
        let number = index as u64 + 1;
        let to_server = Words::new(Mapping::heap(mailbox_bytes(shards)));
        let to_client = Words::new(Mapping::heap(mailbox_bytes(shards)));
        let large = Words::new(Mapping::heap(LARGE_BUFFER_BYTES));
        let (target, back) = (SimTarget::new(), SimTarget::new());
        let view = |core: &Core| core.with_shard(|shard| shard.owner().view().clone());
        let arenas: Arc<[ReadView]> = self.cores.iter().map(view).collect();
        for (region, view) in (0u32..).zip(&*arenas) {
            // READs take effect at one instant: the journal is not used.
            target.expose(region, view.clone(), SimJournal::new());
        }
        target.mailbox(shards as u32, to_server.clone());
        back.mailbox(CLIENT_MAILBOX, to_client.clone());
        back.mailbox(CLIENT_LARGE, large.clone());
        let link = || SimLink::with_costs(&self.world, &back, Arc::clone(&from_server));
        for (shard, core) in self.cores.iter().enumerate() {
            core.attach(RingSession::new(RingParts {
                session: number,
                seed: SEED ^ number,
                shard,
                incarnation: INCARNATION,
                arenas: Arc::clone(&arenas),
                touched: Arc::default(),
                to_server: to_server.view(),
                link: AnyLink::Other(Box::new(core.gate().link(link(), has_searches))),
                client: ClientEnd::Remote(RemoteEnd::unmarked(shard)),
                large: None,
                violated: Arc::default(),
                threads: Arc::default(),
                searches: Arc::default(),
                view: TurnView::of_primary(),
            }));
        }
        let cores = self.cores.clone();
        target.on_immediate(move |imm| cores[shard_of(imm)].arrive(index));
        sessions.push(Session { to_server, heart: link(), beats: 0 });
        let tables: Vec<TableRef> =
            self.cores.iter().map(|core| core.with_shard(|shard| shard.table_ref())).collect();
        let mut hello = ServerHello::new_zeroed();
        hello.magic = HELLO_MAGIC.into();
        hello.version = PROTOCOL_VERSION.into();
        hello.session = number.into();
        hello.incarnation = INCARNATION.into();
        hello.epoch = 1.into();
        hello.session_seed = (SEED ^ number).into();
        hello.hash_seed = SEED.into();
        let regions = tables.iter().map(|table| table.region);
        hello.tell_shards(regions, &SlotTable::even(shards));
        let link = {
            let (world, first_read) = (self.world.clone(), first_read.clone());
            move || {
                let mut link = SimLink::with_costs(&world, &target, Arc::clone(&from_client));
                link.listen(&back);
                AnyLink::Other(Box::new(Watched::new(&world, link, &first_read)))
            }
        };
        let clock = HostClock::new(&self.world, MS, 0);
        let clock = Clock::Given(Arc::new(move || clock.now_ns()));
        let (to_client, large, link) = (to_client.view(), large.view(), Box::new(link));
        Parts { hello, tables, to_client, large, link, clock, pointers: None }
    }

    /// The cores' work since the last call.
    fn measure(&self) -> Load {
        let mut load = Load::default();
        for core in &self.cores {
            load.add(&core.take_load());
        }
        lock(&self.total).add(&load);
        load
    }

    /// Writes heartbeats every `HEARTBEAT_MS` from now on.
    pub fn beat(&self) {
        let load = self.measure();
        let wall_ns = HEARTBEAT_MS * MS * self.cores.len() as u64;
        let utilisation_ppm = (load.busy_ns * 1_000_000 / wall_ns).min(1_000_000);
        let wait_ns = load.waited_ns.checked_div(load.requests).unwrap_or(0);
        let told = (utilisation_ppm as u32, wait_ns.min(u32::MAX.into()) as u32);
        for (number, session) in (1u64..).zip(lock(&self.sessions).iter_mut()) {
            session.beat(number, told, self.world.now_ns() / MS + 1);
        }
        let server = self.clone();
        self.world.schedule(HEARTBEAT_MS * MS, move || server.beat());
    }

    /// The cores' work so far. Called at a heartbeat's time, because the next one reports the work
    /// from then on.
    pub fn load(&self) -> Load {
        self.measure();
        *lock(&self.total)
    }
}

impl Session {
    fn beat(&mut self, session: u64, (utilisation_ppm, wait_ns): (u32, u32), server_unix_ms: u64) {
        self.beats += 1;
        let beat = Heartbeat {
            sequence: self.beats,
            utilisation_ppm_plus_1: utilisation_ppm + 1,
            wait_ns,
            incarnation: INCARNATION,
            epoch: 1,
            topology: 0,
            server_unix_ms,
            echoed_client_clock_ns: self.to_server.load(CLIENT_CLOCK_WORD),
            session,
            lag: Lag::PRIMARY,
        };
        let bytes: Vec<u8> = beat.to_words().iter().flat_map(|word| word.to_le_bytes()).collect();
        let to = RemoteAddress { region: CLIENT_MAILBOX, offset: HEARTBEAT_WORD as u64 * 8 };
        self.heart.post(&[Work::Write { id: WRITE_ID, to, bytes: &bytes, imm: None }]);
        while self.heart.poll().is_some() {}
    }
}
