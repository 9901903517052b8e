//! Values and requests that no frame carries.
//!
//! A request whose value is too long goes as a frame without it, then in
//! pieces. A reply's value comes into memory that the request named
//! (`crate::data_buffers`), and is copied out once. Over shared memory the
//! server, whose memory it is, is told then, and gives the pages back.

use crate::ask::Answer;
use crate::data_buffers::Part;
use crate::error::Error;
use crate::session::Session;
use remora_layout::limits::{MAX_VALUE_BYTES, STREAM_PIECE_BYTES};
use remora_protocol::Command;
use remora_protocol::message::{PIECE, RELEASE, REPLY_HEADER_BYTES, RequestHeader, Status, form};
use zerocopy::IntoBytes;

/// A length that may have grown since it was told is asked for again this
/// often, with twice the room.
const TRIES: u32 = 8;

impl Session {
    /// Asks; a value that no frame carries comes through the buffer.
    pub(crate) fn ask_any_size(&mut self, command: &Command<'_>) -> Result<Answer, Error> {
        let answer = match self.ask(command) {
            Err(Error::Refused(Status::NeedsBuffer)) => None,
            answer => Some(answer?),
        };
        match answer {
            Some(answer) => Ok(answer),
            None => self.ask_by_buffer(command, self.needed_bytes),
        }
    }

    /// Asks for a value of up to so many bytes, which comes through the buffer
    /// if it is long. More is asked for again where that does no harm.
    pub(crate) fn ask_by_buffer(
        &mut self,
        command: &Command<'_>,
        bytes: usize,
    ) -> Result<Answer, Error> {
        let mut bytes = bytes.min(MAX_VALUE_BYTES);
        for _ in 0..TRIES {
            let part = self.take_part(bytes)?;
            match self.ask_into(command, part) {
                Err(Error::Refused(Status::NeedsBuffer)) => {
                    bytes = (2 * self.needed_bytes).min(MAX_VALUE_BYTES);
                }
                answer => return answer,
            }
        }
        Err(Error::Refused(Status::NeedsBuffer))
    }

    fn take_part(&mut self, bytes: usize) -> Result<Part, Error> {
        let began_ns = self.connection.time.now_ns();
        let place = self.connection.data_buffers.line_up(bytes);
        // Bounded by the session's timeout: other threads hold all of it.
        loop {
            if let Some(part) = place.try_take()? {
                return Ok(part);
            }
            if self.connection.time.since(began_ns) >= self.options.timeout {
                return Err(Error::NoFreeBuffer);
            }
            self.check()?;
            // A late reply gives the part back that it might have filled.
            self.empty_rings()?;
            self.pause();
        }
    }

    fn ask_into(&mut self, command: &Command<'_>, part: Part) -> Result<Answer, Error> {
        let (shard, ticket) = self.send_into(command, Some(&part))?;
        let mut answer = match self.collect(shard, ticket) {
            Err(Error::TimedOut) => {
                // The reply may fill it yet. The server is not told to give its
                // pages back then: they are used again as they are.
                self.keep_part(shard, ticket, part);
                return Err(Error::TimedOut);
            }
            answer => answer?,
        };
        if let Some(bytes) = answer.in_buffer {
            self.reply.resize(REPLY_HEADER_BYTES + bytes, 0);
            part.copy_out(&mut self.reply[REPLY_HEADER_BYTES..]);
            answer.value = Some((REPLY_HEADER_BYTES, REPLY_HEADER_BYTES + bytes));
            answer.counts.bytes += bytes as u64;
            self.totals.bytes += bytes as u64;
            if self.connection.gives_pages_back() {
                // Sending may take in other replies.
                let reply = std::mem::take(&mut self.reply);
                let released = self.release_part(&part);
                self.reply = reply;
                // The value has come, whether there was room to say so or not.
                released.or_else(|error| if error.is_final() { Err(error) } else { Ok(()) })?;
            }
        }
        self.accepted(answer)
    }

    fn release_part(&mut self, part: &Part) -> Result<(), Error> {
        let header = special_header(RELEASE, form::BUFFER, 0);
        let name = part.name();
        // Any shard will do: the memory is the session's.
        self.put_into_ring(0, &[header.as_bytes(), name.as_bytes()], false)
    }

    /// Sends the value of a request that was announced without it.
    pub(crate) fn send_pieces(&mut self, shard: usize, id: u32, value: &[u8]) -> Result<(), Error> {
        let header = special_header(PIECE, 0, id);
        for piece in value.chunks(STREAM_PIECE_BYTES) {
            self.put_into_ring(shard, &[header.as_bytes(), piece], false)?;
        }
        Ok(())
    }
}

pub(crate) fn special_header(op: u8, form: u8, id: u32) -> RequestHeader {
    RequestHeader {
        op,
        flags: 0,
        form,
        of: 0,
        key_bytes: 0.into(),
        value_bytes: 0.into(),
        id: id.into(),
        argument: 0.into(),
    }
}
