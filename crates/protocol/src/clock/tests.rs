//! The clock over wall clocks that drift, step, go back and stand still while the
//! machine is suspended.

use super::*;
use proptest::prelude::*;

const START_MS: u64 = 1_700_000_000_000;

/// A machine: a wall clock beside its monotonic clock, and the server's clock that
/// is led after it.
struct Machine {
    since_ms: u64,
    wall_ms: i64,
    clock: ServerClock,
    follower: ClockFollower,
}

impl Machine {
    fn new() -> Self {
        let (clock, follower) = (ServerClock::starting_at(START_MS), ClockFollower::default());
        Self { since_ms: 0, wall_ms: START_MS as i64, clock, follower }
    }

    fn shown(&self) -> u64 {
        self.clock.unix_ms(self.since_ms)
    }

    /// Both clocks advance; then the follower looks.
    fn go_on(&mut self, ms: u64) {
        self.since_ms += ms;
        self.wall_ms += ms as i64;
        self.follow();
    }

    fn follow(&mut self) {
        let wall_ms = self.wall_ms.max(0) as u64;
        self.follower.follow(&self.clock, self.since_ms, wall_ms);
    }

    fn behind(&self) -> i64 {
        self.wall_ms - self.shown() as i64
    }
}

#[test]
fn it_shows_the_wall_clock_where_nothing_happens() {
    let mut machine = Machine::new();
    for _ in 0..1_000 {
        machine.go_on(10);
        assert_eq!(machine.behind(), 0);
        let told = machine.clock.told_unix_ms(machine.since_ms);
        assert_eq!(told, machine.shown() + CLOCK_SLEW_MS);
    }
}

#[test]
fn small_differences_are_slewed_away_both_ways() {
    for off_ms in [-900i64, -30, 30, 900] {
        let mut machine = Machine::new();
        machine.wall_ms += off_ms;
        let (from_ms, mut ms) = (machine.shown(), 0);
        while machine.behind().unsigned_abs() >= CLOCK_TOLERANCE_MS {
            machine.go_on(10);
            ms += 10;
            let gained = (machine.shown() - from_ms) as i64 - ms;
            let may = ms * CLOCK_SLEW_PPM as i64 / 1_000_000 + CLOCK_SLEW_MS as i64;
            assert!(gained.abs() <= may, "{gained} in {ms} ms");
            assert!(!machine.follower.is_stepping());
            assert!(ms < 100 * 1_000, "it comes near");
        }
    }
}

#[test]
fn a_drift_of_half_a_thousandth_is_followed() {
    let mut machine = Machine::new();
    for look in 1..=10_000i64 {
        machine.go_on(100);
        machine.wall_ms += look % 20 / 19;
        assert!(machine.behind().unsigned_abs() <= 3, "{}", machine.behind());
    }
}

#[test]
fn a_step_is_told_a_whole_wait_before_it_counts() {
    // By hand, by NTP, or because the machine was suspended.
    for by_ms in [CLOCK_STEP_MS as i64 + 1, 3_600_000, 30 * 86_400_000] {
        let mut machine = Machine::new();
        machine.go_on(500);
        machine.wall_ms += by_ms;
        machine.follow();
        let (told_at, told) = (machine.since_ms, machine.clock.told_unix_ms(machine.since_ms));
        assert!(told as i64 >= machine.wall_ms, "it is told at once");
        while machine.since_ms < told_at + WAIT_MS - 1 {
            assert_eq!(machine.behind(), by_ms, "it does not count yet");
            machine.go_on(1);
        }
        machine.go_on(1);
        assert_eq!(machine.behind(), 0);
        let told = machine.clock.told_unix_ms(machine.since_ms);
        assert_eq!(told, machine.shown() + CLOCK_SLEW_MS);
    }
}

#[test]
fn a_step_that_was_a_mistake_does_not_count() {
    let mut machine = Machine::new();
    machine.wall_ms += 1_000_000;
    machine.go_on(1);
    assert!(machine.follower.is_stepping());
    machine.wall_ms -= 1_000_000;
    machine.go_on(WAIT_MS);
    assert!(!machine.follower.is_stepping());
    assert_eq!(machine.behind(), 0);
}

#[test]
fn a_wall_clock_that_went_back_is_waited_for_and_never_followed_back() {
    let mut machine = Machine::new();
    machine.wall_ms -= 3_600_000;
    let mut before = machine.shown();
    for _ in 0..10_000 {
        machine.go_on(10);
        let shown = machine.shown();
        assert!(shown >= before && shown - before <= 10);
        before = shown;
    }
    assert!(machine.behind() >= -3_600_000 + 1_990, "it goes slower by two in a hundred");
}

#[test]
fn several_threads_never_see_it_go_back() {
    let (clock, seen) = (&ServerClock::starting_at(START_MS), &AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut follower = ClockFollower::default();
            for look in 0..20_000 {
                follower.follow(clock, look, START_MS + look - look.min(900));
            }
        });
        for _ in 0..2 {
            scope.spawn(move || {
                for look in 0..20_000 {
                    // A time that another thread has shown before is a lower bound.
                    let before = seen.load(Ordering::SeqCst);
                    let shown = clock.unix_ms(look);
                    assert!(shown >= before, "{shown} after {before}");
                    seen.fetch_max(shown, Ordering::SeqCst);
                }
            });
        }
    });
}

/// An event of a machine.
#[derive(Clone, Copy, Debug)]
enum Event {
    /// Time passes; the follower looks at the end of it.
    Time(u64),
    /// The wall clock is set.
    Wall(i64),
    /// The machine is suspended: the monotonic clock stops.
    Sleep(u64),
    /// A heartbeat is written, and a reader takes it.
    Beat,
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        6 => (0u64..60).prop_map(Event::Time),
        1 => (0u64..2_000).prop_map(Event::Time),
        1 => (-5_000i64..5_000).prop_map(Event::Wall),
        1 => (-900i64..900).prop_map(Event::Wall),
        1 => (0u64..10_000).prop_map(Event::Sleep),
        4 => Just(Event::Beat),
    ]
}

proptest! {
    #[test]
    fn no_bound_of_a_reader_is_overtaken(events in proptest::collection::vec(event(), 1..200)) {
        let mut machine = Machine::new();
        // The time of writing and the content of each heartbeat.
        let mut beats: Vec<(u64, u64)> = Vec::new();
        let mut before_ms = machine.shown();
        for event in events {
            match event {
                Event::Time(ms) => machine.go_on(ms),
                Event::Wall(by_ms) => machine.wall_ms += by_ms,
                Event::Sleep(ms) => machine.wall_ms += ms as i64,
                Event::Beat => {
                    beats.push((machine.since_ms, machine.clock.told_unix_ms(machine.since_ms)));
                }
            }
            let shown_ms = machine.shown();
            prop_assert!(shown_ms >= before_ms, "it went back");
            before_ms = shown_ms;
            beats.retain(|(at_ms, _)| machine.since_ms - at_ms < WAIT_MS);
            for (at_ms, told_ms) in &beats {
                // With a millisecond for the rounding of both.
                let passed_ms = machine.since_ms - at_ms;
                let bound = told_ms + passed_ms + passed_ms * CLOCK_SLEW_PPM / 1_000_000 + 1;
                prop_assert!(shown_ms <= bound, "{shown_ms}, bound {bound}");
            }
        }
    }
}
