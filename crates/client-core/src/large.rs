//! Values that do not fit a frame.
//!
//! The server writes such a reply's value into memory that the request named
//! (`crate::data_buffers`), and the client copies it out once. Over shared memory the server owns
//! that memory; the client then tells it, and it gives the pages back. The asker sends a request
//! with a too long value in pieces.

use crate::asker::{Answer, Asker, special_header};
use crate::core::Core;
use crate::data_buffers::BufferRange;
use crate::endpoint::Endpoint;
use crate::error::Error;
use remora_layout::limits::MAX_VALUE_BYTES;
use remora_protocol::Command;
use remora_protocol::message::{RELEASE, REPLY_HEADER_BYTES, Status, form};
use zerocopy::IntoBytes;

/// If a value has grown since the server told its length, the client asks again this often, each
/// time with twice the room.
const TRIES: u32 = 8;

/// Asks; a value that does not fit a frame comes through the buffer.
pub(crate) fn ask_any_size(core: &mut Core, command: &Command<'_>) -> Result<Answer, Error> {
    match core.ask(command) {
        Err(Error::Refused(Status::NeedsBuffer)) => ask_by_buffer(core, command, core.needed_bytes),
        answer => answer,
    }
}

/// Asks for a value of up to so many bytes, which comes through the buffer if it is long. It asks
/// again for a longer value if that does no harm.
pub(crate) fn ask_by_buffer(
    core: &mut Core,
    command: &Command<'_>,
    bytes: usize,
) -> Result<Answer, Error> {
    let mut bytes = bytes.min(MAX_VALUE_BYTES);
    for _ in 0..TRIES {
        let part = take_part(&mut core.asker.endpoint, bytes)?;
        match ask_into(core, command, part) {
            Err(Error::Refused(Status::NeedsBuffer)) => {
                bytes = (2 * core.needed_bytes).min(MAX_VALUE_BYTES);
            }
            answer => return answer,
        }
    }
    Err(Error::Refused(Status::NeedsBuffer))
}

fn take_part(endpoint: &mut Endpoint, bytes: usize) -> Result<BufferRange, Error> {
    let began_ns = endpoint.connection.time.now_ns();
    let place = endpoint.connection.data_buffers.line_up(bytes);
    // Bounded by the session's timeout: other threads hold all of it.
    loop {
        if let Some(part) = place.try_take()? {
            return Ok(part);
        }
        if endpoint.connection.time.since(began_ns) >= endpoint.timeout {
            return Err(Error::NoFreeBuffer);
        }
        endpoint.check()?;
        // A late reply frees the part that it might have filled.
        endpoint.empty_rings()?;
        endpoint.pause();
    }
}

fn ask_into(core: &mut Core, command: &Command<'_>, part: BufferRange) -> Result<Answer, Error> {
    let (shard, ticket) = core.asker.send_into(&mut core.directory, command, Some(&part))?;
    let mut answer = match core.collect(shard, ticket) {
        Err(Error::TimedOut) => {
            // The reply may still fill it. The client does not tell the server to give its pages
            // back then: later replies use them as they are.
            core.asker.keep_part(shard, ticket, part);
            return Err(Error::TimedOut);
        }
        answer => answer?,
    };
    if let Some(bytes) = answer.in_buffer {
        let reply = &mut core.asker.endpoint.reply;
        reply.resize(REPLY_HEADER_BYTES + bytes, 0);
        part.copy_out(&mut reply[REPLY_HEADER_BYTES..]);
        answer.value = Some((REPLY_HEADER_BYTES, REPLY_HEADER_BYTES + bytes));
        answer.counts.bytes += bytes as u64;
        core.meter.bytes += bytes as u64;
        if core.asker.endpoint.connection.gives_pages_back() {
            // Sending may take in other replies.
            let reply = std::mem::take(&mut core.asker.endpoint.reply);
            let released = release_part(&mut core.asker, &part);
            core.asker.endpoint.reply = reply;
            // The value has come, whether there was room to say so or not.
            released.or_else(|error| if error.is_final() { Err(error) } else { Ok(()) })?;
        }
    }
    core.accepted(answer)
}

fn release_part(asker: &mut Asker, part: &BufferRange) -> Result<(), Error> {
    let header = special_header(RELEASE, form::BUFFER, 0);
    let name = part.name();
    // Any shard will do: the memory is the session's.
    asker.put_into_ring(0, &[header.as_bytes(), name.as_bytes()], false)
}
