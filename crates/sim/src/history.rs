//! The events in a world, as its clients saw them.

use crate::check::calls::Call;
use crate::check::keys::{KeyOp, Keys};
use crate::check::linear::{MOST_STEPS, check_within};
use crate::check::places::Places;
use crate::lists::ListHistory;
use crate::values::Register;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Keys of a world that are given up only after all steps.
const MOST_HARD_KEYS: u64 = 8;
/// Steps for each key behind those.
const FEW_STEPS: usize = 5_000;
/// Removals, increments and expiries of a key whose outcome is unknown, at most before clients leave it
/// alone: each of them doubles the ways in which its calls may have happened.
const MOST_OPEN: u32 = 6;

/// A promise that was broken.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// The promise.
    pub promise: &'static str,
    /// The observation.
    pub seen: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.promise, self.seen)
    }
}

/// All calls of all clients, by register; those about trees apart.
#[derive(Default)]
pub struct History {
    keys: BTreeMap<Register, Vec<Call<KeyOp>>>,
    /// Calls whose effect is unknown, although calls that follow them had an effect.
    optional: BTreeSet<(Register, usize)>,
    /// Calls of each key since the last restart whose outcome is unknown, and hard to judge.
    open: BTreeMap<Register, u32>,
    /// The events of trees.
    pub places: Places,
    /// The calls about lists.
    pub lists: ListHistory,
    /// FNV-1a over all that happened, in order.
    hash: u64,
    /// Calls that were made.
    pub calls: u64,
    violations: Vec<Violation>,
    /// Every call as a line, if they are wanted.
    pub trace: Option<Vec<String>>,
}

/// Names a call that was begun.
#[derive(Clone, Copy, Debug)]
pub struct Begun {
    /// Its key.
    pub key: Register,
    at: usize,
}

impl History {
    /// Nothing yet.
    pub fn new(wants_trace: bool) -> Self {
        let trace = wants_trace.then(Vec::new);
        Self { hash: 0xcbf2_9ce4_8422_2325, trace, ..Self::default() }
    }

    /// A client begins a call. `op` has no result yet.
    /// It takes effect after the call that it follows.
    pub fn begin(
        &mut self,
        client: u32,
        key: Register,
        now_ns: u64,
        op: KeyOp,
        follows: Option<Begun>,
    ) -> Begun {
        self.calls += 1;
        self.note(now_ns, client, format_args!("{key} begins {op:?}"));
        if op.is_hard_if_unknown() {
            *self.open.entry(key).or_default() += 1;
        }
        let calls = self.keys.entry(key).or_default();
        let follows = follows.map(|first| first.at);
        calls.push(Call { invoked_ns: now_ns, returned_ns: None, follows, op });
        Begun { key, at: calls.len() - 1 }
    }

    /// A client begins one call that is about several registers.
    pub fn begin_all(
        &mut self,
        client: u32,
        now_ns: u64,
        calls: impl IntoIterator<Item = (Register, KeyOp, Option<Begun>)>,
    ) -> Vec<Begun> {
        let calls_before = self.calls;
        let begun = calls
            .into_iter()
            .map(|(key, op, follows)| self.begin(client, key, now_ns, op, follows))
            .collect();
        self.calls = calls_before + 1;
        begun
    }

    /// When a call was begun.
    pub fn began_ns(&self, begun: Begun) -> u64 {
        self.keys[&begun.key][begun.at].invoked_ns
    }

    /// A client has read at a replica what was committed at some time between these.
    pub fn add_stale(
        &mut self,
        client: u32,
        key: Register,
        (now_ns, (from_ns, by_ns)): (u64, (u64, u64)),
        found: Option<i64>,
    ) {
        self.note(now_ns, client, format_args!("{key} had {found:?} in {from_ns}..{by_ns}"));
        let (op, returned_ns) = (KeyOp::Get { found }, Some(by_ns));
        let call = Call { invoked_ns: from_ns, returned_ns, follows: None, op };
        self.keys.entry(key).or_default().push(call);
    }

    /// The call has come to its end with this result.
    pub fn end(&mut self, client: u32, begun: Begun, now_ns: u64, op: KeyOp) {
        self.note(now_ns, client, format_args!("{} ends {op:?}", begun.key));
        self.ended(begun, now_ns, op);
    }

    fn ended(&mut self, begun: Begun, now_ns: u64, op: KeyOp) {
        let call = &mut self.keys.get_mut(&begun.key).expect("it was begun")[begun.at];
        if call.op.is_hard_if_unknown()
            && let Some(open) = self.open.get_mut(&begun.key)
        {
            // A restart has settled those before it.
            *open = open.saturating_sub(1);
        }
        (call.returned_ns, call.op) = (Some(now_ns), op);
    }

    /// Whether so many calls of a key have an unknown outcome that no more should come.
    pub fn is_unsettled(&self, key: Register) -> bool {
        self.open.get(&key).is_some_and(|&open| open >= MOST_OPEN)
    }

    /// The call had no effect and no result: it was refused, or only read.
    pub fn forget(&mut self, client: u32, begun: Begun, now_ns: u64, why: &dyn fmt::Display) {
        self.note(now_ns, client, format_args!("{} has no effect: {why}", begun.key));
        // As if it had not returned: a GET of nothing needs no explanation, but a write might take
        // effect.
        self.ended(begun, now_ns, KeyOp::Nothing);
    }

    /// The call's outcome stays unknown, and so does whether earlier calls of its session were
    /// refused: it need not take effect after them.
    pub fn follow_nobody(&mut self, begun: Begun) {
        self.keys.get_mut(&begun.key).expect("it was begun")[begun.at].follows = None;
    }

    /// The call was refused as a part of several: it had its effect, or none. Calls that followed
    /// it now follow its predecessor.
    pub fn may_have_had_effect(&mut self, begun: Begun) {
        self.optional.insert((begun.key, begun.at));
    }

    /// The server began anew with nothing, between these times.
    pub fn clear_all(&mut self, from_ns: u64, to_ns: u64) {
        self.open.clear();
        for calls in self.keys.values_mut() {
            let op = KeyOp::Restart;
            calls.push(Call { invoked_ns: from_ns, returned_ns: Some(to_ns), follows: None, op });
        }
        self.places.restart(from_ns, to_ns);
    }

    /// Something that happened to a client.
    pub fn note(&mut self, now_ns: u64, client: u32, what: fmt::Arguments<'_>) {
        self.add_line(format!("{now_ns:>14} client {client} {what}"));
    }

    fn add_line(&mut self, line: String) {
        for byte in line.bytes() {
            self.hash = (self.hash ^ byte as u64).wrapping_mul(0x0000_0100_0000_01b3);
        }
        if let Some(trace) = &mut self.trace {
            trace.push(line);
        }
    }

    /// A promise was broken.
    pub fn violate(&mut self, promise: &'static str, seen: String) {
        self.violations.push(Violation { promise, seen });
    }

    /// Hash of all that happened.
    pub fn hash(&self) -> u64 {
        self.hash
    }

    /// Turns all times of the server's clock into virtual time, before it is judged.
    pub fn place_windows(&mut self, virtual_ns: impl Fn(u64) -> u64) {
        for call in self.keys.values_mut().flatten() {
            if let Some(window) = call.op.window_mut() {
                *window = window.in_virtual_time(&virtual_ns);
            }
        }
        self.lists.place_windows(virtual_ns);
    }

    /// Checks the rules that only the end can decide.
    pub fn judge(mut self, model: Keys) -> Judgement {
        let mut undecided = 0;
        for (&key, calls) in &mut self.keys {
            for at in 0..calls.len() {
                // Bounded: a call follows an earlier one.
                while let Some(first) =
                    calls[at].follows.filter(|&at| self.optional.contains(&(key, at)))
                {
                    calls[at].follows = calls[first].follows;
                }
            }
            // A world whose keys are hard to judge must not take hours.
            let most = if undecided < MOST_HARD_KEYS { MOST_STEPS } else { FEW_STEPS };
            match check_within(&model, (None, most), calls) {
                Ok(()) => {}
                Err(found) if !found.is_certain => undecided += 1,
                Err(found) => {
                    let seen = explain(key, calls, found.call);
                    self.violations.push(Violation { promise: "keys are linearizable", seen });
                }
            }
        }
        self.violations.extend(self.places.judge());
        let lists = self.lists.judge(model.evicts);
        let promise = "lists are linearizable, and requests wait in their order";
        self.violations.extend(lists.wrong.into_iter().map(|seen| Violation { promise, seen }));
        undecided += lists.undecided;
        let (keys, looks) = (self.keys.len() as u64 + lists.lists, self.places.looks());
        let ordered = lists.ordered;
        Judgement { violations: self.violations, undecided, keys, looks, ordered }
    }
}

/// The result of checking a history.
#[derive(Clone, Debug)]
pub struct Judgement {
    /// All that was broken.
    pub violations: Vec<Violation>,
    /// Keys whose calls overlap in too many ways to be judged.
    pub undecided: u64,
    /// Keys that were judged.
    pub keys: u64,
    /// Calls that showed something of a tree.
    pub looks: u64,
    /// Pairs of a request that waits for a list and a later call, whose order was demanded.
    pub ordered: u64,
}

/// The calls around the one that nothing explains.
fn explain(key: Register, calls: &[Call<KeyOp>], wrong: usize) -> String {
    use std::fmt::Write;
    let mut order: Vec<usize> = (0..calls.len()).collect();
    order.sort_by_key(|&number| calls[number].invoked_ns);
    let at = order.iter().position(|&number| number == wrong).expect("it is one of them");
    let mut text = format!("{key}: no order explains the call marked *");
    for &number in &order[at.saturating_sub(8)..(at + 3).min(order.len())] {
        let Call { invoked_ns, returned_ns, op, .. } = &calls[number];
        let mark = if number == wrong { '*' } else { ' ' };
        let returned = returned_ns.map_or("never".to_owned(), |ns| ns.to_string());
        let _ = write!(text, "\n  {mark} {invoked_ns}..{returned} {op:?}");
    }
    text
}
