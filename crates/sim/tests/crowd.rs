//! Worlds with 64 sessions over shared memory, or as if over a network, and 64 RESP connections on
//! 8 shards: the cost of a request, by the server's own counters.

use remora_engine::{Durability, Eviction};
use remora_sim::counts::RunCounts;
use remora_sim::faults::Fault;
use remora_sim::shrink::Less;
use remora_sim::swarm::CrowdSwarm;
use remora_sim::world::World;

const SHARDS: usize = 8;
const SESSIONS: usize = 64;
const CONNECTIONS: u32 = 64;
const NO_RESP: (u32, u64) = (0, 0);
/// Rounds of a session that asks all the time.
const ROUNDS: u64 = 1_000;

/// A world in which nothing goes wrong.
fn run(seed: u64, crowd: CrowdSwarm, resp: (u32, u64)) -> RunCounts {
    run_with(seed, crowd, resp, &[])
}

/// A world with so many RESP connections, and requests of each under way, and with
/// these faults.
fn run_with(
    seed: u64,
    crowd: CrowdSwarm,
    (connections, under_way): (u32, u64),
    faults: &[(Fault, u32)],
) -> RunCounts {
    let mut swarm = Less::default().of(seed, false);
    swarm.clients = 0;
    swarm.hashes.moves = false;
    swarm.places.moves = false;
    swarm.node.shards = SHARDS;
    swarm.node.arena_bytes = 8 << 20;
    swarm.node.disk = None;
    swarm.node.audits = false;
    swarm.node.shard.durability = Durability::Memory;
    swarm.node.shard.eviction = Eviction::None;
    swarm.resp.clients = connections;
    swarm.resp.most_under_way = under_way;
    swarm.resp.timeout_ns = u64::MAX;
    swarm.resp.stream_bytes = 1 << 20;
    swarm.resp.most_ns = 5_000;
    swarm.faults = faults.iter().copied().collect();
    swarm.keys = 2_000;
    swarm.operations = 200 * u64::from(connections);
    swarm.crowd = Some(crowd);
    let outcome = World::run(swarm, false);
    assert!(outcome.violations.is_empty(), "seed {seed}: {}", outcome.violations[0]);
    outcome.counts
}

fn crowd(processes: usize, busy: usize, batch: u64) -> CrowdSwarm {
    let sessions = SESSIONS / processes;
    CrowdSwarm { processes, sessions, busy, rounds: ROUNDS, batch, is_remote: false }
}

fn ratio(of: u64, to: u64) -> f64 {
    of as f64 / to.max(1) as f64
}

/// One process, many, and all as processes of their own.
#[test]
fn a_frame_costs_as_many_looks_among_idle_sessions_as_alone() {
    let per_frame = |counts: &RunCounts| ratio(counts.rings_looked_at, counts.ring_frames);
    let alone = |is_remote| {
        let alone = CrowdSwarm { sessions: 1, is_remote, ..crowd(1, 1, 4) };
        per_frame(&run(1, alone, NO_RESP))
    };
    let (near, far) = (alone(false), alone(true));
    for (processes, is_remote) in [(1, false), (8, false), (SESSIONS, false), (SESSIONS, true)] {
        let among = run(1, CrowdSwarm { is_remote, ..crowd(processes, 1, 4) }, NO_RESP);
        println!("{processes} processes, over a network: {is_remote}: {among:?}");
        assert!(among.ring_frames >= 4 * ROUNDS);
        let (few, many) = (if is_remote { far } else { near }, per_frame(&among));
        assert!((many - few).abs() <= 0.1 * few, "{many} looks, {few} alone");
        // Ready bits: of the own process, and of those that are kept unparked.
        let clients = ratio(among.clients_looked_at, among.ring_turns);
        assert!(clients <= 6.0, "{clients} clients looked at in a turn");
        assert_eq!(among.parked > 0, processes > 4, "{among:?}");
    }
}

/// 64 sessions that ask all the time, so much at once.
fn all_busy(batch: u64) -> CrowdSwarm {
    CrowdSwarm { rounds: 100, ..crowd(1, SESSIONS, batch) }
}

/// 64 sessions and 64 connections at once, with little and with much under way.
#[test]
fn what_comes_together_goes_together() {
    for seed in 0..4 {
        let one = run(seed, CrowdSwarm { rounds: 100, ..crowd(1, 1, 1) }, NO_RESP);
        let few = run(seed, all_busy(1), (CONNECTIONS, 1));
        let many = run(seed, all_busy(16), (CONNECTIONS, 64));
        println!("{seed}: one {one:?}\n few {few:?}\n many {many:?}");
        let of_one = ratio(one.ring_frames, one.signals);
        for counts in [few, many] {
            assert!(counts.rings_looked_at <= counts.ring_frames, "a look finds a frame");
            assert!(
                ratio(counts.ring_frames, counts.signals) > 4.0 * of_one,
                "frames per doorbell"
            );
            assert!(ratio(counts.mail_sent, counts.turns) <= (SHARDS - 1) as f64, "mail per turn");
            assert!(counts.mail_waited <= counts.mail_sent / 100, "waits for room");
            assert!(counts.connections_moved > 0);
        }
        let rises = |of: fn(&RunCounts) -> u64, to: fn(&RunCounts) -> u64| {
            ratio(of(&many), to(&many)) / ratio(of(&few), to(&few))
        };
        let rise = [
            ("frames per look", 2.0, rises(|c| c.ring_frames, |c| c.rings_looked_at)),
            ("jobs per mail", 1.5, rises(|c| c.jobs_sent, |c| c.mail_sent)),
            ("forwarded per turn", 2.0, rises(|c| c.jobs_sent, |c| c.turns)),
            ("bytes per write", 3.0, rises(|c| c.bytes_written, |c| c.writes)),
        ];
        for (what, least, times) in rise {
            println!("{seed}: {what}: {times:.1} times as many");
            assert!(times >= least, "{what}: {times:.2} times as many with more under way");
        }
    }
}

/// A shard's thread that stands still gets larger mail, not more of it, and nothing
/// is lost.
#[test]
fn mail_waits_for_a_thread_that_is_behind() {
    let waited = (0..4).map(|seed| {
        let counts = run_with(seed, all_busy(1), (CONNECTIONS, 64), &[(Fault::ShardStall, 500)]);
        println!("{seed}: {counts:?}");
        counts.mail_waited
    });
    assert!(waited.sum::<u64>() > 0);
}
