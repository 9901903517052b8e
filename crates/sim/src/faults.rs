//! The kinds of faults, by name, and how often they happen.

use remora_fabric::sim::SimWorld;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::RangeInclusive;

/// Deaths of the server's process in one world: one that dies while it loads a long log comes to its
/// end too.
const MOST_CRASHES: u64 = 200;

/// A kind of fault.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Fault {
    /// The server stops, as by SIGSTOP or a busy machine.
    ServerStall,
    /// One shard executes a long step; the others serve, and heartbeats continue.
    ShardStall,
    /// The server's process dies and comes back with empty memory.
    ServerCrash,
    /// One client's connection breaks.
    SessionLost,
    /// A client stops wherever it waits, as by SIGSTOP.
    ClientStall,
    /// A link is lost with operations under way.
    LinkLost,
    /// An operation is delayed on its way, and so are all that follow it on its link.
    LinkStall,
    /// A thread of the server stops with its RESP connections.
    RespStall,
    /// A RESP connection breaks.
    RespLost,
    /// The wall clock of the server's machine is set.
    WallClock,
    /// A disk takes up to seconds for a write.
    DiskStall,
    /// A disk hangs for good: nothing becomes durable. The server lives on for up to some seconds.
    DiskFailed,
    /// Writes to the disk fail for a while; half of the bytes are there.
    DiskWrite,
    /// Syncs fail for a while, and lose.
    DiskSync,
    /// The disk is full for a while.
    DiskFull,
    /// The directory is gone for a while.
    DiskGone,
    /// The process dies because the power of its machine is cut.
    PowerCut,
    /// The next process dies while it begins its log, and another one follows.
    StartCrash,
    /// A replica stops, or one of its two threads does.
    ReplicaStall,
    /// A replica's process dies, and another one begins with nothing.
    ReplicaCrash,
    /// The operator tells a replica to copy its primary anew.
    ReplicaResync,
    /// The server's role changes, and changes back at once: requests that wait for keys end.
    RoleChange,
}

impl Fault {
    /// All kinds.
    pub const ALL: [Self; 22] = [
        Self::ServerStall,
        Self::ShardStall,
        Self::ServerCrash,
        Self::SessionLost,
        Self::ClientStall,
        Self::LinkLost,
        Self::LinkStall,
        Self::RespStall,
        Self::RespLost,
        Self::WallClock,
        Self::DiskStall,
        Self::DiskFailed,
        Self::DiskWrite,
        Self::DiskSync,
        Self::DiskFull,
        Self::DiskGone,
        Self::PowerCut,
        Self::StartCrash,
        Self::ReplicaStall,
        Self::ReplicaCrash,
        Self::ReplicaResync,
        Self::RoleChange,
    ];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::ServerStall => "server-stall",
            Self::ShardStall => "shard-stall",
            Self::ServerCrash => "server-crash",
            Self::SessionLost => "session-lost",
            Self::ClientStall => "client-stall",
            Self::LinkLost => "link-lost",
            Self::LinkStall => "link-stall",
            Self::RespStall => "resp-stall",
            Self::RespLost => "resp-lost",
            Self::WallClock => "wall-clock",
            Self::DiskStall => "disk-stall",
            Self::DiskFailed => "disk-failed",
            Self::DiskWrite => "disk-write",
            Self::DiskSync => "disk-sync",
            Self::DiskFull => "disk-full",
            Self::DiskGone => "disk-gone",
            Self::PowerCut => "power-cut",
            Self::StartCrash => "start-crash",
            Self::ReplicaStall => "replica-stall",
            Self::ReplicaCrash => "replica-crash",
            Self::ReplicaResync => "replica-resync",
            Self::RoleChange => "role-change",
        }
    }

    /// The fault of this name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|fault| fault.name() == name)
    }
}

/// Draws faults, until they stop.
pub struct Faults {
    world: SimWorld,
    /// Chances in a million at each place where it may strike.
    ppm: BTreeMap<Fault, u32>,
    stopped: Cell<bool>,
    struck: RefCell<BTreeMap<Fault, u64>>,
}

impl Faults {
    /// Faults with these chances, in a million; none where none is given.
    pub fn new(world: &SimWorld, ppm: BTreeMap<Fault, u32>) -> Self {
        Self { world: world.clone(), ppm, stopped: Cell::new(false), struck: RefCell::default() }
    }

    /// Whether a fault strikes here and now.
    pub fn strikes(&self, fault: Fault) -> bool {
        let Some(&ppm) = self.ppm.get(&fault).filter(|_| !self.stopped.get()) else { return false };
        if !self.world.draw(|random| random.happens(ppm)) {
            return false;
        }
        let mut struck = self.struck.borrow_mut();
        let times = struck.entry(fault).or_default();
        if fault == Fault::ServerCrash && *times == MOST_CRASHES {
            return false;
        }
        *times += 1;
        true
    }

    /// Stops all faults.
    pub fn stop(&self) {
        self.stopped.set(true);
        self.world.calm();
    }

    /// Whether all faults are stopped.
    pub fn are_stopped(&self) -> bool {
        self.stopped.get()
    }

    /// How often each struck. Those of links are the fabric's to count.
    pub fn struck(&self) -> BTreeMap<Fault, u64> {
        let mut struck = self.struck.borrow().clone();
        let of_links =
            [(Fault::LinkLost, self.world.lost()), (Fault::LinkStall, self.world.stalled())];
        struck.extend(of_links.into_iter().filter(|&(_, times)| times > 0));
        struck
    }

    /// A task stops for this time.
    pub fn pause(&self, world: &SimWorld, task: u64, ns: RangeInclusive<u64>) {
        let until_ns = world.now_ns() + world.draw(|random| random.within(&ns));
        // A task woken before stays stopped.
        while world.now_ns() < until_ns {
            world.suspend_until(task, until_ns);
        }
    }
}
