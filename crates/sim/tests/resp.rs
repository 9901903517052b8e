//! Worlds of RESP clients alone: every call goes through the production
//! connections, and all reading is the server's own.

use remora_engine::Durability;
use remora_sim::probes::Probe;
use remora_sim::run::Outcome;
use remora_sim::shrink::Less;
use remora_sim::swarm::Swarm;
use remora_sim::world::World;

fn resp_only(seed: u64) -> Swarm {
    let mut swarm = Less::default().of(seed, true);
    swarm.clients = 0;
    swarm.resp.clients = 3;
    swarm
}

fn run(seed: u64, swarm: Swarm) -> Outcome {
    let outcome = World::run(swarm, false);
    let violations = &outcome.violations;
    assert!(violations.is_empty(), "seed {seed}: {}", violations[0]);
    outcome
}

#[test]
fn resp_alone_keeps_every_promise_and_reaches_its_rare_paths() {
    let probes =
        [Probe::RespHere, Probe::RespRead, Probe::RespAsked, Probe::RespTorn, Probe::RespMoved];
    let mut all = probes.map(|probe| (probe, 0));
    // A thread reads by itself only from other shards: many worlds have but one.
    for seed in 0..60 {
        let outcome = run(seed, resp_only(seed));
        assert!(outcome.operations >= 500);
        for (probe, times) in &mut all {
            *times += outcome.probes.reached(*probe);
        }
    }
    assert!(all.iter().all(|&(_, times)| times > 30), "{all:?}");
}

#[test]
fn values_that_go_in_pieces_keep_every_promise() {
    for seed in 0..12 {
        let mut swarm = resp_only(seed);
        swarm.lengths.most_bytes = 300_000;
        // A world's disk is for short values.
        swarm.node.disk = None;
        swarm.node.shard.durability = Durability::Memory;
        swarm.node.audits = false;
        swarm.node.arena_bytes = 32 << 20;
        swarm.operations = 400;
        run(seed, swarm);
    }
}
