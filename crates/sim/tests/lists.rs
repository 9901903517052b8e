//! Lists in worlds: the checker by itself, and worlds with clients that wait. The longer form is
//! `make worlds`.

use remora_sim::check::lists::{End, ListCall, ListOp, Unexplained, check};
use remora_sim::probes::{Probe, Probes};
use remora_sim::run::Outcome;
use remora_sim::shrink::Less;
use remora_sim::world::World;
use std::hash::{BuildHasher, RandomState};

fn run(seed: u64, with_faults: bool) -> Outcome {
    let less = Less { lists: true, ..Less::default() };
    let outcome = World::run(less.of(seed, with_faults), false);
    let faults = if with_faults { "" } else { " --no-faults" };
    assert!(
        outcome.violations.is_empty(),
        "{}\nto repeat it: remora-sim --seed {seed}{faults} --lists --shrink",
        outcome.violations[0]
    );
    outcome
}

#[test]
fn the_same_seed_gives_the_same_run_with_lists() {
    for seed in 0..3 {
        let (first, second) = (run(seed, true), run(seed, true));
        assert_eq!(first.hash, second.hash, "seed {seed}");
        assert_eq!(first.virtual_ns, second.virtual_ns);
    }
}

#[test]
fn fixed_seeds_keep_every_promise_with_lists() {
    let (mut probes, mut keys, mut undecided) = (Probes::default(), 0, 0);
    for seed in 0..30 {
        for outcome in [run(seed, true), run(seed, false)] {
            probes.add_all(&outcome.probes);
            keys += outcome.keys;
            undecided += outcome.undecided;
        }
    }
    let reached = Probe::OF_LISTS.map(|probe| probes.reached(probe));
    assert!(reached.iter().all(|&times| times > 20), "{reached:?}");
    assert!(100 * undecided < keys, "nearly all keys are judged: not {undecided} of {keys}");
}

/// Others each time: a failure names its seed.
#[test]
fn fresh_seeds_keep_every_promise_with_lists() {
    let first = RandomState::new().hash_one("a number that differs with each process");
    for seed in (0..15).map(|at| first.wrapping_add(at)) {
        run(seed, true);
    }
}

fn call(times: (u64, u64), op: ListOp) -> ListCall {
    let (invoked_ns, returned_ns) = (times.0, Some(times.1));
    ListCall { returned_ns, ..ListCall::begun(invoked_ns, op) }
}

fn push(times: (u64, u64), items: &[i64]) -> ListCall {
    call(times, ListOp::Push { end: End::Right, items: items.to_vec(), length: None })
}

fn pop(times: (u64, u64), items: &[i64]) -> ListCall {
    call(times, ListOp::Pop { end: End::Left, items: items.to_vec() })
}

fn range(times: (u64, u64), found: &[i64]) -> ListCall {
    call(times, ListOp::Range { found: found.to_vec() })
}

fn waits(waits_ns: u64, call: ListCall) -> ListCall {
    ListCall { waits_ns: Some(waits_ns), ..call }
}

fn lost(call: ListCall) -> ListCall {
    ListCall { returned_ns: None, ..call }
}

fn wrong(call: usize) -> Result<(), Unexplained> {
    Err(Unexplained { call, is_certain: true })
}

#[test]
fn an_element_is_given_once_and_is_not_lost() {
    let calls = [push((0, 1), &[7]), pop((2, 3), &[7]), pop((4, 5), &[7])];
    assert_eq!(check(&calls, false), wrong(2));
    let calls = [push((0, 1), &[7, 8]), pop((2, 9), &[7]), range((2, 9), &[7, 8])];
    assert_eq!(check(&calls, false), Ok(()));
    let calls = [push((0, 1), &[7]), range((2, 3), &[])];
    assert_eq!(check(&calls, false), wrong(1));
    assert_eq!(check(&calls, true), Ok(()), "it may have been evicted");
}

#[test]
fn a_client_that_went_may_have_taken_something() {
    let any = call((2, 3), ListOp::PopAny { end: End::Left, count: 1 });
    let calls = [push((0, 1), &[7, 8]), lost(any.clone()), range((8, 9), &[8])];
    assert_eq!(check(&calls, false), Ok(()));
    let calls = [push((0, 1), &[7, 8]), lost(any), range((8, 9), &[])];
    assert_eq!(check(&calls, false), wrong(2), "it took one at most");
}

#[test]
fn who_waits_longer_is_served_first() {
    let first = waits(2, pop((0, 20), &[8]));
    let second = waits(6, pop((4, 20), &[7]));
    let calls = [first, second, push((10, 11), &[7]), push((12, 13), &[8])];
    assert!(check(&calls, false).is_err());
    let first = waits(2, pop((0, 20), &[7]));
    let second = waits(6, pop((4, 20), &[8]));
    let calls = [first, second, push((10, 11), &[7]), push((12, 13), &[8])];
    assert_eq!(check(&calls, false), Ok(()));
}

#[test]
fn a_request_that_waits_is_not_forgotten() {
    let waiter = |from_ns| waits(2, call((from_ns, 30), ListOp::Ended));
    let calls = [waiter(25), push((10, 11), &[7]), range((12, 13), &[7])];
    assert!(check(&calls, false).is_err(), "it still waited, and the list was not empty");
    let calls = [waiter(5), push((10, 11), &[7]), range((12, 13), &[7])];
    assert_eq!(check(&calls, false), Ok(()), "it may have ended before");
}

#[test]
fn an_element_of_an_unknown_move_comes_from_it() {
    let any = call((0, 1), ListOp::PushAny { end: End::Left });
    assert_eq!(check(&[lost(any), pop((4, 5), &[7])], false), Ok(()));
    assert_eq!(check(&[pop((4, 5), &[7])], false), wrong(0));
}

#[test]
fn who_waits_behind_a_move_to_another_shard_may_see_what_it_takes() {
    let calls = |move_ends_ns: u64| {
        let moved = call((0, move_ends_ns), ListOp::Pop { end: End::Left, items: vec![7] });
        let behind = waits(5, pop((4, 40), &[8]));
        let [first, second] = [push((10, 11), &[7]), push((30, 31), &[8])];
        [ListCall { hands_over: true, ..moved }, behind, first, range((12, 13), &[7]), second]
    };
    assert_eq!(check(&calls(20), false), Ok(()));
    let no_hand_over = calls(20).map(|call| ListCall { hands_over: false, ..call });
    assert!(check(&no_hand_over, false).is_err(), "it would have been served at once");
    let mut behind_it = calls(20);
    behind_it[1] = waits(2, pop((1, 40), &[8]));
    behind_it[0].invoked_ns = 3;
    assert!(check(&behind_it, false).is_err(), "the move came behind the one that waits");
    let mut late = calls(20);
    late[0] = ListCall { hands_over: true, ..lost(call((50, 51), ListOp::Nothing)) };
    assert!(check(&late, false).is_err(), "the move came later");
}

#[test]
fn an_element_that_no_result_shows_may_have_been_deleted() {
    let deleted = |done| call((4, 5), ListOp::Del { done: Some(done) });
    assert_eq!(check(&[lost(push((0, 1), &[7])), deleted(true)], false), Ok(()));
    assert_eq!(check(&[lost(push((0, 1), &[7])), deleted(false)], false), Ok(()));
    let any = lost(call((0, 1), ListOp::PushAny { end: End::Left }));
    assert_eq!(check(&[any, deleted(true)], false), Ok(()));
    assert_eq!(check(&[deleted(true)], false), wrong(0));
}
