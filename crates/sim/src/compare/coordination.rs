//! The threads of one client machine, and how many of them may walk a tree at a
//! time (Catfish 4.4, C24 and C25): the machine's port takes a READ after the
//! other, so that more threads beyond a few only wait for each other.

use super::costs::CATFISH;
use super::work::{Admits, Does, Workload};
use super::workloads::{phase, places};
use super::{Policy, run};

/// Searches whose completion is counted.
const SEARCHES: f64 = 1_000.0;

/// The result for some threads of a machine.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Walking {
    /// Time for 1,000 searches, all threads together; ns.
    pub completion_ns: f64,
    /// Mean time of a walk that was admitted, ns.
    pub walk_ns: f64,
    /// Mean time of a search, with its wait for admission; ns.
    pub search_ns: f64,
}

/// This many threads read windows of 1e-5 on one of Catfish's client machines.
pub fn walking(threads: usize, admits: Admits) -> Walking {
    let work = Workload {
        name: "walking",
        shows: "threads of one client machine that read",
        costs: CATFISH,
        machines: 1,
        capacity: 9,
        admits,
        phases: vec![phase(200, threads, Does::Window(1e-5))],
        ..places()
    };
    let it = run(&work, Policy::Read);
    let total = it.total();
    Walking {
        completion_ns: SEARCHES * 1e9 / it.per_second(),
        walk_ns: total.walk_ns as f64 / total.operations as f64,
        search_ns: total.mean_ns(),
    }
}
