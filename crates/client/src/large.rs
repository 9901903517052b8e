//! Values and requests that no frame carries.
//!
//! A request whose value is too long goes as a frame without it, then in
//! pieces. A reply's value comes into a part of the process's buffer that the
//! request named, and is copied out once; then the part is released, and the
//! server gives its pages back.

use crate::ask::Answer;
use crate::connection::lock;
use crate::error::Error;
use crate::session::Session;
use crate::sync::Mutex;
use remora_arena::Words;
use remora_engine::command::Command;
use remora_layout::limits::{MAX_VALUE_BYTES, STREAM_PIECE_BYTES};
use remora_layout::message::{
    BufferName, PIECE, RELEASE, REPLY_HEADER_BYTES, RequestHeader, Status, form,
};
use std::ops::Range;
use zerocopy::IntoBytes;

/// A length that may have grown since it was told is asked for again this
/// often, with twice the room.
const TRIES: u32 = 8;

/// The buffer of a process, of which threads take parts.
pub(crate) struct LargeBuffer {
    words: Words,
    /// Parts in use, by their start.
    taken: Mutex<Vec<Range<usize>>>,
}

impl LargeBuffer {
    /// All of it is free.
    pub fn new(words: Words) -> Self {
        Self { words, taken: Mutex::new(Vec::new()) }
    }

    /// Takes the first free part of this length.
    fn take(&self, bytes: usize) -> Option<Range<usize>> {
        let bytes = bytes.next_multiple_of(8);
        let mut taken = lock(&self.taken);
        let mut from = 0;
        for (at, part) in taken.iter().enumerate() {
            if part.start - from >= bytes {
                taken.insert(at, from..from + bytes);
                return Some(from..from + bytes);
            }
            from = part.end;
        }
        if self.words.bytes() - from < bytes {
            return None;
        }
        taken.push(from..from + bytes);
        Some(from..from + bytes)
    }

    fn give(&self, part: &Range<usize>) {
        lock(&self.taken).retain(|taken| taken != part);
    }
}

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
            let answer = self.ask_into(command, &part);
            if answer.as_ref().is_ok_and(|answer| answer.in_buffer.is_some()) {
                // Sending may take in other replies.
                let reply = std::mem::take(&mut self.reply);
                let released = self.release_part(&part);
                self.reply = reply;
                released?;
            }
            self.connection.large.give(&part);
            match answer {
                Err(Error::Refused(Status::NeedsBuffer)) => {
                    bytes = (2 * self.needed_bytes).min(MAX_VALUE_BYTES);
                }
                answer => return answer,
            }
        }
        Err(Error::Refused(Status::NeedsBuffer))
    }

    fn take_part(&mut self, bytes: usize) -> Result<Range<usize>, Error> {
        let began_ns = self.connection.time.now_ns();
        // Bounded by the session's timeout: other threads hold all of it.
        loop {
            if let Some(part) = self.connection.large.take(bytes) {
                return Ok(part);
            }
            if self.connection.time.since(began_ns) >= self.options.timeout {
                return Err(Error::TimedOut);
            }
            self.check()?;
            self.pause();
        }
    }

    fn ask_into(&mut self, command: &Command<'_>, part: &Range<usize>) -> Result<Answer, Error> {
        let (shard, ticket) = self.send_into(command, Some(part))?;
        let mut answer = self.collect(shard, ticket)?;
        if let Some(bytes) = answer.in_buffer {
            self.reply.resize(REPLY_HEADER_BYTES + bytes, 0);
            self.connection.large.words.copy_out(part.start, &mut self.reply[REPLY_HEADER_BYTES..]);
            answer.value = Some((REPLY_HEADER_BYTES, REPLY_HEADER_BYTES + bytes));
            answer.counts.bytes += bytes as u64;
            self.totals.bytes += bytes as u64;
        }
        self.accepted(answer)
    }

    fn release_part(&mut self, part: &Range<usize>) -> Result<(), Error> {
        let header = special_header(RELEASE, form::BUFFER, 0);
        let name = name_of(part);
        // Any shard will do: the buffer is the process's.
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

/// The name of a part, as it stands in a message.
pub(crate) fn name_of(part: &Range<usize>) -> BufferName {
    BufferName { offset: (part.start as u64).into(), bytes: (part.len() as u64).into() }
}

fn special_header(op: u8, form: u8, id: u32) -> RequestHeader {
    RequestHeader {
        op,
        flags: 0,
        form,
        reserved: 0,
        key_bytes: 0.into(),
        value_bytes: 0.into(),
        id: id.into(),
        argument: 0.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_arena::Mapping;
    use remora_layout::limits::LARGE_BUFFER_BYTES;

    /// The first part of this length that none of `held` overlaps.
    fn first_gap(held: &mut [Range<usize>], bytes: usize) -> Option<Range<usize>> {
        held.sort_unstable_by_key(|part| part.start);
        let starts = std::iter::once(0).chain(held.iter().map(|part| part.end));
        let ends = held.iter().map(|part| part.start).chain([LARGE_BUFFER_BYTES]);
        let gap = starts.zip(ends).find(|(start, end)| end - start >= bytes);
        gap.map(|(start, _)| start..start + bytes)
    }

    #[test]
    fn parts_never_overlap_and_come_back() {
        // In tests locks are the model checker's, and belong into a run of it.
        shuttle::check_random(take_and_give, 1);
    }

    fn take_and_give() {
        let buffer = LargeBuffer::new(Words::new(Mapping::heap(LARGE_BUFFER_BYTES)));
        let mut held: Vec<Range<usize>> = Vec::new();
        let mut state = 9u64;
        let mut refused = 0;
        for _ in 0..20_000 {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            if state % 5 < 3 {
                let bytes = 1 + (state >> 20) as usize % (30 << 20);
                let part = buffer.take(bytes);
                assert_eq!(part, first_gap(&mut held, bytes.next_multiple_of(8)));
                refused += part.is_none() as u32;
                held.extend(part);
            } else if !held.is_empty() {
                let part = held.swap_remove((state >> 40) as usize % held.len());
                buffer.give(&part);
            }
        }
        assert!(refused > 0);
        held.iter().for_each(|part| buffer.give(part));
        assert_eq!(buffer.take(LARGE_BUFFER_BYTES), Some(0..LARGE_BUFFER_BYTES));
    }
}
