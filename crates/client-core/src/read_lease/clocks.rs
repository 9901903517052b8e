//! The read lease against drifting clocks: a model with a true time that no participant can see.
//!
//! A client and a server, each with a clock of its own rate and offset, act in
//! any order and pause anywhere. The server is killed; a new incarnation starts, waits
//! as servers do, and acknowledges its first write. What must hold:
//! * no READ that counted was made after that write;
//! * no record that had expired by the server's clock was taken for live.
//!
//! The same model with a planted bug must break each of them.

use super::*;
use proptest::prelude::*;
use proptest::test_runner::{Config, TestCaseError, TestError, TestRunner};
use remora_arena::Mapping;
use remora_layout::lag::Lag;
use remora_layout::limits::CLOCK_DRIFT_PERCENT;
use remora_protocol::{ClockFollower, ServerClock};

const INCARNATION: u64 = 77;
const SESSION: u64 = 4;
const NS_PER_MS: u64 = 1_000_000;
const NS_PER_US: u64 = 1_000;
const UNIX_MS: u64 = 1_700_000_000_000;
const WAIT_MS: u64 = READ_LEASE_MS + READ_LEASE_MARGIN_MS;

/// A clock: what it shows as true time passes.
#[derive(Clone, Copy, Debug)]
struct Clock {
    offset_ns: u64,
    rate_ppm: u64,
}

impl Clock {
    fn at(self, true_ns: u64) -> u64 {
        self.offset_ns + (true_ns as u128 * self.rate_ppm as u128 / 1_000_000) as u64
    }

    /// True time that passes at least while the clock advances by `ns`.
    fn true_ns(self, ns: u64) -> u64 {
        (ns as u128 * 1_000_000).div_ceil(self.rate_ppm as u128) as u64
    }
}

/// One step. A pause stands where the scheduler may stop a thread in the middle.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// The client reads its clock, pauses, writes it and looks for a heartbeat.
    Look { pause_us: u64 },
    /// The client READs, pauses, reads its clock, pauses and judges: the lease,
    /// and an expiry so many ms from the server's present clock.
    Read { pause_us: u64, judge_us: u64, expires_in_ms: i64 },
    /// The client reads its clock and sends a request.
    Send,
    /// The client takes a reply.
    Take,
    /// The server copies the client's clock.
    Copy,
    /// The server reads its own clock.
    Stamp,
    /// The server writes the heartbeat that it has prepared.
    Beat,
    /// The server executes a request.
    Reply,
    /// The wall clock is set, or stood while the machine was suspended.
    Wall { by_ms: i64 },
    /// The server compares its clock with the wall clock.
    Follow,
}

/// Planted bugs of the model.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Planted {
    Nothing,
    /// The lease lasts as long as a new incarnation waits, without a margin.
    MarginIgnored,
    /// The lease counts from the moment when the client saw the heartbeat.
    LeaseFromReceipt,
    /// A reply's lease counts from when it arrived.
    ReplyFromArrival,
    /// A new incarnation does not wait.
    NoWait,
    /// A step of the server's clock counts at once.
    StepUntold,
}

#[derive(Clone, Debug)]
struct Case {
    client: Clock,
    server: Clock,
    /// The rate of the new incarnation's clock, which may be another machine's.
    next_rate_ppm: u64,
    /// Steps, and the true time before each, us.
    steps: Vec<(u64, Step)>,
    /// The server is killed before this step.
    killed_at: usize,
    /// True time from the kill to the start of the new incarnation, us.
    gap_us: u64,
}

fn rate() -> impl Strategy<Value = u64> {
    const OFF: u64 = CLOCK_DRIFT_PERCENT * 10_000;
    prop_oneof![Just(1_000_000 - OFF), Just(1_000_000 + OFF), 1_000_000 - OFF..=1_000_000 + OFF]
}

/// Mostly short, sometimes about as long as a lease.
fn pause_us() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0u64..2_000, 2 => 0u64..30_000, 1 => 0u64..400_000]
}

fn step() -> impl Strategy<Value = Step> {
    let expires_in_ms = prop_oneof![-3i64..60, -3i64..600, Just(100_000)];
    prop_oneof![
        3 => pause_us().prop_map(|pause_us| Step::Look { pause_us }),
        3 => (pause_us(), pause_us(), expires_in_ms).prop_map(
            |(pause_us, judge_us, expires_in_ms)| Step::Read { pause_us, judge_us, expires_in_ms }
        ),
        1 => Just(Step::Send),
        1 => Just(Step::Take),
        2 => Just(Step::Copy),
        2 => Just(Step::Stamp),
        2 => Just(Step::Beat),
        1 => Just(Step::Reply),
        1 => (-3_000i64..5_000).prop_map(|by_ms| Step::Wall { by_ms }),
        2 => Just(Step::Follow),
    ]
}

fn case() -> impl Strategy<Value = Case> {
    let steps = proptest::collection::vec((pause_us(), step()), 4..60);
    (rate(), rate(), rate(), 0u64..1 << 40, 0u64..1 << 40, steps, 0usize..60, pause_us()).prop_map(
        |(
            client_ppm,
            server_ppm,
            next_rate_ppm,
            client_ns,
            server_ns,
            steps,
            killed_at,
            gap_us,
        )| {
            Case {
                client: Clock { offset_ns: client_ns, rate_ppm: client_ppm },
                server: Clock { offset_ns: server_ns, rate_ppm: server_ppm },
                next_rate_ppm,
                steps,
                killed_at,
                gap_us,
            }
        },
    )
}

/// The world that a case runs in.
struct World {
    case: Case,
    planted: Planted,
    now_ns: u64,
    lease: ReadLease,
    to_server: Words,
    to_client: Words,
    beats: u64,
    clock: ServerClock,
    follower: ClockFollower,
    /// By how much the wall clock was set.
    wall_ms: i64,
    /// By how much a clock with the planted step is ahead.
    stepped_ms: u64,
    copied_ns: Option<u64>,
    stamped_ms: Option<u64>,
    /// When requests were sent, by the client's clock: sent, and answered.
    requests: Vec<u64>,
    replies: Vec<u64>,
    /// True time of the first write that the new incarnation acknowledges.
    first_write_ns: Option<u64>,
    /// READs that counted.
    counted: u64,
    /// Of these, those that took a record with an expiry for live.
    live: u64,
}

type Verdict = Result<(), TestCaseError>;

impl World {
    fn new(case: Case, planted: Planted) -> Self {
        let to_server = Words::new(Mapping::heap(8192));
        let to_client = Words::new(Mapping::heap(8192));
        let mut lease = ReadLease::new(to_server.clone(), to_client.view(), SESSION, INCARNATION);
        if planted == Planted::MarginIgnored {
            lease.term_ns = READ_LEASE_MS * NS_PER_MS;
        }
        Self {
            case,
            planted,
            now_ns: NS_PER_MS,
            lease,
            to_server,
            to_client,
            beats: 0,
            clock: ServerClock::starting_at(UNIX_MS),
            follower: ClockFollower::default(),
            wall_ms: 0,
            stepped_ms: 0,
            copied_ns: None,
            stamped_ms: None,
            requests: Vec::new(),
            replies: Vec::new(),
            first_write_ns: None,
            counted: 0,
            live: 0,
        }
    }

    fn client_ns(&self) -> u64 {
        self.case.client.at(self.now_ns)
    }

    fn server_since_ms(&self) -> u64 {
        self.case.server.at(self.now_ns) / NS_PER_MS
    }

    fn server_unix_ms(&self) -> u64 {
        self.clock.unix_ms(self.server_since_ms()) + self.stepped_ms
    }

    fn follow(&mut self) {
        let since_ms = self.server_since_ms();
        let wall_ms = (UNIX_MS + since_ms).saturating_add_signed(self.wall_ms);
        if self.planted == Planted::StepUntold {
            let behind_ms = wall_ms.saturating_sub(self.server_unix_ms());
            self.stepped_ms += behind_ms;
        } else {
            self.follower.follow(&self.clock, since_ms, wall_ms);
        }
    }

    fn pause(&mut self, us: u64) {
        self.now_ns += us * NS_PER_US;
    }

    fn run(&mut self) -> Verdict {
        for (at, (before_us, step)) in self.case.steps.clone().into_iter().enumerate() {
            if at == self.case.killed_at {
                self.kill();
            }
            self.pause(before_us);
            self.step(step)?;
        }
        if self.first_write_ns.is_none() {
            self.kill();
        }
        // The client takes all remaining replies, as late as possible, and continues to read.
        let first_write_ns = self.first_write_ns.expect("killed by now");
        self.now_ns = self.now_ns.max(first_write_ns);
        while !self.replies.is_empty() {
            self.step(Step::Take)?;
        }
        self.step(Step::Read { pause_us: 0, judge_us: 0, expires_in_ms: 100_000 })
    }

    fn kill(&mut self) {
        let next = Clock { offset_ns: 0, rate_ppm: self.case.next_rate_ppm };
        let wait_ms = if self.planted == Planted::NoWait { 0 } else { WAIT_MS };
        let starts_ns = self.now_ns + self.case.gap_us * NS_PER_US;
        self.first_write_ns = Some(starts_ns + next.true_ns(wait_ms * NS_PER_MS));
    }

    fn step(&mut self, step: Step) -> Verdict {
        let alive = self.first_write_ns.is_none();
        match step {
            Step::Look { pause_us } => {
                let now_ns = self.client_ns();
                self.pause(pause_us);
                self.look(now_ns);
            }
            Step::Read { pause_us, judge_us, expires_in_ms } => {
                return self.read(pause_us, judge_us, expires_in_ms);
            }
            Step::Send => self.requests.push(self.client_ns()),
            Step::Take => {
                if let Some(sent_ns) = self.replies.pop() {
                    let arrived = self.planted == Planted::ReplyFromArrival;
                    let from_ns = if arrived { self.client_ns() } else { sent_ns };
                    self.lease
                        .renew_by_reply(INCARNATION, from_ns, Lag::PRIMARY)
                        .expect("of this incarnation");
                }
            }
            Step::Copy if alive => {
                self.copied_ns = Some(self.to_server.load(CLIENT_CLOCK_WORD));
                self.stamped_ms = None;
            }
            Step::Stamp if alive && self.copied_ns.is_some() => {
                let told_ms = self.clock.told_unix_ms(self.server_since_ms());
                self.stamped_ms = Some(told_ms + self.stepped_ms);
            }
            Step::Beat if alive => self.beat(),
            Step::Reply if alive => self.replies.extend(self.requests.pop()),
            Step::Wall { by_ms } => self.wall_ms += by_ms,
            Step::Follow if alive => self.follow(),
            Step::Copy | Step::Stamp | Step::Beat | Step::Reply | Step::Follow => {}
        }
        Ok(())
    }

    fn look(&mut self, now_ns: u64) {
        if self.planted == Planted::LeaseFromReceipt && self.beats > 0 {
            self.write_beat(now_ns, self.lease.server_unix_ms.max(1));
        }
        self.lease.refresh_now(now_ns).expect("heartbeats are of one incarnation");
    }

    fn beat(&mut self) {
        if let (Some(copied_ns), Some(unix_ms)) = (self.copied_ns, self.stamped_ms.take()) {
            self.copied_ns = None;
            self.write_beat(copied_ns, unix_ms);
        }
    }

    fn write_beat(&mut self, echoed_client_clock_ns: u64, server_unix_ms: u64) {
        self.beats += 1;
        let words = Heartbeat {
            sequence: self.beats,
            utilisation_ppm_plus_1: 1,
            wait_ns: 0,
            incarnation: INCARNATION,
            epoch: 1,
            topology: 0,
            server_unix_ms,
            echoed_client_clock_ns,
            session: SESSION,
            lag: Lag::PRIMARY,
        }
        .to_words();
        for (at, word) in words.into_iter().enumerate() {
            self.to_client.store(HEARTBEAT_WORD + at, word);
        }
    }

    fn read(&mut self, pause_us: u64, judge_us: u64, expires_in_ms: i64) -> Verdict {
        let read_at_ns = self.now_ns;
        self.pause(pause_us);
        let now_ns = self.client_ns();
        let server_ms = self.server_unix_ms();
        let expires_at_ms = (server_ms as i64 + expires_in_ms) as u64;
        self.pause(judge_us);
        self.look(now_ns);
        if !self.lease.holds(now_ns) {
            return Ok(());
        }
        self.counted += 1;
        let too_late = self.first_write_ns.is_some_and(|first| read_at_ns >= first);
        prop_assert!(!too_late, "a READ after the new incarnation's first write counted");
        if !self.lease.may_have_expired(expires_at_ms, now_ns) {
            self.live += 1;
            prop_assert!(server_ms < expires_at_ms, "an expired record was taken for live");
        }
        Ok(())
    }
}

fn runner(cases: u32) -> TestRunner {
    let cases = if cfg!(miri) { cases.min(20) } else { cases };
    TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() })
}

/// The message of the first case that fails, if any of so many does.
fn first_failure(planted: Planted, cases: u32) -> Option<String> {
    let outcome = runner(cases).run(&case(), |case| World::new(case, planted).run());
    match outcome {
        Ok(()) => None,
        Err(TestError::Fail(reason, case)) => Some(format!("{reason} in {case:?}")),
        Err(TestError::Abort(reason)) => panic!("{reason}"),
    }
}

#[test]
fn no_lease_outlives_the_wait_of_a_new_incarnation_and_no_expired_record_is_live() {
    assert_eq!(first_failure(Planted::Nothing, 30_000), None);
}

#[test]
fn in_the_model_reads_do_count() {
    let steps = vec![
        (10_000, Step::Look { pause_us: 0 }),
        (1_000, Step::Copy),
        (0, Step::Stamp),
        (0, Step::Beat),
        (1_000, Step::Read { pause_us: 10, judge_us: 0, expires_in_ms: 100 }),
    ];
    let exact = Clock { offset_ns: 0, rate_ppm: 1_000_000 };
    let case = Case {
        client: exact,
        server: exact,
        next_rate_ppm: 1_000_000,
        steps,
        killed_at: 9,
        gap_us: 0,
    };
    let mut world = World::new(case, Planted::Nothing);
    world.run().unwrap();
    assert_eq!((world.counted, world.live), (1, 1));
}

#[cfg(not(miri))]
#[test]
fn planted_bugs_are_caught() {
    for planted in [
        Planted::MarginIgnored,
        Planted::LeaseFromReceipt,
        Planted::ReplyFromArrival,
        Planted::NoWait,
        Planted::StepUntold,
    ] {
        let found = first_failure(planted, 30_000);
        assert!(found.is_some(), "{planted:?} was not caught");
    }
}
