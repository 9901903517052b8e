//! Requests that wait until a key holds what they want, served first come, first served.
//!
//! A waiter is an ordinary command for each of its keys. It is tried when it comes, and is
//! registered if its keys hold nothing. A change of a key that is waited for notes the key
//! ([`crate::store`], `watched`), and before the next command of the shard its waiters are served,
//! each by the change that its command is: logged, and acknowledged, as any other.
//!
//! Invariants:
//! * a waiter's command is executed only after its [`remora_protocol::Claim`] was taken, and once;
//! * a waiter that only reads takes what it has found by a later change, and lets go of the key then
//!   ([`Shard::let_go`]): until that, or another change, no waiter behind it is served;
//! * of the waiters for one key and type, an older one is served before a younger one;
//! * a step serves about [`SERVED_AT_ONCE`] waiters, of whatever key. Those for a command's own keys
//!   come before it in any case, also if they are more: each of them takes what came for it, so
//!   this ends;
//! * what is kept for waiters counts in the shard's memory;
//! * a key has no waiters while the shard applies another log.

use super::Shard;
use super::room::cover_heap;
use super::waiting::{Queue, Served, WaitFor, WaiterName, heap_bytes, queue_bytes};
use crate::store::Now;
use remora_arena::Journal;
use remora_layout::database::Database;
use remora_layout::hash::KeyHash;
use remora_layout::kind::Kind;
use remora_layout::limits::SERVED_AT_ONCE;
use remora_protocol::message::Status;
use remora_protocol::{Command, Items, Reply};
use std::collections::BTreeMap;

/// What became of a request that may wait.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Tried {
    /// It is answered.
    Served(Served),
    /// It waits: [`Shard::pop_served`] gives the answer.
    Waits,
    /// Somebody else answers it.
    Taken,
}

/// What a key holds for a command.
enum Holds {
    Something,
    Nothing,
    /// An object of another type.
    OtherType,
    /// Something, while the key is on its way to another one: it cannot be changed now.
    OnItsWay,
}

/// What a look at the waiters for a key has done.
enum Looked {
    /// One is served, or was no waiter any more: it has left so many queues.
    Served(usize),
    /// The key holds nothing for any of them.
    Nothing,
    /// They are looked at later.
    OnItsWay,
}

/// The parts of an encoded command that may wait; `None` if it is no such command.
fn operation(
    bytes: &[u8],
    hash: impl Fn(&Command<'_>, Database) -> KeyHash,
) -> Option<(Command<'_>, KeyHash, Kind)> {
    let (database, command, _) = Command::decode_within(bytes).ok()?;
    let Command::Of { request, .. } = command else { return None };
    let may_wait = !request.is_long();
    may_wait.then(|| (command, hash(&command, database), request.kind()))
}

impl<J: Journal> Shard<J> {
    /// Executes the first of a request's commands whose key holds something for it. Without any the
    /// request waits. A key that holds an object of another type is an error now, and is waited for
    /// later, as in Redis.
    pub fn wait_for(&mut self, wait: WaitFor, now: Now) -> Tried {
        self.serve_waiters(now);
        if wait.claim.is_taken() {
            return Tried::Taken;
        }
        if let Some(served) = self.try_at_once(&wait, now) {
            return served.map_or(Tried::Taken, Tried::Served);
        }
        self.store.watched.heap_bytes += heap_bytes(&wait);
        if !cover_heap(&mut self.store, &mut self.types, now) {
            self.store.watched.heap_bytes -= heap_bytes(&wait);
            let served = Served::refused(wait.name, Status::OutOfMemory);
            return if wait.claim.take() { Tried::Served(served) } else { Tried::Taken };
        }
        self.register(wait);
        Tried::Waits
    }

    /// The answer to a request that does not wait: the inner `None` if somebody else gives it.
    fn try_at_once(&mut self, wait: &WaitFor, now: Now) -> Option<Option<Served>> {
        let refused = |status| Some(wait.claim.take().then(|| Served::refused(wait.name, status)));
        if let Some(refusal) = self.store.refusal() {
            return refused(refusal);
        }
        // All are checked first: what is registered can be executed.
        let mut all = Vec::with_capacity(wait.commands.len());
        for bytes in &wait.commands {
            match operation(bytes, |command, database| self.hash_of(database, command)) {
                Some(of) => all.push(of),
                None => return refused(Status::Malformed),
            }
        }
        if all.is_empty() {
            return refused(Status::Malformed);
        }
        if all.iter().any(|(_, hash, _)| self.store.watched.is_noted(*hash)) {
            // Others have waited longer for what is there.
            return None;
        }
        for (command, hash, kind) in all {
            match self.holds(&command, hash, kind, now) {
                Holds::Nothing => {}
                Holds::OnItsWay => return None,
                Holds::OtherType => return refused(Status::WrongType),
                Holds::Something => {
                    if !wait.claim.take() {
                        return Some(None);
                    }
                    // It may wait here for other keys.
                    self.withdraw(&wait.name);
                    return Some(Some(self.execute_for(wait.name, &command, hash, now)));
                }
            }
        }
        None
    }

    fn holds(&mut self, command: &Command<'_>, hash: KeyHash, kind: Kind, now: Now) -> Holds {
        let Some(key) = command.key() else { return Holds::Nothing };
        self.store.lag.begin_command();
        self.store.only_reads = true;
        match self.store.lookup(key, hash, now) {
            None => Holds::Nothing,
            Some(found) if self.store.kind(found).of_type() != kind => Holds::OtherType,
            Some(_) if self.store.moves.has_dump(hash) => Holds::OnItsWay,
            Some(_) => Holds::Something,
        }
    }

    /// Executes the command of a request whose claim is taken.
    fn execute_for(
        &mut self,
        name: WaiterName,
        command: &Command<'_>,
        hash: KeyHash,
        now: Now,
    ) -> Served {
        let mut less = None;
        // Bounded: each round asks for half as many members.
        loop {
            let command = less.as_ref().unwrap_or(command);
            let Reply { status, number, value, wait, .. } = self.execute_next(command, hash, now);
            let value = (status == Status::Ok).then(|| {
                let (key, value) = (command.key().unwrap_or_default(), value.unwrap_or_default());
                let bytes = Items::bytes_of(key.len()) + Items::bytes_of(value.len());
                let mut items = Vec::with_capacity(bytes);
                Items::push(&mut items, key);
                Items::push(&mut items, value);
                items
            });
            if status == Status::NeedsBuffer
                && let Some(half) = self.half_of(command)
            {
                less = Some(half);
                continue;
            }
            return Served { name, status, number, value, wait };
        }
    }

    /// The command for half as much, if its type takes less for it: what waits has one step.
    fn half_of<'c>(&self, command: &Command<'c>) -> Option<Command<'c>> {
        let &Command::Of { key, request } = command else { return None };
        let request = self.types.get(request.kind())?.half_of(request)?;
        Some(Command::Of { key, request })
    }

    /// Puts a request, whose bytes are counted, into the queues of its keys.
    fn register(&mut self, wait: WaitFor) {
        let number = self.waiters.next;
        self.waiters.next += 1;
        for (at, bytes) in wait.commands.iter().enumerate() {
            let of = operation(bytes, |command, database| self.hash_of(database, command));
            let Some((command, hash, kind)) = of else { continue };
            let key = command.key().unwrap_or_default();
            let queues = self.waiters.queues.entry(hash.0).or_default();
            let is_it = |queue: &Queue| queue.kind == kind && *queue.key == *key;
            let queue = match queues.iter().position(is_it) {
                Some(at) => &mut queues[at],
                None => {
                    self.store.watched.heap_bytes += queue_bytes(key);
                    queues.push(Queue { kind, key: key.into(), waiters: BTreeMap::new() });
                    queues.last_mut().expect("it was pushed")
                }
            };
            queue.waiters.entry(number).or_insert((wait.name, at));
            self.store.watched.watch(hash);
            if self.store.moves.has_dump(hash) {
                self.store.watched.note(hash);
            }
        }
        self.waiters.waiters.insert((wait.name, number), wait);
    }

    /// Takes a waiter out of all queues; from how many.
    fn remove_waiter(&mut self, (name, number): (WaiterName, u64)) -> usize {
        let Some(wait) = self.waiters.waiters.remove(&(name, number)) else { return 0 };
        let mut freed = heap_bytes(&wait);
        for bytes in &wait.commands {
            let of = operation(bytes, |command, database| self.hash_of(database, command));
            let Some((_, hash, _)) = of else { continue };
            let Some(queues) = self.waiters.queues.get_mut(&hash.0) else { continue };
            queues.retain_mut(|queue| {
                queue.waiters.remove(&number);
                let is_empty = queue.waiters.is_empty();
                freed += if is_empty { queue_bytes(&queue.key) } else { 0 };
                !is_empty
            });
            if queues.is_empty() {
                self.waiters.queues.remove(&hash.0);
                self.store.watched.forget(hash);
            }
        }
        self.store.watched.heap_bytes -= freed;
        wait.commands.len()
    }

    /// The request of this name waits no longer.
    pub fn withdraw(&mut self, name: &WaiterName) {
        self.remove_named(name);
    }

    /// Takes the waiters of this name out of all queues; from how many.
    fn remove_named(&mut self, name: &WaiterName) -> usize {
        let of_name = (*name, 0)..=(*name, u64::MAX);
        let numbers: Vec<u64> = self.waiters.waiters.range(of_name).map(|(at, _)| at.1).collect();
        numbers.into_iter().map(|number| self.remove_waiter((*name, number))).sum()
    }

    /// No request waits any longer: another log will change the keys. Others answer the requests.
    pub fn withdraw_all(&mut self) {
        while let Some((&at, _)) = self.waiters.waiters.first_key_value() {
            self.remove_waiter(at);
        }
    }

    /// Whether waiters are to be served, or answers are to be taken ([`Shard::pop_served`]): the
    /// caller gives the shard a turn ([`Shard::serve_waiters`]).
    #[inline]
    pub fn has_waiters_due(&self) -> bool {
        self.store.watched.has_noted()
            || !self.waiters.served.is_empty()
            || !self.waiters.served_at_rings.is_empty()
    }

    /// Requests that wait.
    pub fn waiters(&self) -> usize {
        self.waiters.waiters.len()
    }

    /// The next answer to a request that has waited.
    pub fn pop_served(&mut self) -> Option<Served> {
        self.waiters.served.pop_front()
    }

    /// The next answer to a request that came over a ring and has waited.
    pub fn pop_served_at_rings(&mut self) -> Option<Served> {
        self.waiters.served_at_rings.pop_front()
    }

    /// The answer to one such request, if it is there.
    pub fn take_served(&mut self, name: &WaiterName) -> Option<Served> {
        let at = self.waiters.served_at_rings.iter().position(|served| served.name == *name)?;
        self.waiters.served_at_rings.remove(at)
    }

    /// Serves some waiters of keys that have changed.
    #[inline]
    pub fn serve_waiters(&mut self, now: Now) {
        if self.store.watched.has_noted() {
            self.serve_some(SERVED_AT_ONCE, now);
        }
    }

    /// Serves all waiters whose keys hold something for them: what comes next concerns all keys.
    #[inline]
    pub fn serve_all_waiters(&mut self, now: Now) {
        if self.store.watched.has_noted() {
            self.serve_some(usize::MAX, now);
        }
    }

    /// Serves some waiters, and all that wait for a command's keys. The command comes next.
    #[inline]
    pub(super) fn serve_before(&mut self, command: &Command<'_>, hash: KeyHash, now: Now) {
        if self.store.watched.has_noted() {
            self.serve_those_before(command, hash, now);
        }
    }

    #[cold]
    fn serve_those_before(&mut self, command: &Command<'_>, hash: KeyHash, now: Now) {
        self.serve_some(SERVED_AT_ONCE, now);
        match *command {
            Command::Synced { .. }
            | Command::Replicated { .. }
            | Command::Topology { .. }
            | Command::Plan { .. } => {}
            Command::MultiSet { pairs } => {
                for (key, _) in pairs.iter() {
                    self.serve_key(self.store.hash(hash.database(), key), now);
                }
            }
            Command::Transfer { to, database, .. } => {
                self.serve_key(hash, now);
                self.serve_key(self.store.hash(database, to), now);
            }
            Command::Of { request, .. } if request.has_other_keys() => self.serve_all_waiters(now),
            _ if command.key().is_none() => self.serve_all_waiters(now),
            _ => self.serve_key(hash, now),
        }
    }

    /// Serves those who wait for this key, until it holds nothing for them or is on its way.
    pub(super) fn serve_key(&mut self, hash: KeyHash, now: Now) {
        // Each round takes a waiter from its queues, or is the last one.
        while self.store.watched.is_noted(hash) {
            match self.serve_one(hash, now) {
                Looked::Served(_) => {}
                Looked::Nothing => self.store.watched.take(hash),
                Looked::OnItsWay => return,
            }
        }
    }

    /// Serves waiters until they have left so many queues. Keys that are on their way are put off.
    #[cold]
    fn serve_some(&mut self, mut left: usize, now: Now) {
        let mut put_off = 0;
        // Each round takes a waiter from its queues, is done with a key, or puts one off.
        while left > 0
            && put_off < self.store.watched.noted()
            && let Some(hash) = self.store.watched.first_noted()
        {
            let queues = match self.serve_one(hash, now) {
                Looked::Served(queues) => queues.max(1),
                Looked::Nothing => {
                    self.store.watched.take(hash);
                    1
                }
                Looked::OnItsWay => {
                    self.store.watched.put_off_first();
                    put_off += 1;
                    left -= 1;
                    continue;
                }
            };
            left = left.saturating_sub(queues);
            put_off = 0;
        }
    }

    /// Serves the oldest waiter whose operation has something at a key with this hash.
    fn serve_one(&mut self, hash: KeyHash, now: Now) -> Looked {
        let queues = self.waiters.queues.get(&hash.0).map_or(0, Vec::len);
        for at in 0..queues {
            let queue = &self.waiters.queues[&hash.0][at];
            let Some((&number, &(name, which))) = queue.waiters.first_key_value() else { continue };
            let waiting = &self.waiters.waiters[&(name, number)];
            let (claim, bytes) = (waiting.claim.clone(), waiting.commands[which].clone());
            let of = operation(&bytes, |_, _| hash).expect("it was checked when it came");
            let (command, hash, kind) = of;
            if claim.is_taken() {
                return Looked::Served(self.remove_named(&name));
            }
            match self.holds(&command, hash, kind, now) {
                Holds::Something => {}
                Holds::Nothing | Holds::OtherType => continue,
                Holds::OnItsWay => return Looked::OnItsWay,
            }
            let queues = self.remove_named(&name);
            if claim.take() {
                let served = self.execute_for(name, &command, hash, now);
                if !command.is_write() && served.status == Status::Ok {
                    // It takes what it has found later: the others are looked at when it has.
                    self.store.watched.take(hash);
                }
                match name[0] {
                    WaitFor::AT_RINGS => self.waiters.served_at_rings.push_back(served),
                    _ => self.waiters.served.push_back(served),
                }
            }
            return Looked::Served(queues);
        }
        Looked::Nothing
    }
}
