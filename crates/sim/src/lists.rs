//! Lists in a world: a seed's choices for them, and what its clients saw of them.
//!
//! Keys belong to a generation. After some calls, or once the outcome of several is unknown, clients
//! go on with the keys of the next one: so no history is too long to be judged.

use crate::check::lists::{ListCall, ListOp, check, ordered};
use crate::faults::Fault;
use remora_fabric::sim::Random;
use std::collections::BTreeMap;
use std::fmt;

/// Mixed into the seed: the draws for lists change no other draws.
const SALT: u64 = 0x6c69_7374_735f_6f66;
/// Operations of a world with lists at most.
pub const LIST_OPERATIONS: u64 = 1_000;
/// Clients of rings of such a world at most: the others are to do most of it.
pub const RING_CLIENTS: u32 = 2;
/// Calls of one generation for each key.
const CALLS_OF_KEY: u64 = 45;
/// Calls of unknown outcome of one generation.
const UNKNOWN: u64 = 4;

/// A seed's choice of lists, and of sets.
#[derive(Clone, Debug)]
pub struct ListSwarm {
    /// RESP clients that use lists only.
    pub clients: u32,
    /// Lists of a generation.
    pub keys: u8,
    /// Elements of one push at most.
    pub most_pushed: u64,
    /// Bytes of an element at most.
    pub element_bytes: u64,
    /// How many of a hundred operations of the other clients are about lists.
    pub percent: u64,
    /// How many are about sets.
    pub sets_percent: u64,
    /// Members of a set have numbers below.
    pub members: u32,
    /// How many of a hundred requests wait.
    pub waits_percent: u64,
    /// Longest time that a wait is given, ms.
    pub waits_ms: u64,
    /// Longest pause between two requests of a client, ns.
    pub think_ns: u64,
    /// Chance that the server's role changes, in a million.
    pub role_change_ppm: u32,
}

impl ListSwarm {
    /// A seed's draw.
    pub fn of(seed: u64) -> Self {
        let mut random = Random::new(seed ^ SALT);
        let mut one_of = |of: [u64; 4]| of[random.below(4) as usize];
        Self {
            clients: one_of([2, 3, 4, 6]) as u32,
            keys: one_of([1, 2, 3, 4]) as u8,
            most_pushed: one_of([1, 1, 2, 12]),
            element_bytes: one_of([0, 10, 300, 3_000]),
            percent: one_of([0, 20, 20, 60]),
            sets_percent: one_of([0, 20, 20, 40]),
            members: one_of([6, 40, 200, 600]) as u32,
            waits_percent: one_of([10, 30, 50, 70]),
            waits_ms: one_of([2, 20, 20, 300]),
            think_ns: one_of([1, 50_000, 1_000_000, 10_000_000]),
            role_change_ppm: one_of([0, 0, 3_000, 30_000]) as u32,
        }
    }

    /// Its fault.
    pub fn fault(&self) -> Option<(Fault, u32)> {
        (self.role_change_ppm > 0).then_some((Fault::RoleChange, self.role_change_ppm))
    }

    /// The bytes of an element: they name it, and fill a length of its own.
    pub fn element(&self, number: i64) -> Vec<u8> {
        let spread = (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20;
        let filling = spread % (self.element_bytes + 1);
        if filling == 0 {
            return number.to_string().into_bytes();
        }
        let name = format!("{number}:");
        let filled = name.bytes().cycle().take(name.len() + filling as usize);
        filled.collect()
    }

    /// The element of these bytes; `None` if it was never pushed.
    pub fn number_of(&self, bytes: &[u8]) -> Option<i64> {
        let digits = bytes.split(|&byte| byte == b':').next()?;
        let number = std::str::from_utf8(digits).ok()?.parse().ok()?;
        (self.element(number) == bytes).then_some(number)
    }
}

/// A list's key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ListKey {
    /// Its generation.
    pub generation: u32,
    /// Its number.
    pub number: u8,
}

impl ListKey {
    /// Its name.
    pub fn name(self) -> Vec<u8> {
        self.to_string().into_bytes()
    }
}

impl fmt::Display for ListKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "list:{}:{}", self.generation, self.number)
    }
}

/// Names a call that was begun.
#[derive(Clone, Copy, Debug)]
pub struct ListBegun {
    /// Its key.
    pub key: ListKey,
    at: usize,
}

/// CLIENT UNBLOCK of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Unblock {
    /// The server's incarnation, and the connection's number.
    pub connection: (u64, u64),
    /// When it was sent.
    pub sent_ns: u64,
    /// When its answer came.
    pub returned_ns: Option<u64>,
}

/// All calls about lists.
#[derive(Default)]
pub struct ListHistory {
    calls: BTreeMap<ListKey, Vec<ListCall>>,
    /// Flushes of all lists.
    flushes: Vec<ListCall>,
    /// The present generation.
    generation: u32,
    begun: u64,
    unknown: u64,
    /// When the server's role changed.
    pub role_changes_ns: Vec<u64>,
    /// All of them.
    pub unblocks: Vec<Unblock>,
    /// The connections that may wait, by client.
    pub connections: BTreeMap<u32, (u64, u64)>,
}

impl ListHistory {
    /// The keys from now on.
    pub fn generation(&mut self, keys: u8) -> u32 {
        if self.begun >= CALLS_OF_KEY * keys as u64 || self.unknown >= UNKNOWN {
            self.begin_anew();
        }
        self.generation
    }

    /// Other keys from now on.
    pub fn begin_anew(&mut self) {
        (self.begun, self.unknown) = (0, 0);
        self.generation += 1;
    }

    /// A call begins. `op` stands for what it may do if its outcome stays unknown.
    pub fn begin(&mut self, key: ListKey, now_ns: u64, op: ListOp) -> ListBegun {
        self.begun += 1;
        let calls = self.calls.entry(key).or_default();
        calls.push(ListCall::begun(now_ns, op));
        ListBegun { key, at: calls.len() - 1 }
    }

    fn call(&mut self, begun: ListBegun) -> &mut ListCall {
        &mut self.calls.get_mut(&begun.key).expect("it was begun")[begun.at]
    }

    /// When a call was begun.
    pub fn began_ns(&self, begun: ListBegun) -> u64 {
        self.calls[&begun.key][begun.at].invoked_ns
    }

    /// It has come to its end with this result.
    pub fn end(&mut self, begun: ListBegun, now_ns: u64, op: ListOp) {
        let call = self.call(begun);
        (call.returned_ns, call.op) = (Some(now_ns), op);
    }

    /// It was a look at the server's memory.
    pub fn was_read(&mut self, begun: ListBegun) {
        self.call(begun).is_command = false;
    }

    /// What it takes, after a wait, goes to a list of another shard.
    pub fn hands_over(&mut self, begun: ListBegun) {
        self.call(begun).hands_over = true;
    }

    /// It waits at this key, and at no other one.
    pub fn waits(&mut self, begun: ListBegun, now_ns: u64) {
        self.call(begun).waits_ns = Some(now_ns);
    }

    /// It waited, and ended without an element, not before this time.
    pub fn ended(&mut self, begun: ListBegun, (from_ns, now_ns): (u64, u64)) {
        let call = self.call(begun);
        call.invoked_ns = call.invoked_ns.max(from_ns).min(now_ns);
        (call.returned_ns, call.op) = (Some(now_ns), ListOp::Ended);
    }

    /// Its outcome stays unknown.
    pub fn lost(&mut self, begun: ListBegun) {
        let is_look = matches!(self.call(begun).op, ListOp::Nothing);
        self.unknown += (begun.key.generation == self.generation && !is_look) as u64;
    }

    /// All lists are removed by a call that begins, also those of which nothing is known yet.
    pub fn begin_flush(&mut self, now_ns: u64) -> usize {
        self.flushes.push(ListCall::begun(now_ns, ListOp::Del { done: None }));
        self.flushes.len() - 1
    }

    /// That call has come to its end.
    pub fn end_flush(&mut self, flush: usize, now_ns: u64) {
        self.flushes[flush].returned_ns = Some(now_ns);
    }

    /// Turns all times of the server's clock into virtual time.
    pub fn place_windows(&mut self, virtual_ns: impl Fn(u64) -> u64) {
        for call in self.calls.values_mut().flatten() {
            if let ListOp::Expire { window, .. } = &mut call.op {
                *window = window.in_virtual_time(&virtual_ns);
            }
        }
    }

    /// Judges all lists.
    pub fn judge(&self, evicts: bool) -> ListJudgement {
        let mut judged = ListJudgement::default();
        for (key, calls) in &self.calls {
            let first_ns = calls.first().map_or(0, |call| call.invoked_ns);
            let may_matter = |flush: &&ListCall| flush.returned_ns.is_none_or(|ns| ns >= first_ns);
            let flushes = self.flushes.iter().filter(may_matter);
            let calls: Vec<ListCall> = calls.iter().chain(flushes).cloned().collect();
            judged.lists += 1;
            judged.ordered += ordered(&calls);
            match check(&calls, evicts) {
                Ok(()) => {}
                Err(found) if !found.is_certain => judged.undecided += 1,
                Err(found) => judged.wrong.push(explain(*key, &calls, found.call)),
            }
        }
        judged
    }
}

/// What the checker found.
#[derive(Default)]
pub struct ListJudgement {
    /// What is wrong.
    pub wrong: Vec<String>,
    /// Lists that are not decided.
    pub undecided: u64,
    /// Lists.
    pub lists: u64,
    /// Pairs of a request that waits and a later call, whose order was demanded.
    pub ordered: u64,
}

/// The calls of a list that nothing explains.
fn explain(key: ListKey, calls: &[ListCall], wrong: usize) -> String {
    use fmt::Write;
    let mut order: Vec<usize> = (0..calls.len()).collect();
    order.sort_by_key(|&at| calls[at].invoked_ns);
    let mut text = format!("{key}: no order explains the call marked *");
    for at in order {
        let ListCall { invoked_ns, returned_ns, waits_ns, op, .. } = &calls[at];
        let mark = if at == wrong { '*' } else { ' ' };
        let returned = returned_ns.map_or("never".to_owned(), |ns| ns.to_string());
        let waits = waits_ns.map_or(String::new(), |ns| format!(" waits from {ns}"));
        let _ = write!(text, "\n  {mark} {invoked_ns}..{returned}{waits} {op:?}");
    }
    text
}
