//! The connections of one thread: each has a slot, gets its replies, and is served in turn. The
//! thread provides their streams.

use crate::connection::{Connection, Flow, Lent, Taken};
use crate::executor::{Executor, News};
use crate::job::{Job, Order, OwnedReply, Token};
use crate::port::ShardPort;
use crate::protocol::Protocol;
use crate::stream::ByteStream;
use remora_layout::hash::KeyHash;
use remora_layout::limits::{CLIENT_MEMORY_STEP, CONNECTIONS_PER_TURN};
use std::collections::{BTreeSet, VecDeque};

/// Bytes read in one turn of a connection, so that a flood from one does not
/// hold up the others.
pub const READ_BYTES: usize = 64 << 10;

/// The connections, by slot, each with its stream of bytes. What executes their requests is lent with each
/// call, so that a thread may have connections of several protocols and one host for all.
pub struct Connections<S, P: Protocol, H> {
    /// The number of the first slot.
    first: usize,
    lent: Lent<P::Request>,
    /// Buffer for reads of streams: room for one long read, and for short ones of others.
    scratch: Vec<u8>,
    slots: Vec<Option<Slot<S, P, H>>>,
    free: Vec<usize>,
    /// Slots of connections that may have something to do, in the order in which
    /// they are served next.
    due: VecDeque<usize>,
    /// Slots of connections with replies that are not durable yet.
    holding: Vec<usize>,
    /// Turns of connections since it was last looked for one to give away.
    turns: u64,
    /// Connections that keep much of a request that is not all there.
    with_part: BTreeSet<usize>,
}

struct Slot<S, P: Protocol, H> {
    stream: S,
    connection: Connection<P>,
    held: H,
    /// Bytes that are counted as held.
    held_bytes: usize,
    /// It is among those that may have something to do.
    is_due: bool,
    /// It is among those that hold replies.
    is_holding: bool,
    /// Its turns since a connection was last looked for to give away.
    turns: u64,
}

impl<S, P: Protocol, H: Default> Slot<S, P, H> {
    /// Counts what its buffers hold.
    #[cold]
    fn hold(
        &mut self,
        executor: &mut impl Executor<Protocol = P, Held = H>,
        bytes: usize,
        flow: Flow,
    ) -> Flow {
        match executor.hold(self.connection.responder(), &mut self.held, bytes) {
            Ok(()) => {
                self.held_bytes = bytes;
                flow
            }
            Err(text) => self.connection.refuse_memory(text),
        }
    }
}

/// A connection that is served together with others.
#[derive(Clone, Copy, Default)]
struct Member {
    slot: usize,
    /// Start of the bytes that were read from it.
    from: usize,
    taken: Taken,
}

impl<S: ByteStream, P: Protocol, H: Default> Connections<S, P, H> {
    /// None yet; their slots get numbers from `first` on, which the tokens of their questions have.
    pub fn numbered_from(first: usize) -> Self {
        Self {
            first,
            lent: Lent::default(),
            scratch: vec![0; 2 * READ_BYTES],
            slots: Vec::new(),
            free: Vec::new(),
            due: VecDeque::new(),
            holding: Vec::new(),
            turns: 0,
            with_part: BTreeSet::new(),
        }
    }

    /// How many there are.
    pub fn open(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The number of the slot that the next connection gets.
    pub fn next_slot(&self) -> usize {
        self.first + self.free.last().copied().unwrap_or(self.slots.len())
    }

    /// Takes a connection in. It is served with the next turn.
    pub fn add(&mut self, stream: S, mut connection: Connection<P>) {
        let slot = self.next_slot();
        if self.free.pop().is_none() {
            self.slots.push(None);
        }
        connection.responder_mut().set_slot(slot);
        self.slots[slot - self.first] = Some(Slot {
            stream,
            connection,
            held: H::default(),
            held_bytes: 0,
            is_due: false,
            is_holding: false,
            turns: 0,
        });
        self.stir(slot);
    }

    /// Something has happened to a stream: it is served with the next turn.
    pub fn stir(&mut self, slot: usize) {
        let at = slot.wrapping_sub(self.first);
        if let Some(Some(stirred)) = self.slots.get_mut(at) {
            stirred.connection.announce();
            self.put_due(at);
        }
    }

    /// A connection has something to do in the next turn.
    fn put_due(&mut self, slot: usize) {
        if let Some(Some(stirred)) = self.slots.get_mut(slot)
            && !std::mem::replace(&mut stirred.is_due, true)
        {
            self.due.push_back(slot);
        }
    }

    /// The peer of a stream has closed its side. If the stream is gone, no reply arrives any more:
    /// the connection closes as soon as it reads nothing more, whatever its replies wait for.
    /// [`Connections::stir`] has to follow.
    pub fn announce_end(&mut self, slot: usize, is_gone: bool) {
        if let Some(Some(of)) = self.slots.get_mut(slot.wrapping_sub(self.first)) {
            of.connection.announce_end(is_gone);
        }
    }

    /// Whether none has anything to do until something happens.
    pub fn are_idle(&self) -> bool {
        self.due.is_empty()
    }

    /// One turn of some that may have something to do: how many. Streams of
    /// connections that are over go to `closed`.
    pub fn serve<E: Executor<Protocol = P, Held = H>>(
        &mut self,
        executor: &mut E,
        mut closed: impl FnMut(S),
    ) -> usize {
        self.release(executor.port().durable_sequence());
        let some = self.due.len().min(CONNECTIONS_PER_TURN);
        let mut scratch = std::mem::take(&mut self.scratch);
        let mut left = some;
        while left > 0 {
            // At least one: only this function takes connections out of `due`.
            left -= self.serve_group(executor, left, &mut scratch, &mut closed).max(1);
        }
        self.scratch = scratch;
        self.turns += some as u64;
        some
    }

    /// Whether some connections hold replies back.
    #[inline]
    pub fn holds_replies(&self) -> bool {
        !self.holding.is_empty()
    }

    /// Lets connections send what has become durable.
    fn release(&mut self, durable: u64) {
        if self.holding.is_empty() {
            return;
        }
        let mut holding = std::mem::take(&mut self.holding);
        holding.retain(|&slot| {
            let Some(Some(of)) = self.slots.get_mut(slot) else { return false };
            let responder = of.connection.responder_mut();
            let may_send = responder.release(durable);
            of.is_holding = responder.held_replies() > 0;
            let is_holding = of.is_holding;
            if may_send {
                self.put_due(slot);
            }
            is_holding
        });
        self.holding = holding;
    }

    /// Whether replies that were held may be sent: the caller serves the connections.
    pub fn may_release(&self, durable: u64) -> bool {
        let of = |slot: &usize| self.slots.get(*slot).and_then(Option::as_ref);
        let mut holding = self.holding.iter().filter_map(of);
        holding.any(|of| of.connection.responder().may_release(durable))
    }

    /// Ends the connections that hold replies back: what these wait for does not come any more.
    /// Whether the changes happen that they answer is unknown. Streams go to `closed`.
    pub fn end_holding<E: Executor<Protocol = P, Held = H>>(
        &mut self,
        executor: &mut E,
        mut closed: impl FnMut(S),
    ) {
        for slot in std::mem::take(&mut self.holding) {
            let holds = |of: &Slot<S, P, H>| of.connection.responder().held_replies() > 0;
            if self.slots.get(slot).and_then(Option::as_ref).is_some_and(holds) {
                self.with(executor, slot, |_, _, _| Flow::Close).into_iter().for_each(&mut closed);
            }
        }
    }

    /// Replies that wait in connections until they are durable.
    pub fn held_replies(&self) -> usize {
        let of = |slot: &usize| self.slots.get(*slot).and_then(Option::as_ref);
        let held = self.holding.iter().filter_map(of);
        held.map(|of| of.connection.responder().held_replies()).sum()
    }

    /// Reads from some connections, at most this many and as many as there is room for, and then
    /// executes their requests: so the keys of all are fetched side by side. Returns their number.
    fn serve_group<E: Executor<Protocol = P, Held = H>>(
        &mut self,
        executor: &mut E,
        most: usize,
        scratch: &mut [u8],
        closed: &mut impl FnMut(S),
    ) -> usize {
        let mut group = [Member::default(); CONNECTIONS_PER_TURN];
        let (mut members, mut used) = (0, 0);
        while members < most.min(group.len()) && scratch.len() - used >= READ_BYTES {
            let Some(slot) = self.due.pop_front() else { break };
            let mut taken = Taken::default();
            if let Some(Some(of)) = self.slots.get_mut(slot) {
                (of.is_due, of.turns) = (false, of.turns + 1);
                let room = &mut scratch[used..used + READ_BYTES];
                taken = of.connection.take(&mut of.stream, executor.port().counts(), room);
            }
            group[members] = Member { slot, from: used, taken };
            used += taken.bytes;
            members += 1;
        }
        let group = &group[..members];
        if members > 1 {
            self.fetch_first_keys(executor, group, scratch);
        }
        for member in group {
            let fresh = &scratch[member.from..][..member.taken.bytes];
            let go_on = |of: &mut Slot<S, P, H>, executor: &mut E, lent: &mut _| {
                of.connection.go_on(&mut of.stream, executor, member.taken, (lent, fresh))
            };
            self.with(executor, member.slot, go_on).into_iter().for_each(&mut *closed);
        }
        members
    }

    /// Asks for the keys that the first requests of a group name.
    fn fetch_first_keys<E: Executor<Protocol = P, Held = H>>(
        &self,
        executor: &mut E,
        group: &[Member],
        scratch: &[u8],
    ) {
        let mut keys = [(KeyHash(0), 0); CONNECTIONS_PER_TURN];
        let mut count = 0;
        for member in group {
            let fresh = &scratch[member.from..][..member.taken.bytes];
            let of = self.slots.get(member.slot).and_then(Option::as_ref);
            if let Some((database, key)) = of.and_then(|of| of.connection.peek(fresh)) {
                keys[count] = executor.port().route(database, key);
                count += 1;
            }
        }
        executor.fetch_ahead(&keys[..count]);
    }

    /// Takes out a connection for another thread: of those that wait for nothing, the one with the
    /// most turns since the last call, but no more than this share of all. `None` if there is none,
    /// or if one connection alone was served.
    pub fn take_out(
        &mut self,
        port: &impl ShardPort,
        most_share: f64,
    ) -> Option<(S, Connection<P>)> {
        let most = (self.turns as f64 * most_share) as u64;
        let mut chosen = None;
        let mut active = 0;
        for (at, slot) in self.slots.iter_mut().enumerate() {
            let Some(slot) = slot else { continue };
            let turns = std::mem::take(&mut slot.turns);
            active += (turns > 0) as usize;
            let may = turns > 0 && turns <= most && slot.connection.may_move();
            if may && chosen.is_none_or(|(_, chosen)| turns > chosen) {
                chosen = Some((at, turns));
            }
        }
        self.turns = 0;
        let (at, _) = chosen.filter(|_| active > 1)?;
        let slot = self.slots[at].take()?;
        self.free.push(at);
        self.with_part.remove(&at);
        port.note_end();
        Some((slot.stream, slot.connection))
    }

    /// Whether some wait for the rest of a large request.
    pub fn wait_for_parts(&self) -> bool {
        !self.with_part.is_empty()
    }

    /// Refuses large requests without new bytes for longer than `upload_idle_s`. The caller calls
    /// it once a second while [`Connections::wait_for_parts`].
    pub fn count_idle<E: Executor<Protocol = P, Held = H>>(
        &mut self,
        executor: &mut E,
        upload_idle_s: u64,
        mut closed: impl FnMut(S),
    ) {
        for slot in std::mem::take(&mut self.with_part) {
            let look = |of: &mut Slot<S, P, H>, executor: &mut E, _: &mut _| {
                of.connection.count_idle(upload_idle_s, executor.port().counts())
            };
            self.with(executor, slot, look).into_iter().for_each(&mut closed);
        }
    }

    /// Each connection takes requests in one last turn: it still reads bytes that have arrived, and
    /// nothing after them.
    pub fn stop_reading<E: Executor<Protocol = P, Held = H>>(
        &mut self,
        executor: &mut E,
        mut closed: impl FnMut(S),
    ) {
        (0..self.slots.len()).for_each(|slot| self.stop_at(executor, slot, &mut closed));
    }

    /// The same for the connection of one slot.
    pub fn stop_reading_of<E: Executor<Protocol = P, Held = H>>(
        &mut self,
        executor: &mut E,
        slot: usize,
        closed: impl FnMut(S),
    ) {
        self.stop_at(executor, slot - self.first, closed);
    }

    fn stop_at<E: Executor<Protocol = P, Held = H>>(
        &mut self,
        executor: &mut E,
        slot: usize,
        closed: impl FnMut(S),
    ) {
        let mut scratch = std::mem::take(&mut self.scratch);
        let stop = |of: &mut Slot<S, P, H>, executor: &mut E, lent: &mut _| {
            let Slot { stream, connection, .. } = of;
            let flow = connection.serve_last(stream, executor, (lent, &mut scratch));
            connection.stop_reading();
            if flow == Flow::Close { Flow::Close } else { Flow::Again }
        };
        self.with(executor, slot, stop).into_iter().for_each(closed);
        self.scratch = scratch;
    }

    /// Tells connections what has happened, and ends those that are to connect anew. The caller calls
    /// it once for each change that the executor may have to tell.
    pub fn tell<E: Executor<Protocol = P, Held = H>>(
        &mut self,
        executor: &mut E,
        mut closed: impl FnMut(S),
    ) {
        let news = executor.news();
        if news == News::default() {
            return;
        }
        for slot in 0..self.slots.len() {
            if news.reviews {
                let review = |of: &mut Slot<S, P, H>, executor: &mut E, _: &mut _| match executor
                    .stays(of.connection.responder_mut())
                {
                    true => Flow::Go,
                    false => Flow::Close,
                };
                self.with(executor, slot, review).into_iter().for_each(&mut closed);
            }
            let Some(of) = self.slots[slot].as_ref() else { continue };
            if !of.connection.responder().takes_pushes() {
                if news.ends_others {
                    self.stop_at(executor, slot, &mut closed);
                }
            } else if news.has_pushes {
                let push = |of: &mut Slot<S, P, H>, executor: &mut E, _: &mut _| {
                    executor.push(of.connection.responder_mut());
                    Flow::Again
                };
                self.with(executor, slot, push).into_iter().for_each(&mut closed);
            }
        }
    }

    /// Lets a connection do something, and gives its stream back if it is over.
    fn with<E: Executor<Protocol = P, Held = H>>(
        &mut self,
        executor: &mut E,
        slot: usize,
        act: impl FnOnce(&mut Slot<S, P, H>, &mut E, &mut Lent<P::Request>) -> Flow,
    ) -> Option<S> {
        let of = self.slots.get_mut(slot)?.as_mut()?;
        let before = of.connection.responder().pending_bytes();
        let flow = act(of, executor, &mut self.lent);
        let bytes = of.connection.held_bytes() / CLIENT_MEMORY_STEP * CLIENT_MEMORY_STEP;
        let flow = match bytes == of.held_bytes || flow == Flow::Close {
            true => flow,
            false => of.hold(executor, bytes, flow),
        };
        let held = of.connection.responder().pending_bytes();
        let after = if flow == Flow::Close { 0 } else { held };
        executor.port().counts().pending_bytes.change(before, after);
        if flow != Flow::Close && of.connection.keeps_part() {
            self.with_part.insert(slot);
        } else {
            self.with_part.remove(&slot);
        }
        let holds = of.connection.responder().held_replies() > 0;
        if holds && !of.is_holding {
            of.is_holding = true;
            self.holding.push(slot);
        }
        match flow {
            Flow::Go => None,
            Flow::Again => {
                self.put_due(slot);
                None
            }
            Flow::Close => {
                of.connection.responder().abandon(executor.port_mut());
                executor.forget(of.connection.responder());
                let gone = self.slots[slot].take();
                self.free.push(slot);
                executor.port().note_end();
                gone.map(|gone| gone.stream)
            }
        }
    }

    /// Takes a shard's answer.
    pub fn take_reply<E: Executor<Protocol = P, Held = H>>(
        &mut self,
        executor: &mut E,
        token: Token,
        reply: OwnedReply,
    ) {
        let at = token.connection.wrapping_sub(self.first);
        let slot = self.slots.get(at).and_then(Option::as_ref);
        let serial = slot.map(|slot| slot.connection.responder().serial());
        let is_there = serial == Some(token.serial);
        let Some(reply) = executor.take(token, reply, is_there) else {
            if slot.is_some_and(|slot| slot.connection.has_ended()) {
                self.put_due(at);
            }
            return;
        };
        if !is_there && reply.has_more {
            let port = executor.port_mut();
            port.hand(token.shard, Job::new(Order::Abandon, token));
        }
        let Some(Some(slot)) = self.slots.get_mut(at) else { return };
        // A connection that has gone needs no reply; its slot may have a new one.
        let responder = slot.connection.responder_mut();
        if responder.serial() == token.serial {
            let before = responder.pending_bytes();
            responder.answer(token, reply);
            let after = responder.pending_bytes();
            executor.port().counts().pending_bytes.change(before, after);
            self.put_due(at);
        }
    }
}
