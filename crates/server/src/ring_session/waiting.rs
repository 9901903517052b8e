//! Requests of a client that wait for a key of the shard.
//!
//! Invariants:
//! * a session of the client has at most one: its next frame, which comes only if it does not wait
//!   any longer, ends the wait before. So the replies to a session come in the order of its requests,
//!   and no other request is held up;
//! * a client that goes leaves no waiter, and nothing is taken from a key for it unless a shard had
//!   claimed the request before;
//! * a request for several keys waits at the shards of all of them under one claim. The shard's thread
//!   drives it ([`crate::ring_waits`]); the session has the claim, too, and ends the wait by it.

use super::frames::session_of;
use super::waits::{Deadline, RingWait, WaitOrder, WaitPlace};
use super::{RingSession, SessionError};
use remora_arena::Journal;
use remora_engine::{Now, Served, Shard, Tried, WaitFor};
use remora_layout::limits::{
    MAX_CLIENT_SESSIONS, MAX_INLINE_BYTES, MAX_WAITED_KEYS, MAX_WAITING_COMMAND_BYTES,
};
use remora_protocol::message::{HAS_VALUE, MORE, Status};
use remora_protocol::{Claim, Command, Reply};
use remora_resp::commands::apart;

/// An encoded command that waits for its key.
struct ForKey<'a> {
    command: &'a [u8],
    key: &'a [u8],
    /// The other key, if it is about two.
    to: Option<&'a [u8]>,
}

/// What the frame of a request that waits has: for how many ms, and one command or more. `None` if the
/// session may not wait with that.
fn commands_of(session: u16, body: &[u8]) -> Option<(u64, Vec<ForKey<'_>>)> {
    let (ms, mut rest) = body.split_first_chunk()?;
    // Each session has one wait, so this bounds what a client has the shards keep.
    let may_wait = usize::from(session) < MAX_CLIENT_SESSIONS
        && (1..=MAX_WAITING_COMMAND_BYTES).contains(&rest.len());
    let mut commands = Vec::new();
    while may_wait && !rest.is_empty() && commands.len() < MAX_WAITED_KEYS {
        let (command, behind) = Command::split_first(rest)?;
        let (_, decoded, _) = Command::decode_within(command).ok()?;
        // One that only reads takes by a change of two shards, which is the server's own to begin.
        let key = decoded.key().filter(|_| decoded.is_write())?;
        let Command::Of { request, .. } = decoded else { return None };
        let to = apart(request).map(|of| of.to);
        if request.has_other_keys() && to.is_none() {
            return None;
        }
        commands.push(ForKey { command, key, to });
        rest = behind;
    }
    let is_one_form = commands.len() == 1 || commands.iter().all(|of| of.to.is_none());
    (may_wait && rest.is_empty() && is_one_form).then_some((u64::from_le_bytes(*ms), commands))
}

fn is_over_shards(wait: &RingWait, id: u32) -> bool {
    wait.id == id && matches!(wait.place, WaitPlace::OverShards(_))
}

impl RingSession {
    /// The shard has this client at this place.
    pub fn set_place(&mut self, place: usize) {
        self.waits.place = place;
    }

    /// Requests that wait at this shard alone.
    pub fn waits(&self) -> usize {
        self.waits.here()
    }

    /// Deadlines that have begun or ended since the last call: Unix ms, and the request's id.
    pub fn take_deadlines(&mut self) -> impl Iterator<Item = (Deadline, u64, u32)> {
        std::mem::take(&mut self.waits.deadlines).into_iter()
    }

    /// Orders for the shard's thread since the last call.
    pub fn take_wait_orders(&mut self) -> impl Iterator<Item = WaitOrder> {
        std::mem::take(&mut self.waits.orders).into_iter()
    }

    /// A request that may wait: for how many ms, 0 without end, and the encoded commands.
    pub(super) fn wait_for(
        &mut self,
        shard: &mut Shard<impl Journal>,
        (id, body): (u32, &[u8]),
        now: Now,
    ) -> Result<(), SessionError> {
        let session = session_of(id);
        self.see_thread(session);
        let Some((wait_ms, commands)) = commands_of(session, body) else {
            return self.reply(&Reply::status(Status::Malformed), id);
        };
        if commands.iter().any(|of| self.refuses_encoded(of.command, now)) {
            return self.reply_no_permission(id);
        }
        let mut keys = commands.iter().flat_map(|of| [Some(of.key), of.to]).flatten();
        if self.topology.as_ref().is_some_and(|of| keys.any(|key| of.is_elsewhere(key))) {
            return self.reply(&Reply::status(Status::OtherGroup), id);
        }
        let until_ms = if wait_ms == 0 { 0 } else { now.unix_ms.saturating_add(wait_ms) };
        let claim = Claim::default();
        let is_over_shards = commands.len() > 1 || commands[0].to.is_some();
        let commands = commands.into_iter().map(|of| of.command.into()).collect();
        if is_over_shards {
            if !self.waits.may_begin() {
                return self.reply(&Reply::status(Status::OutOfMemory), id);
            }
            let place = WaitPlace::OverShards(body.len());
            self.waits.push(RingWait { id, claim: claim.clone(), place });
            self.waits.orders.push(WaitOrder::Begin { id, claim, commands, until_ms });
            return Ok(());
        }
        let name = [WaitFor::AT_RINGS, self.waits.place as u64, self.session, id.into()];
        match shard.wait_for(WaitFor { name, claim: claim.clone(), commands }, now) {
            Tried::Served(served) => self.reply_served(&served, id)?,
            Tried::Waits => {
                self.waits.push(RingWait { id, claim, place: WaitPlace::Here(name, until_ms) });
            }
            // Nobody else knows the claim.
            Tried::Taken => {}
        }
        Ok(())
    }

    /// The answer to a request of this client, which is no longer a waiter.
    pub fn answer_wait(&mut self, served: &Served) -> Result<(), SessionError> {
        let is_it =
            |wait: &RingWait| matches!(wait.place, WaitPlace::Here(name, _) if name == served.name);
        self.answer_that(is_it, served)
    }

    /// The answer to a request of this client that has waited over shards.
    pub fn answer_over_shards(&mut self, id: u32, served: &Served) -> Result<(), SessionError> {
        self.answer_that(|wait| is_over_shards(wait, id), served)
    }

    /// A request of this client that waits over shards has another claim from now on.
    pub fn wait_again(&mut self, id: u32, claim: Claim) {
        if let Some(wait) = self.waits.waits.iter_mut().find(|wait| is_over_shards(wait, id)) {
            wait.claim = claim;
        }
    }

    fn answer_that(
        &mut self,
        is_it: impl Fn(&RingWait) -> bool,
        served: &Served,
    ) -> Result<(), SessionError> {
        let Some(at) = self.waits.waits.iter().position(is_it) else { return Ok(()) };
        let id = self.waits.remove(at).id;
        self.reply_served(served, id)?;
        self.replies.tell_client()
    }

    /// A frame has come from a session of the client: it waits no longer.
    #[cold]
    pub(super) fn end_wait_of(
        &mut self,
        shard: &mut Shard<impl Journal>,
        session: u16,
    ) -> Result<(), SessionError> {
        let of_session = |wait: &RingWait| session_of(wait.id) == session;
        match self.waits.waits.iter().position(of_session) {
            Some(at) => self.end_wait(shard, at, Status::NotFound),
            None => Ok(()),
        }
    }

    /// The time of a request is over.
    pub fn time_out_wait(
        &mut self,
        shard: &mut Shard<impl Journal>,
        id: u32,
    ) -> Result<(), SessionError> {
        match self.waits.waits.iter().position(|wait| wait.id == id) {
            Some(at) => {
                self.end_wait(shard, at, Status::NotFound)?;
                self.replies.tell_client()
            }
            None => Ok(()),
        }
    }

    /// All waits at this shard alone end. The shard's thread ends the others.
    pub fn end_waits(
        &mut self,
        shard: &mut Shard<impl Journal>,
        status: Status,
    ) -> Result<(), SessionError> {
        while let Some(at) = self.waits.first_here() {
            self.end_wait(shard, at, status)?;
        }
        self.replies.tell_client()
    }

    /// Ends a wait: by this status, or by the answer that the shard has for it. What is on its way from
    /// another shard would come too late: the client hears that the wait has ended, and the answer is
    /// dropped.
    fn end_wait(
        &mut self,
        shard: &mut Shard<impl Journal>,
        at: usize,
        status: Status,
    ) -> Result<(), SessionError> {
        let wait = self.waits.remove(at);
        let is_free = wait.claim.take();
        let WaitPlace::Here(name, _) = wait.place else {
            return self.reply(&Reply::status(status), wait.id);
        };
        if is_free {
            shard.withdraw(&name);
            return self.reply(&Reply::status(status), wait.id);
        }
        match shard.take_served(&name) {
            Some(served) => self.reply_served(&served, wait.id),
            None => Ok(()),
        }
    }

    /// The client has gone.
    pub(super) fn abandon_waits(&mut self, shard: &mut Shard<impl Journal>) {
        while !self.waits.is_empty() {
            let wait = self.waits.remove(0);
            match (wait.claim.take(), wait.place) {
                (_, WaitPlace::OverShards(_)) => {}
                (true, WaitPlace::Here(name, _)) => shard.withdraw(&name),
                // The shard has taken something for it: nobody gets that.
                (false, WaitPlace::Here(name, _)) => drop(shard.take_served(&name)),
            }
        }
    }

    /// Replies in as many frames as the value needs: it is taken from its key, and is not to be lost.
    fn reply_served(&mut self, served: &Served, id: u32) -> Result<(), SessionError> {
        let Served { status, number, wait, .. } = *served;
        let mut rest = served.value.as_deref();
        loop {
            let (part, after) = match rest {
                Some(value) if value.len() > MAX_INLINE_BYTES => {
                    let (part, after) = value.split_at(MAX_INLINE_BYTES);
                    (Some(part), Some(after))
                }
                part => (part, None),
            };
            let reply = Reply { number, wait, value: part, ..Reply::status(status) };
            let mut header = self.replies.header(&reply, id);
            if after.is_some() {
                header.flags = HAS_VALUE | MORE;
            }
            self.send_reply(&header, &reply, id)?;
            rest = after;
            if rest.is_none() {
                return Ok(());
            }
        }
    }
}
