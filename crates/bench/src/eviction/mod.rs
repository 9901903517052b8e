//! `remora bench eviction`: hit ratios of eviction policies on a trace.
//!
//! Invariant: every figure is a count that depends only on the flags and the file; the policy of
//! the engine is the engine's own code.

mod engine;
mod replay;
mod report;
mod yardsticks;

use crate::trace::{MAX_WIDTH, Trace};
use clap::{Args, ValueEnum};
use engine::Engine;
use remora_command_line::usage;
use replay::{Cache, Knowledge, replay};
use report::{Ratio, Report};
use std::path::PathBuf;
use yardsticks::{Lru, Sieve, optimal_hits};

/// Longest shortest lease term, in requests: 2^6 times as much still counts.
const MAX_LEASE_OPS: u64 = 1 << 40;

/// A policy, or a yardstick.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum PolicyName {
    /// Each of them.
    All,
    /// The least recently used record goes.
    Lru,
    /// SIEVE (Zhang et al., NSDI 2024).
    Sieve,
    /// S3-FIFO, as the engine has it.
    S3Fifo,
    /// The same, with records under a running lease counted as touched.
    S3FifoLeases,
    /// The best possible: what is used again last goes (Belady, 1966).
    Best,
}

/// Flags of `remora bench eviction`.
#[derive(Clone, Debug, Args)]
pub struct EvictionArgs {
    /// The trace: keys of a fixed width, plain or .xz. Their byte order does
    /// not matter, as keys are only told apart.
    #[arg(long, value_name = "FILE")]
    trace: PathBuf,
    /// Width of a key, in bytes.
    #[arg(long, value_name = "N", default_value_t = 4)]
    key_bytes: usize,
    /// Policies, separated by commas.
    #[arg(long, value_enum, value_delimiter = ',', default_value = "all")]
    policy: Vec<PolicyName>,
    /// Room for records, as shares of the distinct keys.
    #[arg(
        long,
        value_name = "SHARES",
        value_delimiter = ',',
        default_value = "0.01,0.05,0.1,0.25"
    )]
    capacity: Vec<f64>,
    /// Shortest lease terms, in requests: while a client holds a lease, its
    /// reads are not seen. 0: the policy sees everything.
    #[arg(long, value_name = "TERMS", value_delimiter = ',', default_value = "0,1000,10000")]
    lease_ops: Vec<u64>,
    /// Prints one JSON object.
    #[arg(long)]
    json: bool,
}

/// Runs the comparison and prints it.
pub fn run(args: &EvictionArgs) -> anyhow::Result<()> {
    args.check()?;
    let Trace { keys, requests } = Trace::read(&args.trace, "--trace", args.key_bytes)?;
    let policies = args.policies();
    let mut ratios = Vec::new();
    for &share in &args.capacity {
        let capacity = ((keys as f64 * share) as usize).max(2);
        for &policy in &policies {
            // The best possible policy does not depend on what the server sees.
            let terms = if policy == PolicyName::Best { 1 } else { args.lease_ops.len() };
            for &lease_ops in &args.lease_ops[..terms] {
                let ratio = measure(policy, capacity, lease_ops, &requests, keys);
                ratios.push(Ratio { share, ..ratio });
            }
        }
    }
    let report = Report::new(args.trace.display().to_string(), requests.len(), keys, ratios);
    report.print(args.json, &mut std::io::stdout().lock())
}

impl EvictionArgs {
    fn check(&self) -> anyhow::Result<()> {
        if !(1..=MAX_WIDTH).contains(&self.key_bytes) {
            let key_bytes = self.key_bytes;
            return Err(usage(format!("--key-bytes: {key_bytes} is not in 1..={MAX_WIDTH}")));
        }
        if let Some(share) = self.capacity.iter().find(|share| !(0.0..=1.0).contains(*share)) {
            return Err(usage(format!("--capacity: {share} is not in 0..=1")));
        }
        if let Some(ops) = self.lease_ops.iter().find(|ops| **ops > MAX_LEASE_OPS) {
            return Err(usage(format!("--lease-ops: {ops} is more than {MAX_LEASE_OPS}")));
        }
        Ok(())
    }

    fn policies(&self) -> Vec<PolicyName> {
        if self.policy.contains(&PolicyName::All) {
            return PolicyName::value_variants()[1..].to_vec();
        }
        self.policy.clone()
    }
}

fn measure(
    policy: PolicyName,
    capacity: usize,
    lease_ops: u64,
    requests: &[u32],
    keys: usize,
) -> Ratio {
    let mut knowledge = Knowledge::new(lease_ops, keys);
    let mut with = |mut cache: Box<dyn Cache>| replay(&mut *cache, &mut knowledge, requests);
    let outcome = match policy {
        PolicyName::Lru => with(Box::new(Lru::new(capacity, keys))),
        PolicyName::Sieve => with(Box::new(Sieve::new(capacity, keys))),
        PolicyName::S3Fifo => with(Box::new(Engine::new(capacity, keys, false))),
        PolicyName::S3FifoLeases => with(Box::new(Engine::new(capacity, keys, true))),
        PolicyName::Best | PolicyName::All => {
            replay::Outcome { hits: optimal_hits(requests, keys, capacity), unseen: 0 }
        }
    };
    let name = policy.to_possible_value();
    Ratio {
        policy: name.as_ref().map_or("", |name| name.get_name()).to_string(),
        share: 0.0,
        capacity,
        lease_ops,
        hits: outcome.hits,
        unseen: outcome.unseen,
        hit_ratio: outcome.hits as f64 / requests.len() as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_testing::Random;

    /// Requests with locality, a hot set and scans, from a seed.
    fn random_trace(seed: u64, keys: u64, length: usize) -> Vec<u32> {
        let mut random = Random::new(seed);
        let mut scan = 0;
        (0..length)
            .map(|_| {
                let drawn = random.bits() >> 20;
                (match random.below(4) {
                    0 => drawn % keys,
                    1 => drawn % (keys / 20),
                    2 => (drawn % keys) * (drawn / keys % keys) / keys,
                    _ => {
                        scan = (scan + 1) % keys;
                        scan
                    }
                }) as u32
            })
            .collect()
    }

    /// Hits of the best policy by trying all.
    fn exhaustive(requests: &[u32], cached: &mut Vec<u32>, capacity: usize) -> u64 {
        let Some((&key, rest)) = requests.split_first() else { return 0 };
        if cached.contains(&key) {
            return 1 + exhaustive(rest, cached, capacity);
        }
        if cached.len() < capacity {
            cached.push(key);
            let best = exhaustive(rest, cached, capacity);
            cached.pop();
            return best;
        }
        let mut best = 0;
        for at in 0..cached.len() {
            let out = std::mem::replace(&mut cached[at], key);
            best = best.max(exhaustive(rest, cached, capacity));
            cached[at] = out;
        }
        best
    }

    #[test]
    fn the_best_possible_is_the_best_of_all_choices() {
        for seed in 1..=60 {
            let requests: Vec<u32> =
                random_trace(seed, 20, 14).into_iter().map(|key| key % 6).collect();
            for capacity in 1..=3 {
                let best = exhaustive(&requests, &mut Vec::new(), capacity);
                assert_eq!(optimal_hits(&requests, 6, capacity), best, "{requests:?}");
            }
        }
    }

    #[test]
    fn nothing_beats_the_best_possible() {
        const KEYS: usize = 2_000;
        for seed in 1..=5 {
            let requests = random_trace(seed, KEYS as u64, 60_000);
            for capacity in [2, 20, 200, 1_000] {
                let best = optimal_hits(&requests, KEYS, capacity);
                for &policy in &PolicyName::value_variants()[1..] {
                    for lease_ops in [0, 50, 5_000] {
                        let ratio = measure(policy, capacity, lease_ops, &requests, KEYS);
                        assert!(ratio.hits <= best, "{policy:?} {capacity} {lease_ops}");
                        assert!(ratio.hits > 0 && ratio.unseen <= ratio.hits);
                    }
                }
            }
        }
    }

    #[test]
    fn with_room_for_all_only_first_requests_miss() {
        let requests = random_trace(7, 500, 20_000);
        let mut distinct = requests.clone();
        distinct.sort_unstable();
        distinct.dedup();
        for &policy in &PolicyName::value_variants()[1..] {
            let ratio = measure(policy, 500, 0, &requests, 500);
            assert_eq!(ratio.hits as usize, requests.len() - distinct.len(), "{policy:?}");
        }
    }
}
