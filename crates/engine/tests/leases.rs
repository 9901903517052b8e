//! Leases against drifting clocks (HydraDB 4.2.3, H24 to H27): a model with a
//! true time that neither side can see, over the real shard.
//!
//! The client counts a lease from before it sent its request, on its clock; the shard from when it
//! executes the request, in whole seconds of its clock, kept modulo 2^16. These rules must hold for
//! all clock rates within the stated drift, all delays, and all phases of the 16-bit seconds:
//! * while a client may use its pointer, the slot is not free for reuse;
//! * terms double while a lease runs and halve afterwards, from 1 to 64 s;
//! * quarantine ends: no slot waits for longer than the longest lease.
//!
//! The same model with a lease that counts from the reply must fail.

use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};
use remora_arena::{NoJournal, Owner};
use remora_engine::{Now, Shard, ShardOptions};
use remora_layout::limits::{CLOCK_DRIFT_PERCENT, LEASE_MAX_S, LEASE_MIN_S};
use remora_protocol::message::Status;
use remora_protocol::{Command, Condition, Expiry};

const NS_PER_MS: u64 = 1_000_000;
const NS_PER_S: u64 = 1_000_000_000;
/// The longest that the shard may hold to a lease, s of its clock.
const HOLD_MAX_S: u64 = LEASE_MAX_S * (100 + CLOCK_DRIFT_PERCENT) / (100 - CLOCK_DRIFT_PERCENT) + 4;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Planted {
    Nothing,
    /// The client counts its lease from the reply's arrival.
    LeaseFromReply,
}

/// How the record ends.
#[derive(Clone, Copy, Debug)]
enum End {
    Deleted,
    Replaced,
    Expired,
}

/// One GET: true ms since the one before, and the ways there and back.
#[derive(Clone, Copy, Debug)]
struct Get {
    gap_ms: u64,
    there_ms: u64,
    back_ms: u64,
}

#[derive(Clone, Debug)]
struct Case {
    client_ppm: u64,
    server_ppm: u64,
    /// The server's clock when the case begins, ms since its start.
    server_ms: u64,
    gets: Vec<Get>,
    end: End,
    /// True time from the last GET's execution to the record's end, ms.
    until_end_ms: u64,
}

fn ppm() -> impl Strategy<Value = u64> {
    const OFF: u64 = CLOCK_DRIFT_PERCENT * 10_000;
    prop_oneof![Just(1_000_000 - OFF), Just(1_000_000 + OFF), 1_000_000 - OFF..=1_000_000 + OFF]
}

/// Any time in four days, and often the minutes before the seconds wrap.
fn server_ms() -> impl Strategy<Value = u64> {
    const WRAP_MS: u64 = (1 << 16) * 1000;
    prop_oneof![
        0u64..6 * WRAP_MS,
        (1u64..6, 0u64..200_000).prop_map(|(laps, before)| laps * WRAP_MS - before),
    ]
}

fn case(gap_ms: impl Strategy<Value = u64>) -> impl Strategy<Value = Case> {
    let way = || prop_oneof![4 => 0u64..3, 1 => 0u64..3_000];
    let get = (gap_ms, way(), way()).prop_map(|(gap_ms, there_ms, back_ms)| Get {
        gap_ms,
        there_ms,
        back_ms,
    });
    let end = prop_oneof![Just(End::Deleted), Just(End::Replaced), Just(End::Expired)];
    let gets = proptest::collection::vec(get, 1..24);
    (ppm(), ppm(), server_ms(), gets, end, 0u64..40_000).prop_map(
        |(client_ppm, server_ppm, server_ms, gets, end, until_end_ms)| Case {
            client_ppm,
            server_ppm,
            server_ms,
            gets,
            end,
            until_end_ms,
        },
    )
}

/// Gaps between GETs while a key is in use, and after it was forgotten.
fn gaps_in_use() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..1_500, 0u64..80_000, 0u64..3_600_000]
}

/// Gaps of up to two laps of the 16-bit seconds.
fn gaps_of_laps() -> impl Strategy<Value = u64> {
    prop_oneof![0u64..80_000, 0u64..2 * (1 << 16) * 1000]
}

struct World {
    case: Case,
    now_ns: u64,
    shard: Shard,
    /// True time at which the last of the clients' leases ends.
    used_until_ns: u64,
    /// The popularity and the end of the lease, kept without a modulus.
    popularity: u32,
    end_s: u64,
}

const KEY: &[u8] = b"the key";

impl World {
    fn new(case: Case) -> Self {
        let options = ShardOptions { hash_seed: 1, buckets: 8, ..ShardOptions::default() };
        let shard = Shard::new(Owner::heap(1 << 20, NoJournal), options);
        Self { case, now_ns: 0, shard, used_until_ns: 0, popularity: 0, end_s: 0 }
    }

    fn now_at(&self, true_ns: u64) -> Now {
        let passed_ns = true_ns as u128 * self.case.server_ppm as u128 / 1_000_000;
        let ms = self.case.server_ms + (passed_ns / NS_PER_MS as u128) as u64;
        Now { unix_ms: 1_700_000_000_000 + ms, since_start_s: ms / 1000 }
    }

    fn execute(&mut self, command: &Command<'_>) -> (Status, u32) {
        let (hash, now) = (self.shard.hash(KEY), self.now_at(self.now_ns));
        let reply = self.shard.execute(command, hash, now);
        (reply.status, reply.lease_ms)
    }

    fn set(&mut self, value: &[u8]) {
        let (condition, expiry) = (Condition::Always, Expiry::Never);
        let set = Command::Set { key: KEY, value, condition, expiry, get: false };
        assert_eq!(self.execute(&set).0, Status::Ok);
    }

    fn quarantine_bytes(&self) -> u64 {
        self.shard.stats().slots.quarantine_bytes
    }

    fn run(&mut self, planted: Planted, is_exact: bool) -> Result<(), TestCaseError> {
        self.set(b"first");
        for get in self.case.gets.clone() {
            self.now_ns += get.gap_ms * NS_PER_MS;
            let sent_ns = self.now_ns;
            self.now_ns += get.there_ms * NS_PER_MS;
            let (status, lease_ms) = self.execute(&Command::Get { key: KEY });
            prop_assert_eq!(status, Status::Ok);
            let term_s = lease_ms as u64 / 1000;
            prop_assert!((LEASE_MIN_S..=LEASE_MAX_S).contains(&term_s) && lease_ms % 1000 == 0);
            if is_exact {
                prop_assert_eq!(term_s, self.expected_term_s());
            }
            let from_ns = match planted {
                Planted::Nothing => sent_ns,
                Planted::LeaseFromReply => self.now_ns + get.back_ms * NS_PER_MS,
            };
            // The last moment at which the client's clock is before its end.
            let lasts_ns = (lease_ms as u64 * NS_PER_MS) as u128 * 1_000_000;
            let lasts_ns = lasts_ns.div_ceil(self.case.client_ppm as u128) as u64;
            self.used_until_ns = self.used_until_ns.max(from_ns + lasts_ns - 1);
        }
        self.end_record()?;
        self.check_quarantine()
    }

    /// Doubled while a lease runs, halved otherwise (H24).
    fn expected_term_s(&mut self) -> u64 {
        let now_s = self.now_at(self.now_ns).since_start_s;
        self.popularity = if self.end_s > now_s {
            (self.popularity + 1).min(LEASE_MAX_S.ilog2())
        } else {
            self.popularity.saturating_sub(1)
        };
        let term_s = 1 << self.popularity;
        let hold_s = (term_s * (100 + CLOCK_DRIFT_PERCENT)).div_ceil(100 - CLOCK_DRIFT_PERCENT) + 1;
        let mut end_s = now_s + hold_s;
        end_s += end_s.is_multiple_of(1 << 16) as u64;
        self.end_s = self.end_s.max(end_s);
        term_s
    }

    fn end_record(&mut self) -> Result<(), TestCaseError> {
        let until_end_ns = self.case.until_end_ms * NS_PER_MS;
        if matches!(self.case.end, End::Expired) {
            // A change of the expiry keeps the lease.
            let at_ms = self.now_at(self.now_ns).unix_ms + 1;
            let condition = remora_protocol::ExpireCondition::Always;
            self.execute(&Command::Expire { key: KEY, at_ms, condition });
        }
        self.now_ns += until_end_ns + 2 * NS_PER_MS;
        match self.case.end {
            End::Deleted => {
                self.execute(&Command::Del { key: KEY });
            }
            End::Replaced => self.set(b"other"),
            End::Expired => {
                prop_assert_eq!(self.execute(&Command::Get { key: KEY }).0, Status::NotFound);
            }
        }
        Ok(())
    }

    fn check_quarantine(&mut self) -> Result<(), TestCaseError> {
        if self.now_ns <= self.used_until_ns {
            prop_assert!(self.quarantine_bytes() > 0, "the slot was free at once");
            self.shard.tick(self.now_at(self.used_until_ns));
            prop_assert!(self.quarantine_bytes() > 0, "the slot is free while its lease runs");
        }
        let most_ns = (HOLD_MAX_S * NS_PER_S) as u128 * 1_000_000 / self.case.server_ppm as u128;
        self.shard.tick(self.now_at(self.now_ns.max(self.used_until_ns) + most_ns as u64));
        prop_assert_eq!(self.quarantine_bytes(), 0, "the slot waits for ever");
        Ok(())
    }
}

fn first_failure(
    gap_ms: impl Strategy<Value = u64>,
    planted: Planted,
    is_exact: bool,
) -> Option<String> {
    let cases = if cfg!(miri) { 5 } else { 8_000 };
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let outcome =
        TestRunner::new(config).run(&case(gap_ms), |case| World::new(case).run(planted, is_exact));
    match outcome {
        Ok(()) => None,
        Err(TestError::Fail(reason, case)) => Some(format!("{reason} in {case:?}")),
        Err(TestError::Abort(reason)) => panic!("{reason}"),
    }
}

#[test]
fn no_slot_is_free_while_a_client_may_read_it_and_terms_follow_popularity() {
    assert_eq!(first_failure(gaps_in_use(), Planted::Nothing, true), None);
}

/// An end that is laps old may be taken for one that runs: that may lengthen
/// a term, and never ends a lease early.
#[test]
fn a_stale_end_of_laps_ago_frees_no_slot_early() {
    assert_eq!(first_failure(gaps_of_laps(), Planted::Nothing, false), None);
}

#[test]
fn no_phase_of_the_seconds_loses_a_lease() {
    for back_s in 0..=HOLD_MAX_S {
        for popular in [0, 1, 6] {
            let one = Get { gap_ms: 0, there_ms: 0, back_ms: 0 };
            let case = Case {
                client_ppm: 1_000_000,
                server_ppm: 1_000_000,
                server_ms: ((1 << 16) - back_s) * 1000,
                gets: vec![one; popular + 1],
                end: End::Deleted,
                until_end_ms: 0,
            };
            World::new(case).run(Planted::Nothing, true).unwrap();
        }
    }
}

/// A client that asks again in the last eighth of its term (H25), on whatever
/// clocks, finds its lease running at the server: the term grows to the longest.
#[test]
fn renewal_in_the_last_eighth_always_finds_the_lease_running() {
    const OFF: u64 = CLOCK_DRIFT_PERCENT * 10_000;
    for client_ppm in [1_000_000 - OFF, 1_000_000 + OFF] {
        for server_ppm in [1_000_000 - OFF, 1_000_000 + OFF] {
            for phase_ms in (0..1000).step_by(50) {
                let case = Case {
                    client_ppm,
                    server_ppm,
                    server_ms: phase_ms,
                    gets: Vec::new(),
                    end: End::Deleted,
                    until_end_ms: 0,
                };
                let mut world = World::new(case);
                world.set(b"first");
                for at in 0..10 {
                    let (_, lease_ms) = world.execute(&Command::Get { key: KEY });
                    assert_eq!(
                        lease_ms,
                        1000 << at.min(LEASE_MAX_S.ilog2()),
                        "{at} {client_ppm} {server_ppm}"
                    );
                    // As late as a renewal can be sent.
                    world.now_ns += lease_ms as u64 * NS_PER_MS * 1_000_000 / client_ppm - 1;
                }
            }
        }
    }
}

#[cfg(not(miri))]
#[test]
fn a_lease_that_counts_from_the_reply_is_caught() {
    let found = first_failure(gaps_in_use(), Planted::LeaseFromReply, true);
    assert!(found.is_some_and(|found| found.contains("while its lease runs")));
}
