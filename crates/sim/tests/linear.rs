//! The checker itself: histories known to be good, histories known to be bad.

use remora_sim::check::calls::Call;
use remora_sim::check::keys::{If, KeyOp, Keys, Value, Window};
use remora_sim::check::linear::check;

const KEEPS: Keys = Keys { evicts: false };

fn call(invoked_ns: u64, returned_ns: u64, op: KeyOp) -> Call<KeyOp> {
    Call { invoked_ns, returned_ns: Some(returned_ns), follows: None, op }
}

fn open(invoked_ns: u64, op: KeyOp) -> Call<KeyOp> {
    Call { invoked_ns, returned_ns: None, follows: None, op }
}

fn get(found: Option<i64>) -> KeyOp {
    KeyOp::Get { found }
}

fn set(number: i64) -> KeyOp {
    set_if(number, If::Always, Some(true))
}

fn set_if(number: i64, condition: If, done: Option<bool>) -> KeyOp {
    KeyOp::Set { value: Value { number, expiry: None }, condition, done }
}

fn expiring(number: i64, from_ns: u64, by_ns: u64) -> KeyOp {
    let value = Value { number, expiry: Some(Window { from_ns, by_ns }) };
    KeyOp::Set { value, condition: If::Always, done: Some(true) }
}

fn is_good(model: Keys, calls: &[Call<KeyOp>]) -> bool {
    check(&model, None, calls).is_ok()
}

#[test]
fn good_histories_are_explained() {
    let unknown = |number| open(5, set_if(number, If::Always, None));
    let del = |removed| KeyOp::Del { removed: Some(removed) };
    let good: &[&[Call<KeyOp>]] = &[
        &[],
        &[call(0, 1, get(None)), call(2, 3, set(1)), call(4, 5, get(Some(1)))],
        // Overlapping writes: either order.
        &[call(0, 9, set(1)), call(1, 8, set(2)), call(10, 11, get(Some(1)))],
        &[call(0, 9, set(1)), call(1, 8, set(2)), call(10, 11, get(Some(2)))],
        // A read that overlaps a write sees the old or the new value.
        &[call(0, 9, set(1)), call(1, 2, get(None)), call(3, 4, get(Some(1)))],
        // Its outcome is unknown: it has an effect late, or never.
        &[unknown(7), call(6, 7, get(None)), call(90, 99, get(Some(7)))],
        &[unknown(7), call(6, 7, get(None)), call(90, 99, get(None))],
        &[
            call(0, 1, set_if(3, If::Absent, Some(true))),
            call(2, 3, set_if(4, If::Absent, Some(false))),
        ],
        &[call(0, 1, set_if(3, If::Present, Some(false))), call(2, 3, get(None))],
        &[call(0, 1, set(1)), call(2, 3, del(true)), call(4, 5, del(false))],
        &[
            call(0, 1, KeyOp::Incr { by: 2, sum: Some(2) }),
            call(0, 1, KeyOp::Incr { by: 3, sum: Some(5) }),
        ],
        // Before the server's restart, or after it by another client.
        &[
            unknown(7),
            call(6, 7, get(Some(7))),
            call(8, 9, KeyOp::Restart),
            call(10, 11, get(None)),
        ],
        &[call(2, 5, KeyOp::Restart), unknown(7), call(6, 7, get(Some(7)))],
        // At equal times operations overlap.
        &[call(0, 5, set(1)), call(5, 6, get(None))],
        &[call(0, 1, expiring(1, 10, 20)), call(5, 9, get(Some(1))), call(15, 16, get(None))],
        &[call(0, 1, expiring(1, 10, 20)), call(19, 25, get(Some(1))), call(26, 27, get(None))],
    ];
    for calls in good {
        assert!(is_good(KEEPS, calls), "{calls:?}");
    }
    let evicted = [call(0, 1, set(1)), call(2, 3, get(None))];
    assert!(is_good(Keys { evicts: true }, &evicted));
}

#[test]
fn bad_histories_are_found() {
    let incr = |by, sum| KeyOp::Incr { by, sum: Some(sum) };
    let bad: &[&[Call<KeyOp>]] = &[
        // Out of nowhere.
        &[call(0, 1, get(Some(1)))],
        // A write that was answered is lost.
        &[call(0, 1, set(1)), call(2, 3, get(None))],
        // A stale value.
        &[call(0, 1, set(1)), call(2, 3, set(2)), call(4, 5, get(Some(1)))],
        // Two readers, one after the other, see new, then old.
        &[call(0, 9, set(1)), call(1, 2, get(Some(1))), call(3, 4, get(None))],
        // Both orders of two writes are seen.
        &[
            call(0, 9, set(1)),
            call(0, 9, set(2)),
            call(10, 11, get(Some(1))),
            call(12, 13, get(Some(2))),
        ],
        // An unknown write takes effect twice.
        &[
            open(0, set_if(7, If::Always, None)),
            call(1, 2, get(Some(7))),
            call(3, 4, set(1)),
            call(5, 6, get(Some(1))),
            call(7, 8, get(Some(7))),
        ],
        // A request to one incarnation of the server takes effect in the next.
        &[
            open(0, set_if(7, If::Always, None)),
            call(5, 6, KeyOp::Restart),
            call(7, 8, get(Some(7))),
        ],
        // Two of them won.
        &[
            call(0, 9, set_if(3, If::Absent, Some(true))),
            call(0, 9, set_if(4, If::Absent, Some(true))),
        ],
        // An increment is lost.
        &[call(0, 5, incr(1, 1)), call(0, 5, incr(1, 1))],
        // Removed twice.
        &[
            call(0, 1, set(1)),
            call(2, 9, KeyOp::Del { removed: Some(true) }),
            call(2, 9, KeyOp::Del { removed: Some(true) }),
        ],
        // Gone before its time, there after it.
        &[call(0, 1, expiring(1, 10, 20)), call(5, 9, get(None))],
        &[call(0, 1, expiring(1, 10, 20)), call(21, 22, get(Some(1)))],
        // It comes back.
        &[call(0, 1, expiring(1, 10, 20)), call(12, 13, get(None)), call(14, 15, get(Some(1)))],
    ];
    for calls in bad {
        assert!(!is_good(KEEPS, calls), "{calls:?}");
    }
    let evicted = [call(0, 1, set(1)), call(2, 3, get(None)), call(4, 5, get(Some(1)))];
    assert!(!is_good(Keys { evicts: true }, &evicted), "what was evicted does not come back");
}

#[test]
fn a_session_s_requests_take_effect_in_order() {
    let follows = |call: Call<KeyOp>, first| Call { follows: Some(first), ..call };
    let told_old = [call(0, 9, set(1)), follows(call(1, 8, get(None)), 0)];
    assert!(!is_good(KEEPS, &told_old), "a session sees its own write");
    let apart = [call(0, 9, set(1)), call(1, 8, get(None))];
    assert!(is_good(KEEPS, &apart));
    let last = [call(0, 9, set(1)), follows(call(0, 9, set(2)), 0), call(10, 11, get(Some(1)))];
    assert!(!is_good(KEEPS, &last));
}

/// A call without effect says nothing of the time: a write of unknown outcome that needed the value may have
/// come before the value's time was over, though only a later call shows it.
#[test]
fn a_write_that_needs_a_value_may_come_before_its_time_is_over() {
    let history = |between: KeyOp| {
        [
            call(0, 1, expiring(1, 10, 12)),
            open(5, set_if(2, If::Present, None)),
            call(20, 21, between),
            call(30, 31, KeyOp::Exists { there: true }),
            call(40, 41, get(Some(2))),
        ]
    };
    assert!(is_good(KEEPS, &history(KeyOp::Nothing)));
    assert!(!is_good(KEEPS, &history(get(None))), "it was seen to be gone");
    assert!(!is_good(KEEPS, &history(get(Some(1)))), "its time was over");
}
