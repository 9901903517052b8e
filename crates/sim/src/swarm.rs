//! A seed's choices before its world begins: every world is of its own kind.

use crate::collections::{COLLECTION_ARENA_BYTES, COLLECTION_OPERATIONS, CollectionSwarm};
use crate::disk::{DiskSwarm, IDENTITY};
use crate::faults::Fault;
use crate::hashes::HashSwarm;
use crate::key_links::{LINK_OPERATIONS, LinkSwarm};
use crate::lists::{LIST_OPERATIONS, ListSwarm, RING_CLIENTS};
use crate::node::NodeOptions;
use crate::ordered::{ORDERED_OPERATIONS, OrderedSwarm};
use crate::places::PlacesSwarm;
use crate::replicas::ReplicaSwarm;
use crate::resp::RespSwarm;
use crate::sorted::{SORTED_OPERATIONS, SortedSwarm};
use crate::values::{HashName, Lengths, Register};
use remora_engine::evict::Eviction;
use remora_engine::{Durability, ShardOptions};
use remora_fabric::sim::{Random, SimOptions};
use remora_replica::AskFor;
use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::time::Duration;

const MS: u64 = 1_000_000;
/// Mixed into the seed: whether shards stall changes nothing else.
const SHARD_SALT: u64 = 0x7368_6172_645f_6f66;
/// Mixed into the seed: the draw for disks that fail.
const DISK_SALT: u64 = 0x6661_696c_5f6f_6666;
/// Mixed into the seed: the draw for setting the wall clock.
const CLOCK_SALT: u64 = 0x7761_6c6c_5f6f_6674;

/// Mixed into the seed: the draw for a second database.
const DATABASE_SALT: u64 = 0x6461_7461_5f6f_6666;
/// Mixed into the seed: the draw for how soon a sweep meets expired objects.
const SWEEP_SALT: u64 = 0x7377_6565_705f_6f66;
/// Mixed into the seed: the draw for how fast memory is released.
const RELEASE_SALT: u64 = 0x6672_6565_5f6f_6666;

/// Values may be longer than this: few of them are written.
const LARGE_BYTES: u64 = 100_000;
/// Sets of each database, where there are lists.
pub const SETS: u8 = 2;
/// Bytes of a shard's arena where objects go from key to key, and a log is replayed.
const MOVING_ARENA_BYTES: usize = 64 << 20;

/// Operations of a world with replicas at most: each change is carried out several times.
const REPLICATED_OPERATIONS: u64 = 500;
/// Longest values of such a world.
const REPLICATED_VALUE_BYTES: u64 = 8_000;
/// Bytes of each arena: a replica takes room in another order, and may have fewer shards.
const REPLICATED_ARENA_BYTES: usize = 8 << 20;

/// Weights of a client's operations, drawn by each seed.
#[derive(Clone, Copy, Debug)]
pub struct Mix {
    /// Single GETs.
    pub get: u64,
    /// GETs of several keys at once.
    pub get_batch: u64,
    /// SETs, some conditional, some with an expiry.
    pub set: u64,
    /// SETs of several keys at once.
    pub set_many: u64,
    /// DELs.
    pub del: u64,
    /// INCRBYs.
    pub incr: u64,
    /// Runs of submitted requests.
    pub submit: u64,
    /// Most requests of such a run.
    pub most_submitted: u64,
    /// Values written over in place.
    pub edit: u64,
    /// After how many of a thousand operations a session gives way to another
    /// one of its connection, with requests under way.
    pub hand_over: u64,
    /// How many of a hundred SETs carry an expiry.
    pub expiring_percent: u64,
    /// How many of a hundred operations are followed by a pause.
    pub think_percent: u64,
    /// Longest of these pauses, ns.
    pub think_ns: u64,
}

/// A crowd.
#[derive(Clone, Copy, Debug)]
pub struct CrowdSwarm {
    /// Client processes.
    pub processes: usize,
    /// Threads of each, a power of two, each at a ring set of its own.
    pub sessions: usize,
    /// The number of threads that ask all the time.
    pub busy: usize,
    /// How often each of them asks.
    pub rounds: u64,
    /// Requests that it sends at once.
    pub batch: u64,
    /// They come over a network.
    pub is_remote: bool,
}

/// A kind of world.
#[derive(Clone, Debug)]
pub struct Swarm {
    /// Operations to begin, all clients together.
    pub operations: u64,
    /// Clients.
    pub clients: u32,
    /// Databases; clients take turns in them, and their keys have equal names.
    pub databases: u32,
    /// Keys of each database.
    pub keys: u32,
    /// How long values of keys are.
    pub lengths: Lengths,
    /// The clients' operations.
    pub mix: Mix,
    /// Drift of each client's machine, ppm.
    pub client_gains_ppm: Vec<i64>,
    /// Whether all clients are of one machine and share their pointers.
    pub shares_pointers: bool,
    /// The fabric.
    pub fabric: SimOptions,
    /// The server.
    pub node: NodeOptions,
    /// Pointers that a session caches.
    pub cache_entries: usize,
    /// How long an operation may wait.
    pub timeout: Duration,
    /// Chances of faults, in a million.
    pub faults: BTreeMap<Fault, u32>,
    /// RESP.
    pub resp: RespSwarm,
    /// Trees.
    pub places: PlacesSwarm,
    /// Hashes.
    pub hashes: HashSwarm,
    /// Lists and sets. No seed chooses them by itself.
    pub lists: Option<ListSwarm>,
    /// Links. No seed chooses them by itself.
    pub links: Option<LinkSwarm>,
    /// Ordered trees. No seed chooses them by itself.
    pub ordered: Option<OrderedSwarm>,
    /// Sorted sets. No seed chooses them by itself.
    pub sorted: Option<SortedSwarm>,
    /// Collections. No seed chooses them by itself.
    pub collections: Option<CollectionSwarm>,
    /// Sessions over shared memory, at ring sets of their own. No seed chooses them.
    pub crowd: Option<CrowdSwarm>,
    /// Replicas. No seed chooses them by itself.
    pub replicas: Option<ReplicaSwarm>,
    /// Longest time between two chances of a fault that comes from outside, ns.
    pub chance_ns: u64,
}

/// Draws from a seed.
struct Draws(Random);

impl Draws {
    fn within(&mut self, range: RangeInclusive<u64>) -> u64 {
        self.0.within(&range)
    }

    fn one_of<T: Copy, const N: usize>(&mut self, of: [T; N]) -> T {
        of[self.0.below(N as u64) as usize]
    }

    /// True once in this many times.
    fn once_in(&mut self, times: u64) -> bool {
        self.0.below(times) == 0
    }
}

impl Swarm {
    /// The fabric, with the faults of its links.
    pub fn fabric_with_faults(&self) -> SimOptions {
        let ppm = |fault| self.faults.get(&fault).copied().unwrap_or(0);
        let (loss_ppm, stall_ppm) = (ppm(Fault::LinkLost), ppm(Fault::LinkStall));
        SimOptions { loss_ppm, stall_ppm, ..self.fabric.clone() }
    }

    /// The database in which a client works.
    pub fn database_of(&self, client: u32) -> u8 {
        (client % self.databases) as u8
    }

    /// Most bytes of a register's values.
    pub fn lengths_of(&self, register: Register) -> Lengths {
        let (ordered, collections) = (self.ordered, self.collections);
        let own = match register.hash {
            None => return self.lengths,
            Some(HashName::Ordered(_)) => ordered.map(|ordered| ordered.lengths),
            Some(HashName::Collection(_)) => collections.map(|of| of.lengths),
            Some(_) => None,
        };
        own.unwrap_or(self.hashes.lengths)
    }

    /// The fields of a hash.
    pub fn fields(&self, database: u8, hash: HashName) -> impl Iterator<Item = Register> + use<> {
        let field = move |number| Register { database, hash: Some(hash), number };
        let fields = match hash {
            HashName::Links(_) => self.links.map_or(0, |links| links.fields),
            HashName::Ordered(_) => self.ordered.map_or(0, |ordered| ordered.keys),
            HashName::Sorted(_) => self.sorted.map_or(0, |sorted| sorted.members),
            HashName::Collection(_) => self.collections.map_or(0, |of| of.documents),
            _ => self.hashes.fields,
        };
        (0..fields).map(field)
    }

    /// All that clients write in a database, trees and hashes that move apart.
    pub fn registers(&self, database: u8) -> impl Iterator<Item = Register> {
        // INCRBY goes one key further than the others.
        let key = move |number| Register { database, hash: None, number };
        let fields = (0..self.hashes.hashes)
            .flat_map(move |hash| self.fields(database, HashName::Fixed(hash)));
        let sets = if self.lists.is_some() { SETS } else { 0 };
        let members = self.lists.as_ref().map_or(0, |lists| lists.members);
        let members = (0..sets).flat_map(move |set| {
            let hash = Some(HashName::Set(set));
            (0..members).map(move |number| Register { database, hash, number })
        });
        let links = (0..self.links.map_or(0, |links| links.hashes))
            .flat_map(move |hash| self.fields(database, HashName::Links(hash)));
        let ordered = (0..self.ordered.map_or(0, |ordered| ordered.trees))
            .flat_map(move |tree| self.fields(database, HashName::Ordered(tree)));
        let sorted = (0..self.sorted.map_or(0, |sorted| sorted.sets))
            .flat_map(move |set| self.fields(database, HashName::Sorted(set)));
        let documents = (0..self.collections.map_or(0, |of| of.collections))
            .flat_map(move |of| self.fields(database, HashName::Collection(of)));
        let keys = (0..=self.keys).map(key);
        let others = links.chain(ordered).chain(sorted).chain(documents);
        keys.chain(fields).chain(members).chain(others)
    }

    /// The draw of a seed.
    pub fn of(seed: u64, with_faults: bool) -> Self {
        let mut draw = Draws(Random::new(seed));
        let clients = draw.within(1..=6) as u32;
        let lengths = Lengths {
            most_bytes: draw.one_of([8, 100, 100, 2_000, 2_000, 30_000, 30_000, 200_000]),
            one_for_each_key: draw.once_in(2),
        };
        let is_large = lengths.most_bytes > LARGE_BYTES;
        let shards = draw.within(1..=3);
        let (keys, arena_bytes) = Self::memory(&mut draw, lengths, shards);
        // Bursts and pauses: the whole world takes from some milliseconds to half a minute.
        let operations = if is_large { 500 } else { 2_000 };
        let pace_ns = draw.one_of([0, MS, 10 * MS, 60 * MS]);
        let mix = Self::mix(&mut draw, lengths, pace_ns);
        let gains = |drawn: u64| drawn as i64 - 100_000;
        let clock_gains_ppm = gains(draw.within(0..=200_000));
        let shares_pointers = draw.once_in(4);
        let all: Vec<i64> = (0..clients).map(|_| gains(draw.within(0..=200_000))).collect();
        let client_gains_ppm = if shares_pointers { vec![all[0]; all.len()] } else { all };
        let fabric = Self::fabric(&mut draw);
        let shard = Self::shard(&mut draw);
        let disk = DiskSwarm::of(seed, lengths.most_bytes);
        let (shard, arena_bytes) = Self::over_disk(disk.is_some(), shard, arena_bytes);
        let mut node = NodeOptions {
            disk,
            shards: shards as usize,
            arena_bytes: arena_bytes as usize,
            shard,
            clock_gains_ppm,
            pointer_lines: if shares_pointers { draw.one_of([8, 64, 1_024]) } else { 0 },
            audits: !is_large,
            release_percent: Draws(Random::new(seed ^ RELEASE_SALT)).one_of([100, 100, 20, 1]),
            sweep_percent: Draws(Random::new(seed ^ SWEEP_SALT)).one_of([100, 100, 10]),
            min_replicas: 0,
            replica_acks: AskFor::Some,
        };
        let hashes = HashSwarm::of(seed, node.shard.eviction);
        let mut places = PlacesSwarm::of(seed, &fabric, &hashes);
        // The client that moves a tree must know its content.
        places.moves &= node.shard.eviction == Eviction::None;
        if node.disk.is_some() && (hashes.moves || places.moves) {
            // Objects that a client has lost sight of stay.
            node.arena_bytes = node.arena_bytes.max(MOVING_ARENA_BYTES);
        }
        let cache_entries = draw.one_of([0, 1, 64, 4_096]);
        let timeout = Duration::from_millis(draw.one_of([1_000, 5_000]));
        let resp = RespSwarm::of(&mut |range| draw.within(range));
        Self {
            operations,
            clients,
            databases: Draws(Random::new(seed ^ DATABASE_SALT)).one_of([1, 1, 2]),
            keys,
            lengths,
            mix,
            client_gains_ppm,
            shares_pointers,
            fabric,
            node,
            cache_entries,
            timeout,
            resp: if hashes.moves || places.moves { resp.with_moves() } else { resp },
            places,
            hashes,
            lists: None,
            links: None,
            ordered: None,
            sorted: None,
            collections: None,
            crowd: None,
            replicas: None,
            faults: if with_faults { Self::faults(seed, &mut draw) } else { BTreeMap::new() },
            // About as often as something is done.
            chance_ns: (2 * pace_ns / clients as u64).max(MS / 50),
        }
    }

    /// The same world with clients that use lists and sets.
    #[must_use]
    pub fn with_lists(mut self, seed: u64, with_faults: bool) -> Self {
        let lists = ListSwarm::of(seed);
        self.operations = self.operations.min(LIST_OPERATIONS);
        self.clients = self.clients.min(RING_CLIENTS);
        let is_told = self.node.disk.is_some() || self.replicas.is_some();
        // Replies that are held back are not those of a role that lasts.
        self.faults.extend(lists.fault().filter(|_| with_faults && !is_told));
        self.lists = Some(lists);
        self
    }

    /// The same world with links to its keys, and to hashes.
    #[must_use]
    pub fn with_links(mut self, seed: u64) -> Self {
        self.operations = self.operations.min(LINK_OPERATIONS);
        self.hashes.hashes = self.hashes.hashes.max(1);
        self.links = Some(LinkSwarm::of(seed));
        self
    }

    /// The same world with ordered trees.
    #[must_use]
    pub fn with_ordered(mut self, seed: u64) -> Self {
        self.operations = self.operations.min(ORDERED_OPERATIONS);
        self.ordered = Some(OrderedSwarm::of(seed));
        self
    }

    /// The same world with sorted sets.
    #[must_use]
    pub fn with_sorted(mut self, seed: u64) -> Self {
        self.operations = self.operations.min(SORTED_OPERATIONS);
        self.sorted = Some(SortedSwarm::of(seed));
        self
    }

    /// The same world with collections.
    #[must_use]
    pub fn with_collections(mut self, seed: u64) -> Self {
        self.operations = self.operations.min(COLLECTION_OPERATIONS);
        self.node.arena_bytes = self.node.arena_bytes.max(COLLECTION_ARENA_BYTES);
        self.collections = Some(CollectionSwarm::of(seed));
        self
    }

    /// The same world with replicas, so many at most.
    #[must_use]
    pub fn with_replicas(mut self, seed: u64, with_faults: bool, most: usize) -> Self {
        let replicas = ReplicaSwarm::of(seed, self.node.shards, most);
        if with_faults {
            self.faults.extend(replicas.faults);
        }
        self.operations = self.operations.min(REPLICATED_OPERATIONS);
        self.lengths.most_bytes = self.lengths.most_bytes.min(REPLICATED_VALUE_BYTES);
        if let Some(disk) = &mut self.node.disk {
            // With another number of shards there are other logs, and replicas would copy them.
            disk.reshards = false;
        }
        self.node.arena_bytes = self.node.arena_bytes.max(REPLICATED_ARENA_BYTES);
        self.node.min_replicas = replicas.min_replicas;
        self.node.replica_acks = replicas.acks;
        self.node.shard.durability = match replicas.min_replicas > 0 || self.node.disk.is_some() {
            true => Durability::Told,
            false => Durability::Memory,
        };
        self.replicas = Some(replicas);
        self
    }

    /// A shard's options and bytes of its arena, if its log goes to a disk: a replay takes room in
    /// another order, or by fewer shards.
    fn over_disk(has_disk: bool, shard: ShardOptions, arena_bytes: u64) -> (ShardOptions, u64) {
        if !has_disk {
            return (shard, arena_bytes);
        }
        let shard = ShardOptions {
            durability: Durability::Told,
            eviction: Eviction::None,
            log_secret: IDENTITY.secret,
            ..shard
        };
        (shard, arena_bytes.max(24 << 20))
    }

    /// How many keys there are, and bytes of each shard's arena.
    fn memory(draw: &mut Draws, lengths: Lengths, shards: u64) -> (u32, u64) {
        if lengths.most_bytes >= 30_000 && draw.once_in(2) {
            // Just enough memory for the written data, or less.
            let arena_bytes = if lengths.most_bytes > LARGE_BYTES { 4 << 20 } else { 1 << 20 };
            let at_once = shards * arena_bytes / (lengths.most_bytes / 2);
            ((at_once * draw.within(8..=20) / 10) as u32, arena_bytes)
        } else {
            (draw.one_of([1, 3, 10, 60, 400]), draw.one_of([1 << 20, 2 << 20, 8 << 20]))
        }
    }

    /// The clients' operations at a world's pace.
    fn mix(draw: &mut Draws, lengths: Lengths, pace_ns: u64) -> Mix {
        let think_percent = draw.one_of([2, 10, 50]);
        // Requests that wait for room in their ring.
        let fills_rings = draw.once_in(6);
        Mix {
            get: 10 + draw.within(0..=60),
            get_batch: draw.within(0..=10),
            set: 5 + draw.within(0..=30),
            set_many: draw.within(0..=5),
            del: draw.within(0..=6),
            incr: draw.within(0..=10),
            submit: if fills_rings { draw.within(5..=30) } else { draw.within(0..=4) },
            most_submitted: if fills_rings { 300 } else { draw.one_of([3, 20, 20]) },
            edit: if lengths.one_for_each_key { draw.within(0..=10) } else { 0 },
            hand_over: draw.one_of([0, 5, 50]),
            expiring_percent: draw.one_of([0, 10, 50]),
            think_percent,
            think_ns: 1 + 2 * pace_ns * 100 / think_percent,
        }
    }

    fn shard(draw: &mut Draws) -> ShardOptions {
        ShardOptions {
            hash_seed: draw.within(0..=u64::MAX - 1),
            record_secret: draw.within(0..=u64::MAX - 1),
            buckets: 1 << draw.within(0..=4),
            lease_min_s: 1,
            eviction: if draw.once_in(4) { Eviction::S3Fifo } else { Eviction::None },
            quarantine_bytes: draw.one_of([0, 0, 4_096]),
            last_generation: draw.one_of([u32::MAX, u32::MAX, 300, 20]),
            ..ShardOptions::default()
        }
    }

    fn fabric(draw: &mut Draws) -> SimOptions {
        let is_slow = draw.once_in(4);
        let most = if is_slow { draw.one_of([200_000, 20_000_000]) } else { 5_000 };
        SimOptions {
            seed: draw.within(0..=u64::MAX - 1),
            request_ns: 200..=200 + draw.within(1..=most),
            // The operations of a link take effect one after another.
            effect_ns: 50..=50 + draw.within(1..=most.min(200_000)),
            answer_ns: 200..=200 + draw.within(1..=most),
            tear_ppm: draw.one_of([0, 100_000, 1_000_000]),
            stall_ns: draw.one_of([5 * MS, 300 * MS, 3_000 * MS]),
            ..SimOptions::default()
        }
    }

    fn faults(seed: u64, draw: &mut Draws) -> BTreeMap<Fault, u32> {
        let mut of_shards = Draws(Random::new(seed ^ SHARD_SALT));
        let mut of_clocks = Draws(Random::new(seed ^ CLOCK_SALT));
        let mut of_disks = Draws(Random::new(seed ^ DISK_SALT));
        let mut chance = |fault: Fault| match fault {
            // At each turn of the server's loop.
            Fault::ServerStall => draw.one_of([0, 100, 1_000]),
            // The same, in one world of four.
            Fault::ShardStall => of_shards.one_of([0, 0, 0, 200]),
            // At each tick, in one world of two.
            Fault::WallClock => of_clocks.one_of([0, 0, 2_000, 30_000]),
            // Each time that a chance comes from outside.
            Fault::ServerCrash => draw.one_of([0, 300, 3_000]),
            Fault::SessionLost => draw.one_of([0, 1_000, 10_000]),
            Fault::ClientStall => draw.one_of([0, 1_000, 10_000]),
            // At each turn of a thread's RESP connections.
            Fault::RespStall => draw.one_of([0, 100, 1_000]),
            // At each pipeline.
            Fault::RespLost => draw.one_of([0, 2_000, 20_000]),
            // At each operation of the fabric.
            Fault::LinkLost | Fault::LinkStall => draw.one_of([0, 20, 500]),
            // At each write of a disk, in worlds that have some.
            Fault::DiskStall => 5_000,
            // The same, in one world of two.
            Fault::DiskFailed => of_disks.one_of([0, 0, 1_000, 10_000]),
            // The same, and at each turn of a snapshot.
            Fault::DiskWrite => of_disks.one_of([0, 0, 1_000, 10_000]),
            Fault::DiskFull | Fault::DiskGone => of_disks.one_of([0, 0, 500, 5_000]),
            // At each sync.
            Fault::DiskSync => of_disks.one_of([0, 0, 1_000, 20_000]),
            // At each end of a process.
            Fault::PowerCut => 500_000,
            Fault::StartCrash => 100_000,
            // In worlds that have some: see `ReplicaSwarm`.
            Fault::ReplicaStall | Fault::ReplicaCrash | Fault::ReplicaResync => 0,
            // In worlds with lists: see `ListSwarm`.
            Fault::RoleChange => 0,
        };
        let chances = Fault::ALL.into_iter().map(|fault| (fault, chance(fault)));
        // A chance of 0 would be drawn for, and so change a world without it.
        let is_salted = |fault| {
            let of_disks = [Fault::DiskWrite, Fault::DiskFull, Fault::DiskGone, Fault::DiskSync];
            matches!(fault, Fault::ShardStall | Fault::WallClock | Fault::DiskFailed)
                || matches!(fault, Fault::ReplicaStall | Fault::ReplicaCrash | Fault::ReplicaResync)
                || fault == Fault::RoleChange
                || of_disks.contains(&fault)
        };
        chances.filter(|(fault, ppm)| !is_salted(*fault) || *ppm > 0).collect()
    }
}
