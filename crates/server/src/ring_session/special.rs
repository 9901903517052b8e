//! Large values in a session's turns: frames that are more, or less, than one encoded command, and
//! replies whose value the shard writes into the client's buffer.

use super::frames::{request_header, session_of};
use super::large;
use super::uploads::Complete;
use super::{RingSession, SessionError};
use remora_arena::Journal;
use remora_engine::{Download, Outcome};
use remora_engine::{Now, Shard};
use remora_fabric::Link;
use remora_layout::buffer_name::BufferName;
use remora_layout::limits::MAX_RING_SETS;
use remora_protocol::Command;
use remora_protocol::Reply;
use remora_protocol::message::{
    ACKNOWLEDGE, CALL_OFF, FOLLOW, IN_BUFFER, PIECE, RELEASE, REQUEST_HEADER_BYTES, RequestHeader,
    Status, WAIT, form,
};
use zerocopy::IntoBytes;

impl RingSession {
    /// A frame that is more, or less, than one encoded command.
    pub(super) fn special(
        &mut self,
        shard: &mut Shard<impl Journal>,
        frame: &[u8],
        now: Now,
    ) -> Result<(), SessionError> {
        let Some(header) = request_header(frame) else {
            return self.reply(&Reply::status(Status::Malformed), 0);
        };
        let (id, body) = (header.id.get(), &frame[REQUEST_HEADER_BYTES..]);
        let malformed = Reply::status(Status::Malformed);
        match (header.op, header.form & form::MASK) {
            (PIECE, 0) => match self.uploads.piece(shard, id, body, now) {
                Ok(None) => Ok(()),
                Ok(Some(complete)) => self.complete(shard, complete, id, now),
                Err(status) => self.reply(&Reply::status(status), id),
            },
            (RELEASE, form::BUFFER) => {
                if let Some((_, name)) = large::split_name(frame) {
                    self.large.release(&name);
                }
                Ok(())
            }
            (FOLLOW, 0) => self.follow(shard, body),
            (ACKNOWLEDGE, 0) => self.acknowledge(shard, body),
            (WAIT, 0) => self.wait_for(shard, (id, body), now),
            (CALL_OFF, 0) => match self.uploads.call_off(shard, id, now) {
                true => self.reply(&Reply::status(Status::NotDone), id),
                false => Ok(()),
            },
            (_, form::IN_PIECES) => {
                let whole = RequestHeader { form: header.form & !form::MASK, ..header };
                let mut bytes = frame.to_vec();
                bytes[..REQUEST_HEADER_BYTES].copy_from_slice(whole.as_bytes());
                let looked = self.look_at_upload(&bytes, &whole, now);
                match self.uploads.begin(shard, (&bytes, &whole), looked, now)? {
                    None => Ok(()),
                    Some(status) => self.reply(&Reply::status(status), id),
                }
            }
            (_, form::BUFFER) => {
                let (named, by) = (large::split_name(frame), self.replies.link.transport());
                let Some((frame, name)) =
                    named.and_then(|(frame, name)| Some((frame, large::checked(&name, by)?)))
                else {
                    return self.reply(&malformed, id);
                };
                let whole = RequestHeader { form: header.form & !form::MASK, ..header };
                let mut bytes = frame.to_vec();
                bytes[..REQUEST_HEADER_BYTES].copy_from_slice(whole.as_bytes());
                self.decoded(shard, &bytes, Some(name), now)
            }
            _ => self.reply(&malformed, id),
        }
    }

    fn complete(
        &mut self,
        shard: &mut Shard<impl Journal>,
        complete: Complete,
        id: u32,
        now: Now,
    ) -> Result<(), SessionError> {
        match complete {
            Complete::Command(bytes) => self.decoded(shard, &bytes, None, now),
            Complete::Set(upload, Some(set)) if self.refuses_encoded(&set, now) => {
                shard.abandon_upload(upload, now);
                self.reply_no_permission(id)
            }
            Complete::Set(upload, _) => {
                let outcome = shard.finish_upload(upload, now);
                let (reply, download) = match outcome {
                    Outcome::Reply(reply) => return self.reply(&reply, id),
                    Outcome::Stream(reply, download) => (Reply { value: None, ..reply }, download),
                };
                self.reply_large(shard, reply, download, id, None, now)
            }
        }
    }

    fn decoded(
        &mut self,
        shard: &mut Shard<impl Journal>,
        bytes: &[u8],
        buffer: Option<BufferName>,
        now: Now,
    ) -> Result<(), SessionError> {
        match Command::decode_within(bytes) {
            Ok((database, command, id)) => {
                let hash = shard.hash_of(database, &command);
                self.command(shard, &command, hash, id, buffer, now)
            }
            Err((status, id)) => self.reply(&Reply::status(status), id),
        }
    }

    /// Replies with a large value: into the buffer, or not at all.
    pub(super) fn reply_large(
        &mut self,
        shard: &mut Shard<impl Journal>,
        reply: Reply<'static>,
        download: Download,
        id: u32,
        buffer: Option<BufferName>,
        now: Now,
    ) -> Result<(), SessionError> {
        let bytes = download.len();
        match buffer.filter(|name| name.bytes.get() as usize >= bytes) {
            Some(name) => {
                let mut header = self.replies.header(&reply, id);
                header.flags = IN_BUFFER;
                header.value_bytes = (bytes as u32).into();
                let session = session_of(id);
                let header = header.as_bytes().to_vec();
                self.large.send_value(session, (header, reply.wait), download, name);
                Ok(())
            }
            None => {
                shard.end_download(download, now);
                let (status, number) = (Status::NeedsBuffer, bytes as i64);
                self.reply(&Reply { status, number, ..reply }, id)
            }
        }
    }

    /// Answers with a value that fits no frame and was made for this reply: into the buffer that the request
    /// named, or it is refused.
    pub(super) fn reply_made(
        &mut self,
        reply: &Reply<'_>,
        id: u32,
        buffer: Option<BufferName>,
    ) -> Result<(), SessionError> {
        let value = reply.value.unwrap_or_default();
        let Some(name) = buffer.filter(|name| name.bytes.get() as usize >= value.len()) else {
            let refusal = Reply::status(Status::NeedsBuffer);
            let refusal = Reply { number: value.len() as i64, wait: reply.wait, ..refusal };
            return self.reply(&refusal, id);
        };
        let mut header = self.replies.header(&Reply { value: None, ..*reply }, id);
        header.flags = IN_BUFFER;
        header.value_bytes = (value.len() as u32).into();
        let header = (header.as_bytes().to_vec(), reply.wait);
        self.large.send_made(session_of(id), header, value.to_vec(), name);
        Ok(())
    }

    /// Whether there are uploads for [`RingSession::abandon_stalled`].
    pub fn may_stall(&self) -> bool {
        !self.uploads.is_empty()
    }

    /// Refuses the uploads that have stalled. The caller calls it with the shard's ticks.
    ///
    /// # Errors
    /// See [`SessionError`].
    pub fn abandon_stalled(
        &mut self,
        shard: &mut Shard<impl Journal>,
        now: Now,
    ) -> Result<(), SessionError> {
        let had_to_wait = self.large.had_to_wait();
        let stalled = self.uploads.abandon_stalled(shard, had_to_wait, now);
        for &id in &stalled {
            self.reply(&Reply::status(Status::Stalled), id)?;
        }
        if stalled.is_empty() { Ok(()) } else { self.replies.tell_client() }
    }

    /// Changes became durable: sends the replies that waited for them, and the next piece of a value.
    ///
    /// # Errors
    /// See [`SessionError`].
    #[inline]
    pub fn release(
        &mut self,
        shard: &mut Shard<impl Journal>,
        now: Now,
    ) -> Result<(), SessionError> {
        if self.large.is_empty() {
            return Ok(());
        }
        self.large.set_durable(shard.durable_sequence());
        self.send_large(shard, now)
    }

    /// Sends the next piece of a value under way, and the replies that have become durable meanwhile.
    pub(super) fn send_large(
        &mut self,
        shard: &mut Shard<impl Journal>,
        now: Now,
    ) -> Result<(), SessionError> {
        let mut has_sent = false;
        // A group of changes becomes durable at once: the replies to all sessions go in one turn.
        for at in 0..MAX_RING_SETS {
            let blocked = self.replies.blocked();
            let may_send = match at {
                0 => self.large.may_send(&self.replies.link, blocked),
                _ => self.large.may_release(blocked),
            };
            if !may_send {
                break;
            }
            let mut replies = std::mem::take(&mut self.released);
            let answering = self.replies.answering();
            let by = (&mut self.replies.link, blocked);
            let sent = self.large.send_piece(shard, by, (answering, now), &mut replies)?;
            let Some(session) = sent else { break };
            has_sent |= !replies.is_empty();
            for reply in replies.drain(..) {
                self.replies.send_or_keep(large::id_of(session), &[&reply])?;
            }
            self.released = replies;
        }
        if has_sent { self.replies.tell_client() } else { Ok(()) }
    }
}
