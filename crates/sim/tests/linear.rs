//! The checker itself: histories known to be good, histories known to be bad,
//! and random small ones against trying everything at every time.

use remora_sim::check::keys::{If, KeyOp, Keys, Value, Window};
use remora_sim::check::linear::{Call, check};
use std::collections::HashSet;

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
        // Nobody learnt of it: it has an effect late, or never.
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
        // Before the server began anew, or after it by somebody new.
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
        // What was asked of one life of the server takes effect in the next.
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

/// Tries everything at every time: that an operation takes effect, that the key
/// disappears, that time goes on. Times of small histories are small numbers.
struct Trial<'c> {
    keys: Keys,
    calls: &'c [Call<KeyOp>],
    failed: HashSet<(u64, u32, Option<Value>)>,
}

impl Trial<'_> {
    fn explains(calls: &[Call<KeyOp>], keys: Keys) -> bool {
        Trial { keys, calls, failed: HashSet::new() }.goes_on(0, 0, None)
    }

    fn is_lost_look(&self, number: usize) -> bool {
        self.calls[number].returned_ns.is_none() && self.calls[number].op == KeyOp::Nothing
    }

    /// What can have no effect any more after a restart.
    fn lost_by(&self, number: usize) -> u32 {
        let Call { returned_ns: Some(by_ns), op: KeyOp::Restart, .. } = self.calls[number] else {
            return 0;
        };
        let is_lost = |call: &Call<KeyOp>| call.returned_ns.is_none() && call.invoked_ns < by_ns;
        let bit = |(at, call)| u32::from(is_lost(call)) << at;
        self.calls.iter().enumerate().map(bit).sum()
    }

    fn follows_done(&self, number: usize, done: u32) -> bool {
        self.calls[number].follows.is_none_or(|first| {
            let is_done = done & 1 << first != 0;
            is_done || (self.is_lost_look(first) && self.follows_done(first, done))
        })
    }

    /// Whether the history from `now_ns` on is explained if the operations of
    /// `done` took effect before and left this state.
    fn goes_on(&mut self, now_ns: u64, done: u32, state: Option<Value>) -> bool {
        let is_left = |number: &usize| done & 1 << number == 0;
        let returned = |number: usize| self.calls[number].returned_ns;
        let mut left = (0..self.calls.len()).filter(is_left);
        if left.clone().all(|number| returned(number).is_none()) {
            return true;
        }
        if self.failed.contains(&(now_ns, done, state)) {
            return false;
        }
        let is_late = left.any(|number| returned(number).is_some_and(|by_ns| by_ns <= now_ns));
        let expiry = state.and_then(|value| value.expiry);
        let may_vanish =
            expiry.is_some_and(|expiry| (expiry.from_ns..=expiry.by_ns).contains(&now_ns));
        let is_over = expiry.is_some_and(|expiry| expiry.by_ns < now_ns);
        let state = state.filter(|_| !is_over);
        let goes_on = (state.is_some()
            && (may_vanish || self.keys.evicts)
            && self.goes_on(now_ns, done, None))
            || (!is_late && self.goes_on(now_ns + 1, done, state))
            || (0..self.calls.len()).filter(is_left).any(|number| {
                let may =
                    self.calls[number].invoked_ns <= now_ns && self.follows_done(number, done);
                let after = if may { after(state, self.calls[number].op) } else { None };
                let done = done | 1 << number | self.lost_by(number);
                after.is_some_and(|state| self.goes_on(now_ns, done, state))
            });
        if !goes_on {
            self.failed.insert((now_ns, done, state));
        }
        goes_on
    }
}

/// What an operation leaves; `None` if its result contradicts what is there.
fn after(state: Option<Value>, op: KeyOp) -> Option<Option<Value>> {
    let number = state.map(|value| value.number);
    let (told, is, next) = match op {
        KeyOp::Get { found } => (Some(found == number), true, state),
        KeyOp::Nothing => (None, true, state),
        KeyOp::Set { value, condition: If::Always, done } => (done, true, Some(value)),
        KeyOp::Set { value, condition: If::Absent, done } => {
            (done, state.is_none(), state.or(Some(value)))
        }
        KeyOp::Set { value, condition: If::Present, done } => {
            (done, state.is_some(), state.and(Some(value)))
        }
        KeyOp::Edit { number } => {
            (None, true, Some(Value { number, expiry: state.and_then(|value| value.expiry) }))
        }
        KeyOp::Del { removed } => (removed, state.is_some(), None),
        KeyOp::Restart => (None, true, None),
        KeyOp::Incr { by, sum } => {
            let number = number.unwrap_or(0) + by;
            let expiry = state.and_then(|value| value.expiry);
            (sum.map(|sum| sum == number), true, Some(Value { number, expiry }))
        }
    };
    (told.is_none() || told == Some(is)).then_some(next)
}

/// Small numbers from a seed.
struct Draw(u64);

impl Draw {
    fn below(&mut self, below: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }

    /// One operation in a few has one of the properties that histories of this
    /// kind have at all.
    fn has(&mut self, kind: u64, property: u64) -> bool {
        kind >> property & 1 == 1 && self.below(3) == 0
    }

    fn operation(&mut self, kind: u64, at: i64) -> KeyOp {
        // Mostly each number is written once, and read at random.
        let most = 1 + at.max(1) as u64;
        let number = if kind & 1 == 1 { self.below(3) as i64 } else { 10 * at };
        let seen = if kind & 1 == 1 { number } else { 10 * self.below(most) as i64 };
        let expiry = self.has(kind, 1).then(|| {
            let from_ns = self.below(12);
            Window { from_ns, by_ns: from_ns + self.below(4) }
        });
        let value = Value { number, expiry };
        let told = |draw: &mut Self| Some(draw.below(2) == 0);
        match self.below(8) {
            0..=2 => get((self.below(4) > 0).then_some(seen)),
            3 if kind & 4 != 0 => {
                let condition = [If::Absent, If::Present][self.below(2) as usize];
                KeyOp::Set { value, condition, done: told(self) }
            }
            4 if kind & 8 != 0 => KeyOp::Del { removed: told(self) },
            5 if kind & 16 != 0 => {
                let by = self.below(3) as i64;
                KeyOp::Incr { by, sum: Some(seen + by) }
            }
            6 if kind & 32 != 0 => KeyOp::Edit { number },
            7 if kind & 0x400 != 0 => KeyOp::Restart,
            _ => KeyOp::Set { value, condition: If::Always, done: Some(true) },
        }
    }

    fn history(&mut self) -> Vec<Call<KeyOp>> {
        let kind = self.below(1 << 11);
        let (mut before_ns, count) = (0, 1 + self.below(8));
        let spread = 4 + self.below(10);
        (0..count as usize)
            .map(|at| {
                let op = self.operation(kind, at as i64);
                let invoked_ns = self.below(spread);
                let returned_ns = invoked_ns + self.below(6);
                // Now and then it follows the one before, which is in time.
                let may_follow = at > 0 && before_ns <= invoked_ns;
                let follows = (may_follow && self.has(kind, 6)).then(|| at - 1);
                before_ns = invoked_ns;
                let is_unknown = op != KeyOp::Restart && self.has(kind, 7);
                // Some that returned do not know either what they did.
                let is_vague = kind & 0x300 == 0x300 && self.below(6) == 0;
                let op = if is_unknown || is_vague { untold(op) } else { op };
                let returned_ns = (!is_unknown).then_some(returned_ns);
                Call { invoked_ns, returned_ns, follows, op }
            })
            .collect()
    }
}

/// The operation, without its result.
fn untold(op: KeyOp) -> KeyOp {
    match op {
        KeyOp::Get { .. } | KeyOp::Nothing => KeyOp::Nothing,
        KeyOp::Set { value, condition, .. } => KeyOp::Set { value, condition, done: None },
        KeyOp::Edit { .. } | KeyOp::Restart => op,
        KeyOp::Del { .. } => KeyOp::Del { removed: None },
        KeyOp::Incr { by, .. } => KeyOp::Incr { by, sum: None },
    }
}

#[test]
fn random_small_histories_agree_with_trying_everything() {
    let (mut verdicts, mut draw) = ([0u32; 2], Draw(1));
    for _ in 0..cases(200_000) {
        let calls = draw.history();
        let keys = Keys { evicts: draw.below(8) == 0 };
        let expected = Trial::explains(&calls, keys);
        let found = check(&keys, None, &calls);
        assert!(found.is_ok() || found.is_err_and(|error| error.is_certain), "never given up");
        assert_eq!(found.is_ok(), expected, "{keys:?} {calls:?}");
        verdicts[expected as usize] += 1;
    }
    assert!(cfg!(miri) || verdicts.iter().all(|&count| count > 30_000), "{verdicts:?}");
}

/// Fewer where each takes long.
fn cases(all: u32) -> u32 {
    if cfg!(miri) { 50 } else { all }
}
