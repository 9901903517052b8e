//! Which entries of a replica's log go when it follows a new primary.
//!
//! ```text
//!   new primary   1 1 1 1 | 3 3 3        entries, by epoch
//!   replica       1 1 1 1 1 1            the last two were never acknowledged: they go
//!                       ^ shared
//! ```
//! All entries of one epoch come from one primary, which appends in order. So two logs are the same up
//! to where both know the same epochs, each with the same first sequence.
//!
//! Invariants:
//! * entries that conflict with the new primary's log are cut, no others: a new primary has every
//!   acknowledged entry, so what is cut never was;
//! * a replica that has *applied* an entry which goes cannot take it out of its data: it copies them
//!   anew. That is a primary of before, mostly.

/// The first entry of an epoch that has any.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct EpochStart {
    /// The epoch.
    pub epoch: u64,
    /// The sequence of its first entry, from 1.
    pub first: u64,
}

/// The log of one shard, without its entries.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LogShape {
    /// By epoch; epochs without an entry are left out.
    pub epochs: Vec<EpochStart>,
    /// The last sequence; 0 if there is none.
    pub last: u64,
}

impl LogShape {
    /// The last sequence up to which two logs of one group are the same.
    pub fn shared_with(&self, other: &Self) -> u64 {
        let mut shared = 0;
        for (at, (own, its)) in self.epochs.iter().zip(&other.epochs).enumerate() {
            if own != its {
                break;
            }
            let (own_end, its_end) = (self.end_of(at), other.end_of(at));
            shared = own_end.min(its_end);
            if own_end != its_end {
                break;
            }
        }
        shared
    }

    /// The last sequence of the epoch at this index.
    fn end_of(&self, at: usize) -> u64 {
        self.epochs.get(at + 1).map_or(self.last, |next| next.first - 1)
    }
}

/// What a replica does before it takes entries of a new primary.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reconciliation {
    /// It keeps the entries up to this one, cuts what is behind them, and goes on with the next.
    GoesOn(u64),
    /// It has applied entries that the primary does not have: it copies the primary's data.
    Copies,
}

/// Compares the log of a replica, which has applied the entries up to `applied`, with that of its new
/// primary.
pub fn reconcile(replica: &LogShape, applied: u64, primary: &LogShape) -> Reconciliation {
    let shared = replica.shared_with(primary);
    match shared >= applied {
        true => Reconciliation::GoesOn(shared),
        false => Reconciliation::Copies,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_testing::Random;

    /// A log by the epoch of each entry.
    fn shape(entries: &[u64]) -> LogShape {
        let mut epochs: Vec<EpochStart> = Vec::new();
        for (at, &epoch) in entries.iter().enumerate() {
            if epochs.last().is_none_or(|of| of.epoch != epoch) {
                epochs.push(EpochStart { epoch, first: at as u64 + 1 });
            }
        }
        LogShape { epochs, last: entries.len() as u64 }
    }

    #[test]
    fn only_what_conflicts_is_cut() {
        let cases: [(&[u64], &[u64], u64); 7] = [
            (&[], &[1, 1], 0),
            (&[1, 1], &[], 0),
            (&[1, 1], &[1, 1, 1], 2),
            (&[1, 1, 1, 1], &[1, 1, 3], 2),
            (&[1, 1, 2, 2], &[1, 1, 2, 2, 5], 4),
            (&[1, 1, 2, 2, 2], &[1, 1, 2, 5], 3),
            (&[1, 1, 1, 2], &[1, 1, 3, 3, 3], 2),
        ];
        for (replica, primary, shared) in cases {
            let (replica, primary) = (shape(replica), shape(primary));
            assert_eq!(replica.shared_with(&primary), shared, "{replica:?} {primary:?}");
            assert_eq!(reconcile(&replica, shared, &primary), Reconciliation::GoesOn(shared));
            let copies = reconcile(&replica, shared + 1, &primary);
            assert_eq!(copies, Reconciliation::Copies);
        }
    }

    /// Primaries append, replicas hold prefixes, and each new primary goes on from such a prefix.
    #[test]
    fn it_is_the_longest_common_prefix() {
        for seed in 0..2_000 {
            let mut random = Random::new(seed);
            let mut logs: Vec<Vec<u64>> = vec![Vec::new(); 4];
            for epoch in 1..8 {
                let leads = random.below(logs.len());
                let mut log = logs[leads].clone();
                log.extend(vec![epoch; random.below(4)]);
                logs[leads] = log.clone();
                for replica in &mut logs {
                    if random.one_in(2) {
                        continue;
                    }
                    let shared = shape(replica).shared_with(&shape(&log)) as usize;
                    let common = replica.iter().zip(&log).take_while(|(own, its)| own == its);
                    assert_eq!(shared, common.count(), "seed {seed}");
                    let end = random.within(shared..log.len() + 1);
                    *replica = log[..end].to_vec();
                }
            }
        }
    }
}
