//! The choice against exactly known systems: formulas give the costs of the two routes, so that the
//! test can compute the loss of any policy.

use super::*;
use proptest::prelude::*;

const MS: u64 = 1_000_000;

/// One client's operations of one class against costs that may depend on time.
struct Bench {
    chooser: Chooser,
    class: Class,
    now_ns: u64,
    asked: u64,
    read: u64,
    turns: u64,
    last: Route,
    /// What share of its reads has no result.
    in_vain: f32,
}

impl Bench {
    fn new(policy: Policy, seed: u64) -> Self {
        let class = Class { measured_every: 1, ..Class::NEW };
        let chooser = Chooser::new(policy, false, seed);
        Self {
            chooser,
            class,
            now_ns: 50 * MS,
            asked: 0,
            read: 0,
            turns: 0,
            last: Route::Ask,
            in_vain: 0.0,
        }
    }

    /// One operation; what it took, ns.
    fn step(&mut self, load: Option<ServerLoad>, cost: impl Fn(Route) -> u64) -> u64 {
        let decision = self.chooser.decide(&mut self.class, load, self.now_ns);
        let took_ns = cost(decision.route);
        self.now_ns += took_ns;
        if decision.is_measured {
            let spent = Spent { elapsed_ns: took_ns, reads: 7, in_vain: self.in_vain };
            self.chooser.learn(&mut self.class, decision.route, spent, self.now_ns);
        }
        self.turns += (decision.route != self.last) as u64;
        self.last = decision.route;
        *match decision.route {
            Route::Ask => &mut self.asked,
            Route::Read => &mut self.read,
        } += 1;
        took_ns
    }

    /// Time for so many operations, ns.
    fn run(&mut self, operations: u64, cost: impl Fn(Route, u64) -> u64) -> u64 {
        (0..operations)
            .map(|_| {
                let now_ns = self.now_ns;
                self.step(None, |route| cost(route, now_ns))
            })
            .sum()
    }
}

/// The median of five clients: one in some thousands measures so badly, by chance, that it takes
/// the worse route for a while.
fn middle_of_clients(seed: u64, took: impl Fn(u64) -> f64) -> f64 {
    let mut all: [f64; 9] =
        std::array::from_fn(|client| took(seed.wrapping_add(client as u64 * 7919)));
    all.sort_by(f64::total_cmp);
    all[4]
}

/// A route that grows cold while it is not used.
#[derive(Clone, Copy, Default)]
struct Cooling {
    gone_ns: u64,
    until_ns: u64,
}

impl Cooling {
    fn is_cold(self, now_ns: u64) -> bool {
        now_ns > self.until_ns + 30_000
    }

    fn cost(self, own: f64, cold: f64, now_ns: u64) -> u64 {
        let is_warm = !self.is_cold(now_ns) && self.gone_ns > 50_000;
        (if is_warm { own } else { own * cold }) as u64
    }

    fn goes(&mut self, now_ns: u64, took_ns: u64) {
        let gone_ns = if self.is_cold(now_ns) { 0 } else { self.gone_ns };
        *self = Self { gone_ns: gone_ns + took_ns, until_ns: now_ns + took_ns };
    }
}

/// READs that are so short that they hardly count beside asking: they are worthwhile if they spare
/// the server, and not if the client asks after all.
#[test]
fn what_is_read_in_vain_spares_nobody() {
    for (in_vain, asks_mostly) in [(0.0, false), (1.0, true)] {
        let mut bench = Bench { in_vain, ..Bench::new(Policy::Cost, 5) };
        bench.run(20_000, |route, _| if route == Route::Ask { 30_000 } else { 30_300 });
        assert_eq!(bench.asked > 2 * bench.read, asks_mostly, "{} {}", bench.asked, bench.read);
        assert_eq!(bench.read > 2 * bench.asked, !asks_mostly, "{} {}", bench.asked, bench.read);
    }
}

/// The two routes swap their costs once a second: the result of a client.
fn follow_changes(fast: u64, factor: u64, seed: u64) -> Result<(), TestCaseError> {
    let slow = fast * factor;
    let period = 1_000 * MS;
    let better =
        |now_ns: u64| if (now_ns / period).is_multiple_of(2) { Route::Read } else { Route::Ask };
    let cost = |route, now_ns| if route == better(now_ns) { fast } else { slow };
    let mut bench = Bench::new(Policy::Cost, seed);
    for change_ns in (1..5).map(|number| number * period) {
        while bench.now_ns < change_ns + 200 * MS {
            bench.run(1, cost);
        }
        let (begun, turns, operations) = (bench.now_ns, bench.turns, bench.asked + bench.read);
        let mut took = 0;
        while bench.now_ns < change_ns + 900 * MS {
            took += bench.run(1, cost);
        }
        let operations = bench.asked + bench.read - operations;
        let turns = bench.turns - turns;
        prop_assert!(took as f64 <= (operations * fast) as f64 * 1.05, "from {begun}");
        prop_assert!(turns <= 2 + operations / 200, "{turns} turns in {operations} operations");
    }
    Ok(())
}

/// Trials of a much slower route are rare, as each costs a millisecond. A trial made just before
/// the routes swap their costs does not delay the next one.
#[test]
fn a_trial_just_before_a_change_does_not_delay_its_being_followed() {
    for seed in 0..60 {
        follow_changes(18_749, 19, seed * 7919 + 13).unwrap();
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Never worse than the better route by more than 5 %, whatever the two cost, learning time
    /// included.
    #[test]
    fn fixed_costs_are_found(ask in 200u64..1_000_000, ratio in 0.02f64..50.0, seed in any::<u64>()) {
        let read = ((ask as f64 * ratio) as u64).max(1);
        let mut bench = Bench::new(Policy::Cost, seed);
        let operations = 200_000;
        let took = bench.run(operations, |route, _| if route == Route::Ask { ask } else { read });
        let best = ask.min(read) * operations;
        prop_assert!(took as f64 <= best as f64 * 1.05, "{took} against {best}: {ratio}");
    }

    /// The same with times that vary over a factor of four, and one in a hundred that takes a
    /// hundred times as long, on either route.
    #[test]
    fn scattering_costs_are_found(ratio in 0.1f64..10.0, seed in any::<u64>()) {
        // The cost of the taken routes without the random variation.
        let plain = |route| if route == Route::Ask { 1.0 } else { ratio };
        let operations = 40_000;
        let took = middle_of_clients(seed, |seed| {
            let mut draws = Draws(seed | 1);
            let mut bench = Bench::new(Policy::Cost, seed ^ 77);
            let operation = |_| {
                let mut scatter = 0.5 + 1.5 * draws.share() as f64;
                if draws.below(100) == 0 {
                    scatter *= 100.0;
                }
                bench.step(None, |route| (3_000.0 * scatter * plain(route)) as u64);
                plain(bench.last)
            };
            (0..operations).map(operation).sum()
        });
        let best = operations as f64 * ratio.min(1.0);
        prop_assert!(took <= best * 1.05, "{took} against {best}");
    }

    /// Each route grows cold, and then costs up to eight times as much. The warm cost counts: the
    /// client finds the better route unless the two are nearly the same.
    #[test]
    fn ways_that_grow_cold_are_found(
        ask in 500u64..5_000, ratio in 0.4f64..2.5, cold in 1.0f64..8.0, seed in any::<u64>(),
    ) {
        let own = |route| if route == Route::Ask { ask as f64 } else { ask as f64 * ratio };
        let operations = 100_000;
        let took = middle_of_clients(seed, |seed| {
            let mut bench = Bench::new(Policy::Cost, seed);
            let mut ways = [Cooling::default(); 2];
            let mut operation = |_| {
                let (now_ns, before) = (bench.now_ns, ways);
                let took = bench.step(None, |route| before[route as usize].cost(own(route), cold, now_ns));
                ways[bench.last as usize].goes(now_ns, took);
                took as f64
            };
            let _settling: f64 = (0..operations).map(&mut operation).sum();
            (0..operations).map(operation).sum()
        });
        let took = took / (own(Route::Ask).min(own(Route::Read)) * operations as f64);
        let most = if (0.85..1.2).contains(&ratio) { 1.25 } else { 1.08 };
        prop_assert!(took <= most, "{took} of the better way");
    }

    /// A route that was nearly as good has become very slow meanwhile: a client that tries it
    /// notices within some operations, however long the planned trial.
    #[test]
    fn a_trial_that_turns_out_slow_ends(fast in 300u64..2_000, slow in 1u64..20, seed in any::<u64>()) {
        let mut bench = Bench::new(Policy::Cost, seed);
        bench.run(20_000, |route, _| if route == Route::Read { fast } else { fast + fast / 5 });
        let before = bench.asked;
        let mut in_a_row = 0;
        for _ in 0..200_000 {
            bench.run(1, |route, _| if route == Route::Read { fast } else { slow * MS });
            in_a_row = if bench.last == Route::Ask { in_a_row + 1 } else { 0 };
            prop_assert!(in_a_row <= 32, "asked on and on");
        }
        prop_assert!(bench.asked > before, "never tried again");
    }

    /// The client follows a change of the better route within a fifth of a second, and between two
    /// changes it leaves the better route only to try the other (stated in docs/choice.md: in less
    /// than one run of eight in fifty).
    #[test]
    fn changes_are_followed_without_oscillation(fast in 1_000u64..20_000, factor in 2u64..20, seed in any::<u64>()) {
        follow_changes(fast, factor, seed)?;
    }

    /// Monotone: a higher cost of a route never makes a settled session take it more often.
    #[test]
    fn a_dearer_way_is_not_taken_more_often(read in 1_000u64..100_000, seed in any::<u64>()) {
        let asked_at = |ask: u64| {
            let mut bench = Bench::new(Policy::Cost, seed);
            bench.run(4_000, |route, _| if route == Route::Ask { ask } else { read });
            let before = bench.asked;
            bench.run(20_000, |route, _| if route == Route::Ask { ask } else { read });
            bench.asked - before
        };
        let shares: Vec<u64> = [50, 80, 95, 110, 150, 300].map(|percent| asked_at(read * percent / 100)).to_vec();
        // Draws scatter: two neighbours may change places by a few runs.
        prop_assert!(shares.windows(2).all(|pair| pair[1] <= pair[0] + 400), "{shares:?}");
        prop_assert!(shares[0] > 19_000 && shares[5] < 1_000, "{shares:?}");
    }

    /// Whatever is measured, nothing panics and what is predicted is a time.
    #[test]
    fn anything_may_be_measured(
        steps in prop::collection::vec((any::<u64>(), any::<u64>(), any::<u64>(), any::<u32>(), any::<u32>()), 1..200),
        policy in prop::sample::select(Policy::ALL.to_vec()),
        seed in any::<u64>(),
    ) {
        let mut chooser = Chooser::new(policy, seed & 1 == 1, seed);
        let mut class = Class { measured_every: if seed & 2 == 2 { 8 } else { 1 }, ..Class::NEW };
        for (elapsed_ns, reads, now_ns, utilisation_ppm, wait_ns) in steps {
            let load = Some(ServerLoad { sequence: elapsed_ns, utilisation_ppm, wait_ns });
            let decision = chooser.decide(&mut class, load, now_ns);
            chooser.learn(&mut class, decision.route, Spent { elapsed_ns, reads, in_vain: 0.0 }, now_ns);
            let (ask, read) = chooser.predict(&class, now_ns);
            for expected in [ask, read].into_iter().flatten() {
                prop_assert!(expected.is_finite() && expected >= 1.0, "{expected}");
            }
        }
    }
}

/// Many clients at one server that serves one request at a time: asking takes
/// as long as the queue is, reading always the same. In virtual time, a round
/// of all clients a step.
struct Crowd {
    benches: Vec<Bench>,
    service_ns: u64,
    read_ns: u64,
}

impl Crowd {
    fn new(policy: Policy, clients: u64, service_ns: u64, read_ns: u64) -> Self {
        let benches = (0..clients).map(|seed| Bench::new(policy, seed + 1)).collect();
        Self { benches, service_ns, read_ns }
    }

    /// Lets time pass; mean operations a second, and the least and the greatest
    /// number of clients that asked in any 10 ms of the second half.
    fn run(&mut self, ns: u64) -> (f64, usize, usize) {
        let end_ns = self.benches[0].now_ns + ns;
        let half_ns = end_ns - ns / 2;
        let mut beat = 0;
        let (mut operations, mut least, mut most) = (0u64, usize::MAX, 0);
        let mut load = ServerLoad { sequence: 1, utilisation_ppm: 0, wait_ns: 0 };
        // Events: each client's next operation begins when its last one ended.
        let mut queue_free_ns = self.benches[0].now_ns;
        let mut heap: std::collections::BinaryHeap<_> = self
            .benches
            .iter()
            .enumerate()
            .map(|(at, bench)| std::cmp::Reverse((bench.now_ns, at)))
            .collect();
        let (mut window_asks, mut busy_ns, mut waited_ns, mut waits) = (0usize, 0u64, 0u64, 0u64);
        while let Some(std::cmp::Reverse((now_ns, at))) = heap.pop() {
            if now_ns >= end_ns {
                continue;
            }
            if now_ns / (10 * MS) > beat {
                beat = now_ns / (10 * MS);
                load = ServerLoad {
                    sequence: load.sequence + 1,
                    utilisation_ppm: (busy_ns / 10).min(1_000_000) as u32,
                    wait_ns: waited_ns.checked_div(waits).unwrap_or(0) as u32,
                };
                if now_ns > half_ns {
                    (least, most) = (least.min(window_asks), most.max(window_asks));
                }
                (window_asks, busy_ns, waited_ns, waits) = (0, 0, 0, 0);
            }
            let (service_ns, read_ns) = (self.service_ns, self.read_ns);
            let begins_ns = queue_free_ns.max(now_ns);
            let bench = &mut self.benches[at];
            let before = bench.asked;
            bench.step(Some(load), |route| match route {
                Route::Ask => begins_ns + service_ns + 2_000 - now_ns,
                Route::Read => read_ns,
            });
            if bench.asked > before {
                queue_free_ns = begins_ns + service_ns;
                window_asks += 1;
                busy_ns += service_ns;
                waited_ns += begins_ns - now_ns;
                waits += 1;
            }
            operations += 1;
            heap.push(std::cmp::Reverse((bench.now_ns, at)));
        }
        (operations as f64 * 1e9 / ns as f64, least, most)
    }
}

/// A crowd is better off than if all asked or all read: some clients ask, some read (the sum of
/// both capacities), and the crowd's mix stays steady though all see the same heartbeats (A16,
/// A17).
#[test]
fn a_crowd_shares_both_ways_and_keeps_steady() {
    for (clients, service_ns, read_ns) in
        [(64, 1_000, 20_000), (256, 1_000, 100_000), (16, 2_000, 10_000)]
    {
        let run = |policy| Crowd::new(policy, clients, service_ns, read_ns).run(1_000 * MS);
        let [(ask, ..), (read, ..)] = [Policy::Ask, Policy::Read].map(run);
        let (cost, least, most) = run(Policy::Cost);
        let [(literal, ..), (keep, ..)] = [Policy::CatfishLiteral, Policy::CatfishKeep].map(run);
        println!(
            "{clients} clients: ask {ask:.0}/s, read {read:.0}/s, literal {literal:.0}/s, keep \
             {keep:.0}/s, cost {cost:.0}/s; asked in 10 ms {least} to {most}"
        );
        assert!(cost >= 0.95 * ask.max(read), "{cost} against {ask} and {read}");
        assert!(least * 2 >= most, "asked in 10 ms: {least} to {most}");
    }
}
