//! The record of each operation, drawn before the clock starts (HydraDB 6, row H42: pre-generated).
//!
//! Popularity by Zipf's law is a matter of ranks; which record has which rank
//! is decided by a fixed permutation ([`Scatter`]), so that popular records
//! are no neighbours in key, memory or time of loading. The generator is
//! ChaCha8, one stream of it for each client, so a seed gives the same
//! operations on every machine and in every release.

use anyhow::Context;
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use rand_distr::{Distribution, Zipf};
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// How operations spread over the records.
#[derive(Clone, PartialEq, Debug)]
pub enum Dist {
    /// All records are equally popular.
    Uniform,
    /// The record of rank r has a share in proportion to r^-exponent.
    Zipf(f64),
    /// The keys of a file, in its order.
    File(PathBuf),
}

impl FromStr for Dist {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            None if text == "uniform" => Ok(Self::Uniform),
            Some(("zipf", exponent)) => match exponent.parse::<f64>() {
                Ok(exponent) if (0.0..=10.0).contains(&exponent) => Ok(Self::Zipf(exponent)),
                _ => Err(format!("\"{exponent}\" is no exponent from 0 to 10")),
            },
            Some(("file", path)) if !path.is_empty() => Ok(Self::File(path.into())),
            _ => Err("write uniform, zipf:EXPONENT or file:PATH".into()),
        }
    }
}

impl fmt::Display for Dist {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uniform => out.write_str("uniform"),
            Self::Zipf(exponent) => write!(out, "zipf:{exponent}"),
            Self::File(path) => write!(out, "file:{}", path.display()),
        }
    }
}

/// One operation: a record's index, and in the top bit whether it is written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Op(u32);

const WRITE: u32 = 1 << 31;
/// Records with an index that leaves the top bit free.
pub const MAX_RECORDS: usize = WRITE as usize;

impl Op {
    /// A read of the record `index`.
    pub const fn get(index: u32) -> Self {
        Self(index)
    }

    /// A write of the record `index`.
    pub const fn set(index: u32) -> Self {
        Self(index | WRITE)
    }

    /// The record.
    #[inline]
    pub const fn index(self) -> u32 {
        self.0 & !WRITE
    }

    /// Whether it is written.
    #[inline]
    pub const fn is_write(self) -> bool {
        self.0 & WRITE != 0
    }
}

/// A fixed permutation of `0..count`.
#[derive(Clone, Copy, Debug)]
pub struct Scatter {
    count: u32,
    mask: u32,
    shift: u32,
}

impl Scatter {
    /// The permutation of `0..count`.
    pub fn over(count: u32) -> Self {
        let mask = count.max(1).next_power_of_two() - 1;
        Self { count: count.max(1), mask, shift: (mask.count_ones() / 2).max(1) }
    }

    /// The record of `rank`. Multiplying by an odd number, adding and folding the upper half onto
    /// the lower are permutations of the next power of two; a result beyond the count is mapped
    /// again. The walk ends, because its cycle leads back to `rank`, and takes fewer than two steps
    /// on average.
    #[inline]
    pub fn place(self, rank: u32) -> u32 {
        debug_assert!(rank < self.count);
        let mut at = rank;
        loop {
            for factor in [0x9e37_79b1u32, 0x85eb_ca6b] {
                at = at.wrapping_mul(factor).wrapping_add(0x7f4a_7c15) & self.mask;
                at ^= at >> self.shift;
            }
            if at < self.count {
                return at;
            }
        }
    }
}

/// The distributions from which the operations of a run are drawn.
#[derive(Clone, Debug)]
pub enum Source {
    /// Drawn evenly.
    Uniform,
    /// Drawn by Zipf's law; ranks are scattered over the records or, without
    /// a permutation, are the records' indices.
    Zipf(f64, Option<Scatter>),
    /// Replayed, from the beginning again when it ends; indices of records.
    Trace(Vec<u32>),
}

/// Everything that decides the operations of a run.
#[derive(Clone, Debug)]
pub struct Workload {
    /// The source of the records.
    pub source: Source,
    /// Number of records.
    pub records: u32,
    /// Operations of all clients together.
    pub ops: usize,
    /// Number of clients.
    pub clients: usize,
    /// Share of reads, 0 to 1.
    pub reads: f64,
    /// Seed of every draw.
    pub seed: u64,
}

impl Workload {
    /// The operations of one client.
    pub fn of_client(&self, client: usize) -> anyhow::Result<Vec<Op>> {
        let (first, count) = share(self.ops, self.clients, client);
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        rng.set_stream(client as u64);
        let mut ops = Vec::with_capacity(count);
        match &self.source {
            Source::Uniform => {
                for _ in 0..count {
                    let index = rng.random_range(0..self.records);
                    ops.push(self.op(index, &mut rng));
                }
            }
            Source::Zipf(exponent, scatter) => {
                let zipf = Zipf::new(f64::from(self.records), *exponent).context("zipf")?;
                for _ in 0..count {
                    let rank = (zipf.sample(&mut rng) as u32).clamp(1, self.records) - 1;
                    let index = scatter.map_or(rank, |scatter| scatter.place(rank));
                    ops.push(self.op(index, &mut rng));
                }
            }
            Source::Trace(indices) => {
                for index in indices.iter().cycle().skip(first % indices.len()).take(count) {
                    ops.push(self.op(*index, &mut rng));
                }
            }
        }
        Ok(ops)
    }

    #[inline]
    fn op(&self, index: u32, rng: &mut ChaCha8Rng) -> Op {
        // Without a choice there is no draw: the keys then do not depend on the way in which reads
        // and writes are drawn.
        if self.reads >= 1.0 || rng.random::<f64>() < self.reads {
            Op::get(index)
        } else {
            Op::set(index)
        }
    }
}

/// First operation of a client, and how many it has.
pub fn share(ops: usize, clients: usize, client: usize) -> (usize, usize) {
    let (each, more) = (ops / clients, ops % clients);
    (client * each + client.min(more), each + usize::from(client < more))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(source: Source, records: u32) -> Workload {
        Workload { source, records, ops: 100_000, clients: 1, reads: 1.0, seed: 7 }
    }

    fn counts(ops: &[Op], records: u32) -> Vec<u32> {
        let mut counts = vec![0; records as usize];
        for op in ops {
            counts[op.index() as usize] += 1;
        }
        counts
    }

    #[test]
    fn distributions_are_written_as_they_are_read() {
        for text in ["uniform", "zipf:0.99", "zipf:1", "file:a:b.xz"] {
            assert_eq!(text.parse::<Dist>().unwrap().to_string(), text);
        }
        for text in ["", "zipf", "zipf:x", "zipf:-1", "zipf:nan", "file:", "uniform:1"] {
            assert!(text.parse::<Dist>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_seed_gives_the_same_operations_and_another_seed_others() {
        for source in [Source::Uniform, Source::Zipf(0.99, Some(Scatter::over(1000)))] {
            let mixed = Workload { reads: 0.5, clients: 2, ..workload(source, 1000) };
            assert_eq!(mixed.of_client(1).unwrap(), mixed.of_client(1).unwrap());
            assert_ne!(mixed.of_client(0).unwrap(), mixed.of_client(1).unwrap());
            let other = Workload { seed: 8, ..mixed.clone() };
            assert_ne!(mixed.of_client(0).unwrap(), other.of_client(0).unwrap());
        }
    }

    #[test]
    fn the_first_operations_are_pinned() {
        // Published figures name a seed; it has to mean the same for ever.
        let ops = workload(Source::Zipf(0.99, Some(Scatter::over(1000))), 1000).of_client(0);
        let first: Vec<u32> = ops.unwrap().iter().take(6).map(|op| op.index()).collect();
        assert_eq!(first, PINNED);
    }
    const PINNED: [u32; 6] = [696, 142, 893, 714, 696, 607];

    #[test]
    fn zipf_is_as_skewed_as_its_law() {
        let ops = workload(Source::Zipf(0.99, None), 1000).of_client(0).unwrap();
        let counts = counts(&ops, 1000);
        let weight: f64 = (1..=1000).map(|rank| f64::from(rank).powf(-0.99)).sum();
        for rank in [1u32, 2, 10, 100] {
            let share = f64::from(counts[rank as usize - 1]) / 100_000.0;
            let law = f64::from(rank).powf(-0.99) / weight;
            assert!((share / law - 1.0).abs() < 0.2, "rank {rank}: {share} for {law}");
        }
    }

    #[test]
    fn uniform_is_even() {
        let ops = workload(Source::Uniform, 100).of_client(0).unwrap();
        assert!(counts(&ops, 100).iter().all(|count| (800..1200).contains(count)));
    }

    #[test]
    fn scattering_is_a_permutation_without_neighbours() {
        for count in [1u32, 2, 3, 5, 1000, 1 << 16, 1_000_000] {
            let scatter = Scatter::over(count);
            let mut seen = vec![false; count as usize];
            for rank in 0..count {
                let place = scatter.place(rank) as usize;
                assert!(!seen[place], "{place} of {count} twice");
                seen[place] = true;
            }
        }
        let mut hottest: Vec<u32> =
            (0..1000).map(|rank| Scatter::over(1_000_000).place(rank)).collect();
        hottest.sort_unstable();
        let neighbours = hottest.windows(2).filter(|pair| pair[1] - pair[0] < 8).count();
        assert!(neighbours < 50, "{neighbours} of the 1000 most popular are neighbours");
    }

    #[test]
    fn reads_and_writes_are_drawn_in_their_share() {
        let mixed = Workload { reads: 0.9, ..workload(Source::Uniform, 10) };
        let writes = mixed.of_client(0).unwrap().iter().filter(|op| op.is_write()).count();
        assert!((9_000..11_000).contains(&writes), "{writes}");
    }

    #[test]
    fn a_trace_is_replayed_in_order_and_shared_out() {
        let trace =
            Workload { ops: 7, clients: 2, ..workload(Source::Trace(vec![3, 1, 4, 1, 5]), 6) };
        let of = |client: usize| -> Vec<u32> {
            trace.of_client(client).unwrap().iter().map(|op| op.index()).collect()
        };
        assert_eq!((of(0), of(1)), (vec![3, 1, 4, 1], vec![5, 3, 1]));
    }
}
