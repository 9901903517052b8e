//! The workloads that policies are compared on.

use super::core::Absences;
use super::costs::{CATFISH, Costs, RDMA, SHM, TCP};
use super::work::{Admits, Does, Phase, Workload};

/// Greatest edge of the widest windows that a thread answers which does not own
/// the tree (`READ_SEARCH_OBJECTS`): larger ones are the owner's alone.
const WIDE: f64 = 0.0286;

/// The base workload, from which the others differ in a few values.
pub(super) fn places() -> Workload {
    Workload {
        name: "",
        shows: "",
        costs: RDMA,
        cores: 4,
        machines: 4,
        objects: 50_000,
        capacity: 30,
        kept_bytes: 0,
        keys: 0,
        ordered: 0,
        value_bytes: 32,
        keeps_pointers: true,
        admits: Admits::All,
        absences: Absences::NONE,
        phases: Vec::new(),
    }
}

/// A phase in which threads do one thing after the other.
pub(super) fn phase(ms: u64, threads: usize, does: Does) -> Phase {
    Phase { ms, does, threads, every_ns: None, pace_percent: 100 }
}

/// Lookups of keys to which clients have pointers.
fn keys() -> Workload {
    Workload { objects: 0, keys: 400, ..places() }
}

/// Lookups in an ordered tree of one core; a lookup there takes as long as a small search.
fn ordered() -> Workload {
    let costs = Costs { request_ns: RDMA.request_ns + RDMA.node_ns, ..RDMA };
    Workload { objects: 0, ordered: 20_000, value_bytes: 8, costs, cores: 1, ..places() }
}

/// Clients on the server's machine.
fn beside(kept_bytes: usize) -> Workload {
    Workload { costs: SHM, cores: 1, machines: 1, kept_bytes, ..places() }
}

/// An eighth of the paper's cluster.
fn catfish() -> Workload {
    Workload { costs: CATFISH, machines: 1, ..places() }
}

/// Small windows while it is quiet, while many ask, and while it is quiet again.
fn rush(few: usize, many: usize, ms: u64, does: Does) -> Vec<Phase> {
    vec![phase(ms, few, does), phase(ms, many, does), phase(ms, few, does)]
}

/// All of them.
pub fn all() -> Vec<Workload> {
    let kinds = [asking(), reading(), even(), absent(), changing(), arriving()];
    kinds.into_iter().flatten().collect()
}

/// Asking is better.
fn asking() -> Vec<Workload> {
    use Does::{Find, Get, Window};
    vec![
        Workload {
            name: "quiet",
            shows: "two threads, small windows, an idle server: one round trip against four",
            phases: vec![phase(60, 2, Window(1e-5))],
            ..places()
        },
        Workload {
            name: "keys-unknown",
            shows: "lookups without pointers: bucket and record against one request",
            keeps_pointers: false,
            phases: vec![phase(40, 4, Get)],
            ..keys()
        },
        Workload {
            name: "ordered-bare",
            shows: "two threads, keys of an ordered tree, no node kept: one round trip against four",
            phases: vec![phase(40, 2, Find)],
            ..ordered()
        },
        Workload {
            name: "large",
            shows: "Catfish Fig. 25 (A18), smaller: windows that any shard's thread answers; nodes are more \
                    bytes than results, the port is nearly full and so are the cores",
            phases: vec![phase(100, 16, Window(WIDE))],
            ..places()
        },
        Workload {
            name: "large-catfish",
            shows: "the same on an eighth of Catfish's cluster, where the client machine binds reading",
            phases: vec![phase(600, 8, Window(0.0707))],
            ..catfish()
        },
        Workload {
            name: "tcp",
            shows: "small windows over TCP, where the server's agent executes READs",
            costs: TCP,
            phases: vec![phase(500, 32, Window(1e-5))],
            ..places()
        },
    ]
}

/// Reading is better.
fn reading() -> Vec<Workload> {
    use Does::{Find, Get, PowerLaw, Window};
    vec![
        Workload {
            name: "overload",
            shows: "Catfish 5.2.1 (A17): 256 clients, windows of 1e-5, a server that is busy throughout",
            cores: 1,
            machines: 8,
            phases: vec![phase(60, 256, Window(1e-5))],
            ..places()
        },
        Workload {
            name: "kept",
            shows: "windows of the power law, inner nodes kept at the client",
            cores: 2,
            machines: 4,
            kept_bytes: 1 << 20,
            phases: vec![phase(25, 32, PowerLaw)],
            ..places()
        },
        Workload {
            name: "keys-known",
            shows: "lookups with pointers, one core, 16 threads",
            cores: 1,
            phases: vec![phase(40, 16, Get)],
            ..keys()
        },
        Workload {
            name: "ordered-kept",
            shows: "64 threads, keys of an ordered tree, inner nodes kept: one READ against a busy core",
            kept_bytes: 1 << 20,
            phases: vec![phase(40, 64, Find)],
            ..ordered()
        },
        Workload {
            name: "keys-shm",
            shows: "the same over shared memory, 4 threads",
            costs: SHM,
            cores: 1,
            machines: 1,
            phases: vec![phase(25, 4, Get)],
            ..keys()
        },
    ]
}

/// Neither path is better by much.
fn even() -> Vec<Workload> {
    use Does::Window;
    vec![Workload {
        name: "even",
        shows: "Catfish at 1e-5 on an eighth of its cluster: asking and reading alone are equal, \
                    both together are nearly twice as many",
        // A small tree of small nodes: as many are visited as of the paper's.
        capacity: 9,
        phases: vec![phase(200, 32, Window(1e-5))],
        ..catfish()
    }]
}

/// The shard is not always there.
fn absent() -> Vec<Workload> {
    use Does::Window;
    vec![
        Workload {
            name: "asleep-read",
            shows: "two threads over shared memory, small windows, 100 ms with the cold start: reading is \
                    better, and who asks waits until a reader gives up its processor",
            absences: Absences { sleeps_after_ns: 20_000, wake_ns: 2_500_000, ..Absences::NONE },
            phases: vec![phase(100, 2, Window(1e-5))],
            ..beside(1 << 20)
        },
        Workload {
            name: "asleep-ask",
            shows: "the same without kept nodes and with an idle processor: asking is better, once the \
                    shard is awake",
            absences: Absences { sleeps_after_ns: 20_000, wake_ns: 100_000, ..Absences::NONE },
            phases: vec![phase(100, 2, Window(1e-5))],
            ..beside(0)
        },
        Workload {
            name: "crowded",
            shows: "the same, two threads and the shard on two processors: asking mostly takes less \
                    time, but the shard loses its processor now and then",
            absences: Absences {
                sleeps_after_ns: 20_000,
                wake_ns: 50_000,
                works_ns: 1_000_000,
                away_ns: 3_000_000,
            },
            phases: vec![phase(400, 2, Window(1e-5))],
            ..beside(0)
        },
    ]
}

/// It changes.
fn changing() -> Vec<Workload> {
    use Does::{Find, Window};
    vec![
        Workload {
            name: "ordered-rush",
            shows: "keys of an ordered tree, no node kept: 2 threads, then 64, then 2",
            phases: rush(2, 64, 60, Find),
            ..ordered()
        },
        Workload {
            name: "rush",
            shows: "2 threads, then 64, then 2",
            cores: 1,
            phases: rush(2, 64, 60, Window(1e-5)),
            ..places()
        },
        Workload {
            name: "crowd",
            shows: "large windows, inner nodes kept: reading is better for 2 threads; 24 fill the port, and \
                    asking is better",
            cores: 16,
            kept_bytes: 1 << 20,
            phases: vec![
                phase(30, 2, Window(WIDE)),
                phase(120, 24, Window(WIDE)),
                phase(30, 2, Window(WIDE)),
            ],
            ..places()
        },
        Workload {
            name: "zoom",
            shows: "small windows, large ones, small ones; inner nodes kept",
            machines: 4,
            kept_bytes: 1 << 20,
            phases: vec![
                phase(20, 12, Window(1e-5)),
                phase(40, 12, Window(WIDE)),
                phase(20, 12, Window(1e-5)),
            ],
            ..places()
        },
        Workload {
            name: "neighbour",
            shows: "2 threads; for a third of the time others leave the server an eighth of its core",
            cores: 1,
            phases: [100, 800, 100]
                .map(|pace_percent| Phase { pace_percent, ..phase(80, 2, Window(1e-5)) })
                .to_vec(),
            ..places()
        },
    ]
}

/// Requests arrive by chance, whether or not those before them are answered.
fn arriving() -> Vec<Workload> {
    vec![
        Workload {
            name: "arrivals",
            shows: "windows of the power law that arrive by chance: 0.2, 0.46, 0.2 M/s; one core \
                    serves 0.5 M/s",
            cores: 1,
            phases: arrivals([80_000, 35_000, 80_000]),
            ..places()
        },
        Workload {
            name: "burst",
            shows: "the same, 0.2, 0.8, 0.2 M/s: until it is noticed the server falls behind",
            cores: 1,
            phases: arrivals([80_000, 20_000, 80_000]),
            ..places()
        },
    ]
}

/// Windows that arrive at each of 16 threads once in so many ns.
fn arrivals(every_ns: [u64; 3]) -> Vec<Phase> {
    every_ns.map(|ns| Phase { every_ns: Some(ns), ..phase(80, 16, Does::PowerLaw) }).to_vec()
}
