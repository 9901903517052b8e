//! Requests of a client that wait for a key of the shard.
//!
//! Invariants:
//! * a session of the client has at most one: its next frame, which comes only if it does not wait
//!   any longer, ends the wait before. So the replies to a session come in the order of its requests,
//!   and no other request is held up;
//! * a client that goes leaves no waiter, and nothing is taken from a key for it unless a shard had
//!   claimed the request before.

use super::frames::session_of;
use super::waits::{Deadline, RingWait};
use super::{RingSession, SessionError};
use remora_arena::Journal;
use remora_engine::{Now, Served, Shard, Tried, WaitFor};
use remora_layout::limits::{MAX_CLIENT_SESSIONS, MAX_INLINE_BYTES, MAX_WAITING_COMMAND_BYTES};
use remora_protocol::message::{HAS_VALUE, MORE, Status};
use remora_protocol::{Claim, Command, Reply};

impl RingSession {
    /// The shard has this client at this place.
    pub fn set_place(&mut self, place: usize) {
        self.waits.place = place;
    }

    /// Requests that wait.
    pub fn waits(&self) -> usize {
        self.waits.waits.len()
    }

    /// Deadlines that have begun or ended since the last call: Unix ms, and the request's id.
    pub fn take_deadlines(&mut self) -> impl Iterator<Item = (Deadline, u64, u32)> {
        std::mem::take(&mut self.waits.deadlines).into_iter()
    }

    /// A request that may wait: for how many ms, 0 without end, and the encoded command.
    pub(super) fn wait_for(
        &mut self,
        shard: &mut Shard<impl Journal>,
        (id, body): (u32, &[u8]),
        now: Now,
    ) -> Result<(), SessionError> {
        let session = session_of(id);
        self.see_thread(session);
        let decoded = body.split_first_chunk().and_then(|(ms, command)| {
            // Each session has one wait, so this bounds what a client has the shard keep.
            let may_wait = usize::from(session) < MAX_CLIENT_SESSIONS
                && command.len() <= MAX_WAITING_COMMAND_BYTES;
            let (_, decoded, _) = Command::decode_within(command).ok().filter(|_| may_wait)?;
            // One that only reads takes by a change of two shards, which a session does not have.
            let key = decoded.key().filter(|_| decoded.is_write())?;
            Some((u64::from_le_bytes(*ms), command, key))
        });
        let Some((wait_ms, command, key)) = decoded else {
            return self.reply(&Reply::status(Status::Malformed), id);
        };
        if self.topology.as_ref().is_some_and(|of| of.is_elsewhere(key)) {
            return self.reply(&Reply::status(Status::OtherGroup), id);
        }
        let name = [WaitFor::AT_RINGS, self.waits.place as u64, self.session, id.into()];
        let claim = Claim::default();
        let wait = WaitFor { name, claim: claim.clone(), commands: vec![command.into()] };
        match shard.wait_for(wait, now) {
            Tried::Served(served) => self.reply_served(&served, id)?,
            Tried::Waits => {
                let until_ms = if wait_ms == 0 { 0 } else { now.unix_ms.saturating_add(wait_ms) };
                if until_ms > 0 {
                    self.waits.deadlines.push((Deadline::Begins, until_ms, id));
                }
                self.waits.waits.push(RingWait { id, claim, name, until_ms });
            }
            // Nobody else knows the claim.
            Tried::Taken => {}
        }
        Ok(())
    }

    /// The answer to a request of this client, which is no longer a waiter.
    pub fn answer_wait(&mut self, served: &Served) -> Result<(), SessionError> {
        let Some(at) = self.waits.waits.iter().position(|wait| wait.name == served.name) else {
            return Ok(());
        };
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

    /// All waits end.
    pub fn end_waits(
        &mut self,
        shard: &mut Shard<impl Journal>,
        status: Status,
    ) -> Result<(), SessionError> {
        while !self.waits.is_empty() {
            self.end_wait(shard, 0, status)?;
        }
        self.replies.tell_client()
    }

    /// Ends a wait: by this status, or by the answer that the shard has for it.
    fn end_wait(
        &mut self,
        shard: &mut Shard<impl Journal>,
        at: usize,
        status: Status,
    ) -> Result<(), SessionError> {
        let wait = self.waits.remove(at);
        if wait.claim.take() {
            shard.withdraw(&wait.name);
            return self.reply(&Reply::status(status), wait.id);
        }
        match shard.take_served(&wait.name) {
            Some(served) => self.reply_served(&served, wait.id),
            None => Ok(()),
        }
    }

    /// The client has gone.
    pub(super) fn abandon_waits(&mut self, shard: &mut Shard<impl Journal>) {
        while !self.waits.is_empty() {
            let wait = self.waits.remove(0);
            match wait.claim.take() {
                true => shard.withdraw(&wait.name),
                // The shard has taken something for it: nobody gets that.
                false => drop(shard.take_served(&wait.name)),
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
