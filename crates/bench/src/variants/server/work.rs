//! The processing of a message, the same for all forms and models.

use remora_arena::NoJournal;
use remora_engine::{Now, Shard};
use remora_layout::hash::KeyHash;
use remora_layout::limits::FRAMES_PER_TURN;
use remora_protocol::Command;
use remora_protocol::Reply;
use remora_protocol::message::{ReplyHeader, Status};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Messages that are taken from one connection before the next one is looked
/// at, as the product does.
pub const MESSAGES_PER_TURN: usize = FRAMES_PER_TURN;

/// How often a shard at work ends leases and sweeps.
const TICK: Duration = Duration::from_millis(10);

/// Unix time that never goes back.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
    unix_ms_at_start: u64,
}

impl Clock {
    /// A clock that starts now.
    pub fn start() -> Self {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { start: Instant::now(), unix_ms_at_start: unix.as_millis() as u64 }
    }

    /// The time.
    pub fn now(&self) -> Now {
        let since = self.start.elapsed().as_millis() as u64;
        Now { unix_ms: self.unix_ms_at_start + since, since_start_s: since / 1000 }
    }
}

/// A shard that ticks now and then, while it works.
pub struct Store {
    shard: Shard<NoJournal>,
    /// Seed of the key hash.
    pub hash_seed: u64,
    /// The server's clock.
    pub clock: Clock,
    next_tick_ms: u64,
}

impl Store {
    /// A store over a fresh shard.
    pub fn new(shard: Shard<NoJournal>, hash_seed: u64, clock: Clock) -> Self {
        Self { shard, hash_seed, clock, next_tick_ms: 0 }
    }

    /// Ticks, if it is time.
    #[inline]
    pub fn tick(&mut self, now: Now) {
        if now.unix_ms >= self.next_tick_ms {
            self.next_tick_ms = now.unix_ms + TICK.as_millis() as u64;
            self.shard.tick(now);
        }
    }

    /// Executes one message; the reply's header and value.
    #[inline]
    pub fn execute(&mut self, asked: DecodedRequest<'_>, now: Now) -> (ReplyHeader, &[u8]) {
        let reply = match asked.command {
            Ok(command) => self.shard.execute(&command, asked.hash, now),
            Err(status) => Reply::status(status),
        };
        header(&reply, asked.id)
    }
}

/// A decoded message.
#[derive(Clone, Copy)]
pub struct DecodedRequest<'m> {
    command: Result<Command<'m>, Status>,
    hash: KeyHash,
    id: u32,
}

impl<'m> DecodedRequest<'m> {
    /// Decodes a message; `hash` is asked for the key's.
    #[inline]
    pub fn decode(message: &'m [u8], hash: impl FnOnce(&[u8]) -> KeyHash) -> Self {
        match Command::decode(message) {
            Ok((command @ (Command::Get { key } | Command::Set { key, .. }), id)) => {
                Self { command: Ok(command), hash: hash(key), id }
            }
            Ok((_, id)) => Self { command: Err(Status::Malformed), hash: KeyHash(0), id },
            Err((status, id)) => Self { command: Err(status), hash: KeyHash(0), id },
        }
    }

    /// The key's hash.
    pub fn hash(&self) -> KeyHash {
        self.hash
    }
}

fn header<'v>(reply: &Reply<'v>, id: u32) -> (ReplyHeader, &'v [u8]) {
    let value = reply.value.unwrap_or_default();
    let [low, high] = reply.pointer.to_words();
    let header = ReplyHeader {
        status: reply.status as u8,
        flags: reply.value.is_some() as u8,
        lag: 0.into(),
        value_bytes: (value.len() as u32).into(),
        id: id.into(),
        lease_ms: reply.lease_ms.into(),
        pointer: [low.into(), high.into()],
        number: reply.number.into(),
        // Useful only for a client that reads.
        incarnation: 0.into(),
    };
    (header, value)
}
