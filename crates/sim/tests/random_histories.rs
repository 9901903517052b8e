//! The checker itself, on random histories: small ones against trying
//! everything at every time, and long ones that did happen.

use remora_sim::check::calls::Call;
use remora_sim::check::keys::{If, KeyOp, Keys, Left, Value, Window};
use remora_sim::check::linear::check;
use remora_testing::Random;
use std::collections::HashSet;

/// Tries everything at every time: that an operation takes effect, that the key disappears, that
/// time passes. Times of small histories are small numbers.
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

    /// The calls that can have no effect after a restart.
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

/// The state after an operation; `None` if its result contradicts the state before it.
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
        KeyOp::Take { number: taken } => (Some(true), number == Some(taken), None),
        KeyOp::DelWithin { from, to } => {
            (None, true, state.filter(|value| value.number < from || value.number > to))
        }
        KeyOp::Outside { from, to } => {
            let is_outside = number.is_none_or(|number| number < from || number > to);
            (Some(true), is_outside, state)
        }
        KeyOp::Expire { expiry, done } => {
            (done, state.is_some(), state.map(|value| Value { expiry: Some(expiry), ..value }))
        }
        KeyOp::Exists { there } => (Some(there), state.is_some(), state),
        KeyOp::TimeLeft { left } => {
            let is = match state.map(|value| value.expiry) {
                None => left == Left::Absent,
                Some(None) => left == Left::Forever,
                Some(Some(is)) => matches!(left, Left::Until(told)
                    if told.from_ns <= is.by_ns && is.from_ns <= told.by_ns),
            };
            (Some(true), is, state)
        }
        KeyOp::Incr { by, sum } => {
            let number = number.unwrap_or(0) + by;
            let expiry = state.and_then(|value| value.expiry);
            (sum.map(|sum| sum == number), true, Some(Value { number, expiry }))
        }
    };
    (told.is_none() || told == Some(is)).then_some(next)
}

/// Draws operations with small numbers.
struct Draw(Random);

impl Draw {
    fn below(&mut self, below: u64) -> u64 {
        self.0.below(below)
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
        match self.below(10) {
            1 if kind & 0x2000 != 0 => self.range_operation(seen),
            0..=2 => KeyOp::Get { found: (self.below(4) > 0).then_some(seen) },
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
            8 if kind & 0x800 != 0 => {
                let from_ns = self.below(12);
                let expiry = Window { from_ns, by_ns: from_ns + self.below(4) };
                KeyOp::Expire { expiry, done: told(self) }
            }
            9 if kind & 0x1800 != 0 => match self.below(4) {
                0 => KeyOp::Exists { there: self.below(2) == 0 },
                1 => KeyOp::TimeLeft { left: Left::Forever },
                2 => KeyOp::TimeLeft { left: Left::Absent },
                _ => {
                    let from_ns = self.below(12);
                    let by_ns = from_ns + self.below(4);
                    KeyOp::TimeLeft { left: Left::Until(Window { from_ns, by_ns }) }
                }
            },
            _ => KeyOp::Set { value, condition: If::Always, done: Some(true) },
        }
    }

    fn range_operation(&mut self, seen: i64) -> KeyOp {
        let from = seen - 10 * self.below(2) as i64;
        let to = from + [0, 1, 10, 100][self.below(4) as usize];
        match self.below(4) {
            0 => KeyOp::DelWithin { from, to },
            1 => KeyOp::Take { number: seen },
            _ => KeyOp::Outside { from, to },
        }
    }

    fn history(&mut self) -> Vec<Call<KeyOp>> {
        let kind = self.below(1 << 14);
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
                // Some calls that returned do not know their effect either.
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
        KeyOp::Get { .. } | KeyOp::Exists { .. } | KeyOp::TimeLeft { .. } => KeyOp::Nothing,
        KeyOp::Outside { .. } | KeyOp::Nothing => KeyOp::Nothing,
        KeyOp::Expire { expiry, .. } => KeyOp::Expire { expiry, done: None },
        KeyOp::Set { value, condition, .. } => KeyOp::Set { value, condition, done: None },
        KeyOp::Edit { .. } | KeyOp::DelWithin { .. } | KeyOp::Restart => op,
        KeyOp::Del { .. } | KeyOp::Take { .. } => KeyOp::Del { removed: None },
        KeyOp::Incr { by, .. } => KeyOp::Incr { by, sum: None },
    }
}

#[test]
fn random_small_histories_agree_with_trying_everything() {
    let (mut verdicts, mut draw) = ([0u32; 2], Draw(Random::new(1)));
    for _ in 0..if cfg!(miri) { 50 } else { 60_000 } {
        let calls = draw.history();
        let keys = Keys { evicts: draw.below(8) == 0 };
        let expected = Trial::explains(&calls, keys);
        let found = check(&keys, None, &calls);
        assert!(found.is_ok() || found.is_err_and(|error| error.is_certain), "never given up");
        assert_eq!(found.is_ok(), expected, "{keys:?} {calls:?}");
        verdicts[expected as usize] += 1;
    }
    assert!(cfg!(miri) || verdicts.iter().all(|&count| count > 9_000), "{verdicts:?}");
}

/// A long history that did happen: clients make calls of one key, some of them several at a time;
/// the outcome of one run in five stays unknown. Second: the state before each effect.
fn long_history(draw: &mut Draw) -> (Vec<Call<KeyOp>>, Vec<Option<i64>>) {
    let (kind, clients) = (draw.below(64) & !3, 1 + draw.below(6));
    let mut free_ns = vec![0; clients as usize];
    // When a call takes effect, and which.
    let (mut calls, mut effects): (Vec<Call<KeyOp>>, Vec<(u64, usize)>) = Default::default();
    while calls.len() < 400 {
        let client = draw.below(clients) as usize;
        let most = 1 + draw.below(20);
        let (is_lost, length) = (draw.below(5) == 0, 1 + draw.below(most));
        // A lost run takes effect up to some call.
        let happens = if is_lost { draw.below(length + 1) } else { length };
        let invoked_ns = free_ns[client] + draw.below(200);
        let mut effect_ns = invoked_ns;
        for at in 0..length {
            effect_ns += draw.below(60);
            if at < happens {
                effects.push((effect_ns, calls.len()));
            }
            let follows = (at > 0).then(|| calls.len() - 1);
            let returned_ns = (!is_lost).then(|| effect_ns + draw.below(100));
            let op = draw.operation(if length == 1 { kind } else { 0 }, calls.len() as i64);
            calls.push(Call { invoked_ns, returned_ns, follows, op: untold(op) });
        }
        free_ns[client] = effect_ns + 100;
    }
    effects.sort_unstable();
    let (mut state, mut states) = (None, Vec::new());
    for (_, number) in effects {
        states.push(state.map(|value: Value| value.number));
        let call = &mut calls[number];
        let next = after(state, call.op).expect("its result is not told");
        if call.returned_ns.is_some() {
            call.op = told(call.op, state, next);
        }
        state = next;
    }
    (calls, states)
}

/// The operation, with its result.
fn told(op: KeyOp, before: Option<Value>, after: Option<Value>) -> KeyOp {
    match op {
        KeyOp::Nothing => KeyOp::Get { found: before.map(|value| value.number) },
        KeyOp::Set { value, condition, .. } => {
            let is_there = before.is_some() == (condition == If::Present);
            let done = Some(condition == If::Always || is_there);
            KeyOp::Set { value, condition, done }
        }
        KeyOp::Del { .. } => KeyOp::Del { removed: Some(before.is_some()) },
        KeyOp::Incr { by, .. } => KeyOp::Incr { by, sum: after.map(|value| value.number) },
        KeyOp::Expire { expiry, .. } => KeyOp::Expire { expiry, done: Some(before.is_some()) },
        _ => op,
    }
}

#[test]
fn long_histories_are_decided() {
    let (mut draw, mut bad) = (Draw(Random::new(7)), 0);
    for _ in 0..if cfg!(miri) { 3 } else { 300 } {
        let (mut calls, states) = long_history(&mut draw);
        assert_eq!(check(&Keys::default(), None, &calls), Ok(()), "it happened so");
        // Now one look sees the state of some other time.
        let is_look = |call: &&mut Call<KeyOp>| matches!(call.op, KeyOp::Get { .. });
        let mut looks: Vec<_> = calls.iter_mut().filter(is_look).collect();
        let chosen = draw.below(looks.len() as u64) as usize;
        looks[chosen].op = KeyOp::Get { found: states[draw.below(states.len() as u64) as usize] };
        let found = check(&Keys::default(), None, &calls);
        assert!(found.is_ok() || found.is_err_and(|error| error.is_certain), "never given up");
        bad += u32::from(found.is_err());
    }
    assert!(cfg!(miri) || bad > 200, "{bad}");
}
