//! Makes a world that breaks a promise as small as it can and still does.

use crate::faults::Fault;
use crate::replicas::MAX_REPLICAS;
use crate::run::Outcome;
use crate::swarm::Swarm;
use crate::world::World;
use std::fmt;

/// Reductions of a seed's draw.
#[derive(Clone, Default, Debug)]
pub struct Less {
    /// At most this many operations.
    pub operations: Option<u64>,
    /// At most this many clients.
    pub clients: Option<u32>,
    /// At most this many RESP clients.
    pub resp_clients: Option<u32>,
    /// Faults that are switched off.
    pub without: Vec<Fault>,
    /// Operations of the fabric are not torn.
    pub untorn: bool,
    /// The seed's world with replicas, at most so many.
    pub replicas: Option<usize>,
    /// The seed's world with lists and sets.
    pub lists: bool,
    /// The seed's world with links.
    pub links: bool,
    /// The seed's world with ordered trees.
    pub ordered: bool,
    /// The seed's world with sorted sets.
    pub sorted: bool,
    /// The seed's world with collections.
    pub collections: bool,
}

impl Less {
    /// The seed's world, with these reductions.
    pub fn of(&self, seed: u64, with_faults: bool) -> Swarm {
        let mut swarm = Swarm::of(seed, with_faults);
        if let Some(most) = self.replicas {
            swarm = swarm.with_replicas(seed, with_faults, most);
        }
        if self.lists {
            swarm = swarm.with_lists(seed, with_faults);
        }
        if self.links {
            swarm = swarm.with_links(seed);
        }
        if self.ordered {
            swarm = swarm.with_ordered(seed);
        }
        if self.sorted {
            swarm = swarm.with_sorted(seed);
        }
        if self.collections {
            swarm = swarm.with_collections(seed);
        }
        if let Some(operations) = self.operations {
            swarm.operations = operations;
        }
        if let Some(clients) = self.clients {
            swarm.clients = clients.clamp(1, swarm.clients);
        }
        if let Some(clients) = self.resp_clients {
            swarm.resp.clients = clients.min(swarm.resp.clients);
        }
        for fault in &self.without {
            swarm.faults.remove(fault);
        }
        if self.untorn {
            swarm.fabric.tear_ppm = 0;
        }
        swarm
    }
}

/// As flags of the command.
impl fmt::Display for Less {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(operations) = self.operations {
            write!(f, " --ops {operations}")?;
        }
        if let Some(clients) = self.clients {
            write!(f, " --clients {clients}")?;
        }
        if let Some(clients) = self.resp_clients {
            write!(f, " --resp-clients {clients}")?;
        }
        for fault in &self.without {
            write!(f, " --without {}", fault.name())?;
        }
        if self.untorn {
            write!(f, " --untorn")?;
        }
        if self.lists {
            write!(f, " --lists")?;
        }
        if self.links {
            write!(f, " --links")?;
        }
        if self.ordered {
            write!(f, " --ordered")?;
        }
        if self.sorted {
            write!(f, " --sorted")?;
        }
        if self.collections {
            write!(f, " --collections")?;
        }
        match self.replicas {
            None => {}
            Some(MAX_REPLICAS..) => write!(f, " --replicas")?,
            Some(most) => write!(f, " --replicas={most}")?,
        }
        Ok(())
    }
}

/// The smallest world found that breaks the same promise as `less` does.
pub fn shrink(seed: u64, with_faults: bool, less: &Less, promise: &str) -> Less {
    let breaks = |less: &Less| {
        let outcome: Outcome = World::run(less.of(seed, with_faults), false);
        outcome.violations.iter().any(|violation| violation.promise == promise)
    };
    let mut best = less.clone();
    for fault in Fault::ALL {
        let mut tried = best.clone();
        tried.without.push(fault);
        if with_faults && !best.without.contains(&fault) && breaks(&tried) {
            best = tried;
        }
    }
    let untorn = Less { untorn: true, ..best.clone() };
    if breaks(&untorn) {
        best = untorn;
    }
    let clients = best.of(seed, with_faults).clients;
    if let Some(fewer) =
        (1..clients).map(|clients| Less { clients: Some(clients), ..best.clone() }).find(&breaks)
    {
        best = fewer;
    }
    let clients = best.of(seed, with_faults).resp.clients;
    if let Some(fewer) = (0..clients)
        .map(|clients| Less { resp_clients: Some(clients), ..best.clone() })
        .find(&breaks)
    {
        best = fewer;
    }
    let replicas = best.of(seed, with_faults).replicas.map_or(0, |of| of.shards.len());
    if let Some(fewer) =
        (1..replicas).map(|most| Less { replicas: Some(most), ..best.clone() }).find(&breaks)
    {
        best = fewer;
    }
    // The last operations matter least: half of them, as long as that is enough.
    let mut operations = best.of(seed, with_faults).operations;
    let mut step = operations / 2;
    while step > 0 {
        let tried = Less { operations: Some(operations - step), ..best.clone() };
        if operations > step && breaks(&tried) {
            operations -= step;
            best = tried;
        } else {
            step /= 2;
        }
    }
    best
}
