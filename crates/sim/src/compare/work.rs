//! The operations of a compared world's clients: phases of lookups and windows.

use super::core::Absences;
use super::costs::Costs;
use remora_client_core::Rect;
use remora_fabric::sim::Random;

/// Objects of the paper's tree, to which its scales belong.
const PAPER_OBJECTS: f64 = 2e6;
/// Widest edge of the paper's rectangles.
const PAPER_EDGE: f64 = 1e-4;
/// The power law of Catfish's W2: edges from and to, and the exponent.
const POWER: (f64, f64, f64) = (1e-5, 1e-2, 0.99);

/// One thing to do, again and again.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Does {
    /// Lookups of keys, drawn evenly.
    Get,
    /// Lookups of an ordered tree's keys, drawn evenly.
    Find,
    /// Windows whose edges are drawn evenly up to this, in the paper's scale.
    Window(f64),
    /// Windows whose edges follow the paper's power law.
    PowerLaw,
}

/// How many threads of a machine may walk the tree at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Admits {
    /// All of them.
    All,
    /// At most this many.
    AtMost(usize),
    /// The number that the controller finds best.
    Auto,
}

/// A part of a run.
#[derive(Clone, Copy, Debug)]
pub struct Phase {
    /// How long, ms.
    pub ms: u64,
    /// The operations.
    pub does: Does,
    /// Threads that do it, the first ones of all; the others rest.
    pub threads: usize,
    /// Mean time between two operations that arrive at a thread, ns: by chance,
    /// however long the ones before take. `None`: the next follows the last.
    pub every_ns: Option<u64>,
    /// Percent of its time that a request takes at the server: above 100
    /// others use its cores too.
    pub pace_percent: u64,
}

/// A workload.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Its name.
    pub name: &'static str,
    /// The purpose of the workload.
    pub shows: &'static str,
    /// The costs.
    pub costs: Costs,
    /// Cores of the server, each a shard's.
    pub cores: usize,
    /// Client machines, among which threads are dealt out.
    pub machines: usize,
    /// Rectangles of the tree; 0: there is none.
    pub objects: u64,
    /// Entries that a node has room for.
    pub capacity: usize,
    /// Bytes of inner nodes that a client keeps.
    pub kept_bytes: usize,
    /// Keys; 0: there are none.
    pub keys: u64,
    /// Keys of an ordered tree; 0: there is none.
    pub ordered: u64,
    /// Bytes of a value.
    pub value_bytes: usize,
    /// Whether clients keep pointers to records; they have all when it begins.
    pub keeps_pointers: bool,
    /// How many threads of a machine may walk at a time.
    pub admits: Admits,
    /// When the server's cores are not there.
    pub absences: Absences,
    /// The phases in order.
    pub phases: Vec<Phase>,
}

impl Workload {
    /// Threads of all machines.
    pub fn threads(&self) -> usize {
        self.phases.iter().map(|phase| phase.threads).max().unwrap_or(0)
    }

    /// How much longer edges are than in the paper's larger tree, so that a
    /// window finds as many objects.
    fn stretch(&self) -> f64 {
        (PAPER_OBJECTS / self.objects as f64).sqrt()
    }

    /// A rectangle of the tree.
    pub fn object(&self, random: &mut Random) -> Rect {
        let most = PAPER_EDGE * self.stretch();
        let (width, height) = (unit(random) * most, unit(random) * most);
        rect(random, width, height)
    }

    /// A window.
    pub fn window(&self, does: Does, random: &mut Random) -> Rect {
        let (width, height) = match does {
            Does::Get | Does::Find => (0.0, 0.0),
            Does::Window(most) => (unit(random) * most, unit(random) * most),
            Does::PowerLaw => {
                let (from, to, exponent) = POWER;
                let share = 1.0 - exponent;
                let (low, high) = (from.powf(share), to.powf(share));
                let edge = (low + unit(random) * (high - low)).powf(1.0 / share);
                (edge, edge)
            }
        };
        rect(random, width * self.stretch(), height * self.stretch())
    }
}

/// A key's name.
pub fn key_name(key: u64) -> Vec<u8> {
    format!("key:{key:012}").into_bytes()
}

/// A number in [0, 1).
pub fn unit(random: &mut Random) -> f64 {
    (random.number() >> 11) as f64 / (1u64 << 53) as f64
}

fn rect(random: &mut Random, width: f64, height: f64) -> Rect {
    let (min_x, min_y) = (unit(random) * (1.0 - width), unit(random) * (1.0 - height));
    Rect { min_x, max_x: min_x + width, min_y, max_y: min_y + height }
}
