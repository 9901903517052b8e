//! The way to the client: replies, credit, and waking it.

use super::frames::{Answering, Stamp, reply_header, session_of, sets_of};
use super::{ClientEnd, SessionError};
use crate::replica_view::TurnView;
use remora_arena::{ReadView, Words};
use remora_fabric::remote::CLIENT_MAILBOX;
use remora_fabric::shm::ThreadBell;
use remora_fabric::{AnyLink, Link, RemoteAddress, Transport, Work};
use remora_layout::frame::ring_seed;
use remora_layout::immediate;
use remora_layout::session::{credit_word, ring_number, ring_offset, set_offset, stuck_word};
use remora_protocol::Reply;
use remora_protocol::message::{ReplyHeader, Status};
use remora_ring::{SendError, Sender, WRITE_ID};
use std::collections::VecDeque;
use std::sync::Arc;

/// The response ring of one ring set, and the client's view of the request ring: its credit.
struct Outgoing {
    sender: Sender,
    credit_word: usize,
    /// Wakes the client's thread, if arriving data does not wake it.
    bell: Option<ThreadBell>,
    /// Replies that wait for room: a slow reader holds up only itself.
    backlog: VecDeque<Vec<u8>>,
}

/// The origin of the replies.
#[derive(Clone, Copy)]
pub struct ReplyOrigin {
    /// The server's incarnation.
    pub incarnation: u64,
    /// Seed of the session's rings.
    pub seed: u64,
    /// The shard, and how many there are.
    pub shard: usize,
    pub shards: usize,
}

/// One client's response rings at one shard.
pub struct Replies {
    place: ReplyOrigin,
    /// How old what a reply shows may be.
    view: Arc<TurnView>,
    /// Whether they tell where values lie.
    tells_pointers: bool,
    /// A mask that takes a session's number to its ring set.
    set_mask: usize,
    to_server: ReadView,
    /// The mailboxes of a client over shared memory: they wake its threads, and announce that
    /// replies wait for credit.
    shm: Option<(Words, Words)>,
    /// The link for replies and large values.
    pub link: AnyLink,
    /// By ring set; made at the set's first use.
    outgoing: Vec<Option<Box<Outgoing>>>,
    /// Ring sets whose replies wait for room.
    blocked: u64,
    /// Blocked sets that were announced to the client: their credit has to be checked once more.
    newly_blocked: u64,
    /// Ring sets with replies that were not announced to the client.
    untold: u64,
    /// WRITEs of rings that have completed.
    completed_writes: u64,
}

impl Replies {
    /// Nothing is sent yet.
    pub fn new(
        (place, view): (ReplyOrigin, Arc<TurnView>),
        to_server: ReadView,
        link: AnyLink,
        client: &ClientEnd,
    ) -> Self {
        Self {
            place,
            view,
            tells_pointers: true,
            set_mask: client.ring_sets() - 1,
            shm: client.mailboxes(),
            to_server,
            link,
            outgoing: Vec::new(),
            blocked: 0,
            newly_blocked: 0,
            untold: 0,
            completed_writes: 0,
        }
    }

    /// The ring set to which replies to this request go.
    fn set_of(&self, id: u32) -> usize {
        session_of(id) as usize & self.set_mask
    }

    /// The state of a ring set; made at its first use.
    fn outgoing(&mut self, set: usize) -> &mut Outgoing {
        if self.outgoing.len() <= set {
            self.outgoing.resize_with(set + 1, || None);
        }
        let Self { place: ReplyOrigin { seed, shard, shards, .. }, shm, link, .. } = self;
        self.outgoing[set].get_or_insert_with(|| {
            let block = set_offset(*shards, set);
            let ring = (block + ring_offset(*shard)) as u64;
            let seed = ring_seed(*seed, ring_number(set, *shard), 1);
            let sender = Sender::new(CLIENT_MAILBOX, ring, seed);
            // A device stores a WRITE without a word; only one with an immediate
            // wakes a client that sleeps.
            let sender = match link.transport() {
                Transport::Verbs => {
                    sender.with_immediate(immediate::of(immediate::Kind::Reply, *shard))
                }
                _ if shm.is_some() => sender.in_short_laps(),
                _ => sender,
            };
            let bell = shm.as_ref().map(|(words, _)| ThreadBell::new(words.clone(), *shards, set));
            let credit_word = block / 8 + credit_word(*shard);
            Box::new(Outgoing { sender, credit_word, bell, backlog: VecDeque::new() })
        })
    }

    /// Announces the sent replies to the client: wakes its threads, or sends all of them by one
    /// WRITE.
    pub fn tell_client(&mut self) -> Result<(), SessionError> {
        let untold = std::mem::take(&mut self.untold);
        if untold != 0 && self.shm.is_some() {
            Words::full_fence();
            for outgoing in sets_of(untold).filter_map(|set| self.outgoing[set].as_ref()) {
                if let Some(bell) = &outgoing.bell {
                    bell.ring_after_fence();
                }
            }
        } else {
            for set in sets_of(untold) {
                let Some(outgoing) = &mut self.outgoing[set] else { continue };
                outgoing.sender.post(&mut self.link).map_err(link_failure)?;
            }
            self.pass_over_writes();
        }
        self.link.release();
        Ok(())
    }

    /// Whether [`Replies::tell_client`] may be put off: a network carries the
    /// replies, and each write to it costs as much as some of them.
    pub fn may_put_off(&self) -> bool {
        self.shm.is_none()
    }

    /// Only replicas' feeds ask which WRITEs have completed. Bounded by the posted operations.
    fn pass_over_writes(&mut self) {
        while let Some(completion) = self.link.poll() {
            let is_rings = completion.id == WRITE_ID && completion.result.is_ok();
            self.completed_writes += u64::from(is_rings);
        }
    }

    /// WRITEs of rings that have completed; of a session with one ring set they are those of its
    /// ring.
    pub fn completed_writes(&mut self) -> u64 {
        self.pass_over_writes();
        self.completed_writes
    }

    /// Whether a ring set has room for so many bytes, by fresh credit if need be.
    pub fn has_room(&mut self, set: usize, bytes: usize) -> Result<bool, SessionError> {
        if self.outgoing(set).sender.has_room(bytes) {
            return Ok(true);
        }
        self.take_credit(set)?;
        Ok(self.outgoing(set).sender.has_room(bytes))
    }

    /// Sends one message by a WRITE of its own, for which there is room. Over shared memory it wakes
    /// the client only if `wakes` says so. Returns the number of the WRITE among those of the ring.
    pub fn send_alone(
        &mut self,
        set: usize,
        (message, wakes): (&[u8], bool),
    ) -> Result<u64, SessionError> {
        self.outgoing(set);
        self.send(set, &[message])?;
        if self.shm.is_some() && !wakes {
            self.untold &= !(1 << set);
        }
        self.tell_client()?;
        Ok(self.outgoing(set).sender.writes())
    }

    /// Wakes the client for what was sent without that.
    pub fn wake(&mut self, set: usize) -> Result<(), SessionError> {
        if self.shm.is_some() {
            self.untold |= 1 << set;
        }
        self.tell_client()
    }

    /// Ring sets whose replies wait for room.
    pub fn blocked(&self) -> u64 {
        self.blocked
    }

    /// Whether replies to the session that made this request wait for room.
    pub fn has_backlog(&self, id: u32) -> bool {
        self.blocked & 1 << self.set_of(id) != 0
    }

    /// Bytes of replies that wait for room.
    #[cfg(test)]
    pub fn backlog_bytes(&self) -> usize {
        let backlogs = self.outgoing.iter().flatten().map(|outgoing| &outgoing.backlog);
        backlogs.flatten().map(Vec::len).sum()
    }

    /// Whether the client has given credit to a ring set since its backlog began.
    pub fn may_flush(&self, set: usize) -> bool {
        let outgoing = self.outgoing.get(set).and_then(Option::as_ref);
        outgoing.is_some_and(|outgoing| {
            self.to_server.load_acquire(outgoing.credit_word) != outgoing.sender.credit()
        })
    }

    /// What each reply says of the server. Of a replica it reads the clock.
    #[inline]
    pub fn stamp(&self) -> Stamp {
        Stamp { incarnation: self.place.incarnation, lag: self.view.lag() }
    }

    /// Why reads are refused, if they are.
    #[inline]
    pub fn refusal(&self) -> Option<Status> {
        self.view.refusal()
    }

    /// What a turn of replies needs to know of the server.
    pub fn answering(&self) -> Answering {
        Answering { stamp: self.stamp(), refusal: self.refusal() }
    }

    /// The client reads nothing by itself: no reply tells where a value lies.
    pub fn tell_no_pointers(&mut self) {
        self.tells_pointers = false;
    }

    /// The header of an encoded reply to a request whose reads were this shard's own.
    pub fn header(&self, reply: &Reply<'_>, id: u32) -> ReplyHeader {
        let header = reply_header(reply, id, self.stamp());
        match self.tells_pointers {
            true => header,
            false => ReplyHeader { pointer: [0.into(); 2], lease_ms: 0.into(), ..header },
        }
    }

    /// Sends the reply to this request, or keeps it until there is room.
    pub fn send_or_keep(&mut self, id: u32, parts: &[&[u8]]) -> Result<(), SessionError> {
        let set = self.set_of(id);
        let bytes = parts.iter().map(|part| part.len()).sum();
        if self.blocked & 1 << set == 0 {
            let sender = &self.outgoing(set).sender;
            let mut has_room = sender.has_room(bytes);
            if !has_room || sender.wants_credit() {
                self.take_credit(set)?;
                has_room = self.outgoing(set).sender.has_room(bytes);
            }
            if has_room {
                return self.send(set, parts);
            }
        }
        self.outgoing(set).backlog.push_back(parts.concat());
        if self.blocked & 1 << set == 0 {
            self.blocked |= 1 << set;
            self.newly_blocked |= 1 << set;
            self.say_stuck(set, 1);
        }
        Ok(())
    }

    /// Shows the client whether a ring set's replies wait for credit: only then does it wake the
    /// shard when it gives some.
    pub fn say_stuck(&self, set: usize, is_stuck: u64) {
        if let Some((_, to_client)) = &self.shm {
            let ReplyOrigin { shard, shards, .. } = self.place;
            to_client.store(set_offset(shards, set) / 8 + stuck_word(shard), is_stuck);
            Words::full_fence();
        }
    }

    /// Ring sets that have to be flushed although the client is silent: it may have given credit
    /// just before the announcement that they wait for it.
    pub fn take_newly_blocked(&mut self) -> u64 {
        std::mem::take(&mut self.newly_blocked)
    }

    /// Whether there are such sets.
    #[inline]
    pub fn has_newly_blocked(&self) -> bool {
        self.newly_blocked != 0
    }

    fn send(&mut self, set: usize, parts: &[&[u8]]) -> Result<(), SessionError> {
        let sender = &mut self.outgoing[set].as_mut().expect("it was made before").sender;
        // A process that polls sees each reply at once; over a network replies are sent together.
        if self.shm.is_some() {
            sender.send(&mut self.link, parts).map_err(link_failure)?;
            self.pass_over_writes();
        } else {
            sender.gather(&mut self.link, parts).map_err(link_failure)?;
        }
        self.untold |= 1 << set;
        Ok(())
    }

    fn take_credit(&mut self, set: usize) -> Result<(), SessionError> {
        let word = self.outgoing(set).credit_word;
        let credit = self.to_server.load_acquire(word);
        Ok(self.outgoing(set).sender.take_credit(credit)?)
    }

    /// Sends the waiting replies of these ring sets, as far as there is room.
    pub fn flush(&mut self, sets: u64) -> Result<(), SessionError> {
        let blocked = sets & self.blocked;
        if blocked == 0 {
            return Ok(());
        }
        sets_of(blocked).try_for_each(|set| self.flush_set(set))?;
        self.tell_client()
    }

    fn flush_set(&mut self, set: usize) -> Result<(), SessionError> {
        self.take_credit(set)?;
        loop {
            let outgoing = self.outgoing(set);
            let Some(reply) = outgoing.backlog.front() else { break };
            if !outgoing.sender.has_room(reply.len()) {
                return Ok(());
            }
            let reply = outgoing.backlog.pop_front().expect("it is there");
            self.send(set, &[&reply])?;
        }
        self.blocked &= !(1 << set);
        self.say_stuck(set, 0);
        Ok(())
    }

    /// Shows the client how many bytes of its requests in a ring set have been consumed.
    pub fn give_credit(&mut self, set: usize, consumed: u64) -> Result<(), SessionError> {
        let offset = self.outgoing(set).credit_word as u64 * 8;
        let to = RemoteAddress { region: CLIENT_MAILBOX, offset };
        let bytes = consumed.to_le_bytes();
        self.link.post(&[Work::Write { id: 0, to, bytes: &bytes, imm: None }]);
        self.pass_over_writes();
        match self.link.failure() {
            Some(failure) => Err(failure.into()),
            None => Ok(()),
        }
    }
}

/// Room was looked for, and replies fit a frame: only the link can fail.
fn link_failure(error: SendError) -> SessionError {
    match error {
        SendError::Link(error) => error.into(),
        other => unreachable!("room was looked for, replies fit a frame: {other}"),
    }
}
