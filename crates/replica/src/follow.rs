//! What one replica makes of the messages of one shard of its primary.
//!
//! Invariant: a copy counts from its end on, and only whole. If it is interrupted, what was loaded
//! of it goes away before the next one begins: no state is ever a mixture of two.

use crate::receive::{FeedError, LogReceiver, Received, check_epoch, check_sequence};
use remora_engine::split_operation;
use remora_layout::limits::{FEED_REASON_BYTES, SNAPSHOT_OPERATION_BYTES};
use remora_log::{LogKey, OwnedEntry};
use remora_protocol::replication::{
    Begins, FEED_HEADER_BYTES, FeedHeader, FeedKind, Follow, HAS_MORE, LostLog, UNKNOWN_EPOCH,
};
use zerocopy::FromBytes;

/// What a message says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FollowEvent {
    /// The shard answers: its log comes, behind a copy or not.
    Begins {
        /// Whether a copy comes first. Then all that was copied before goes away.
        copies: bool,
        /// What the primary says of itself.
        primary: PrimaryFacts,
    },
    /// Whole operations of a copy, to be loaded.
    Operations(Vec<u8>),
    /// The copy is complete: the log goes on behind this entry of this epoch.
    Copied {
        /// The sequence at which the copy is exact.
        sequence: u64,
        /// The epoch of the primary.
        epoch: u64,
    },
    /// Entries came ([`Follower::log`] gives them out).
    Entries {
        /// Whether an acknowledgement is to be sent now.
        asks: bool,
    },
    /// The primary does not keep what is to come next. If it is the same log, a copy helps; if not,
    /// the primary has begun anew, and the operator has to decide.
    Lost {
        /// Whether it is the log that was followed.
        is_same_log: bool,
    },
    /// The primary was started again, or a replica of it has taken its place: its log goes on where it
    /// had ended for this replica.
    Resumes {
        /// What the primary says of itself.
        primary: PrimaryFacts,
        /// The rest of the entries before, all of them committed.
        rest: Vec<OwnedEntry>,
        /// The sequence and the epoch behind which the log goes on.
        at: (u64, u64),
    },
    /// The primary was started again, and its disk has less than this replica has: what it lacks
    /// may have been acknowledged, so the operator has to decide.
    HasMore {
        /// The last entry that the replica has, or one of its shards.
        received: u64,
        /// The last one that the primary has.
        kept: u64,
    },
    /// The primary was started again since, and does not know whether it has all that this replica
    /// has: the operator has to decide.
    UnknownEpoch,
    /// The server's log is not to be followed: the reason, for people.
    Refused(String),
}

/// What a shard of the primary says of itself before its log comes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PrimaryFacts {
    /// Bytes of memory that it has for data.
    pub arena_bytes: u64,
    /// Bytes that its data take.
    pub used_bytes: u64,
    /// Its keys.
    pub keys: u64,
    /// Shards of the primary.
    pub shards: u32,
}

/// See the module's text.
#[derive(Default)]
pub struct Follower {
    /// The log that is followed: its key, and its epoch.
    of: Option<(u64, u64)>,
    stage: Stage,
    /// The primary has not answered what it was asked for over this link.
    is_asked: bool,
}

#[derive(Default)]
enum Stage {
    /// Nothing came yet.
    #[default]
    Asked,
    /// The beginning of an operation that goes on.
    Copying(Vec<u8>),
    Following(Box<LogReceiver>),
}

impl Follower {
    /// Of a replica that was started again, and whose disk has what the log with this key had left
    /// behind its entry `sequence` of `epoch`. Entries up to `committed` may be applied.
    pub fn resumed(key: u64, (sequence, epoch): (u64, u64), committed: u64) -> Self {
        let receiver = LogReceiver::new(LogKey::of_word(key), sequence + 1).committed(committed);
        let stage = Stage::Following(Box::new(receiver));
        Self { of: Some((key, epoch)), stage, is_asked: false }
    }

    /// Of a replica that was started again, and that has no whole copy of the log with this key.
    pub fn interrupted(key: u64) -> Self {
        Self { of: Some((key, 0)), stage: Stage::Asked, is_asked: false }
    }

    /// The key of the log that is followed; 0 before the first.
    pub fn key(&self) -> u64 {
        self.of.map_or(0, |(key, _)| key)
    }

    /// What is to be asked for: the log behind what was received, or a copy. To be called when a
    /// link was made. `port` is that of this server for RESP, for people to see.
    pub fn ask(&mut self, port: u16) -> Follow {
        self.is_asked = true;
        let (key, epoch) = self.of.unwrap_or_default();
        let (next, committed, copied) = match &mut self.stage {
            Stage::Following(receiver) => {
                receiver.reconnected();
                let received = receiver.received();
                (received + 1, receiver.known_committed(), receiver.uncommitted_copy())
            }
            Stage::Asked | Stage::Copying(_) => (0, 0, 0),
        };
        Follow {
            next: next.into(),
            epoch: epoch.into(),
            key: key.into(),
            committed: committed.into(),
            copied: copied.into(),
            port: u32::from(port).into(),
            replica: 0.into(),
            zero: 0.into(),
        }
    }

    /// Whether what was received may be acknowledged. Not before the primary has answered: if it was
    /// started again, its entries have other numbers, and the replica would acknowledge some that it
    /// has not.
    pub fn may_acknowledge(&self) -> bool {
        !self.is_asked && matches!(self.stage, Stage::Following(_))
    }

    /// Gives up its place in the log, which the primary keeps no more: the next ask is for a copy,
    /// of the same primary.
    pub fn lose_place(&mut self) {
        self.stage = Stage::Asked;
    }

    /// Whether it has followed a log, or begun to copy one: another one does not take its place.
    pub fn has_begun(&self) -> bool {
        self.of.is_some()
    }

    /// The epoch of the primary; 0 before it has answered.
    pub fn epoch(&self) -> u64 {
        self.of.map_or(0, |(_, epoch)| epoch)
    }

    /// The log, once there is no copy under way.
    pub fn log(&mut self) -> Option<&mut LogReceiver> {
        match &mut self.stage {
            Stage::Following(receiver) => Some(receiver),
            Stage::Asked | Stage::Copying(_) => None,
        }
    }

    /// Takes the next message.
    ///
    /// # Errors
    /// See [`FeedError`]: the link is to be ended.
    pub fn hear(&mut self, message: &[u8]) -> Result<FollowEvent, FeedError> {
        let header = FeedHeader::read_from_prefix(message);
        let (header, body) = header.map_err(|_| FeedError::Malformed)?;
        let kind = FeedKind::from_number(header.kind).ok_or(FeedError::Malformed)?;
        debug_assert_eq!(message.len() - body.len(), FEED_HEADER_BYTES);
        match (kind, &mut self.stage) {
            (FeedKind::Begins, _) => {
                let begins = Begins::read_from_bytes(body).map_err(|_| FeedError::Malformed)?;
                self.begin(&begins)
            }
            (FeedKind::Lost, _) => {
                let lost = LostLog::read_from_bytes(body).map_err(|_| FeedError::Malformed)?;
                Ok(match lost.is_same_log.get() {
                    HAS_MORE => {
                        let most =
                            |log: &mut LogReceiver| log.received().max(log.known_committed());
                        let received = self.log().map_or(0, most);
                        FollowEvent::HasMore { received, kept: lost.oldest.get() }
                    }
                    UNKNOWN_EPOCH => FollowEvent::UnknownEpoch,
                    number => FollowEvent::Lost { is_same_log: number == 1 },
                })
            }
            (FeedKind::Refused, _) => {
                let (_, text) =
                    body.split_at_checked(size_of::<u32>()).ok_or(FeedError::Malformed)?;
                let text = &text[..text.len().min(FEED_REASON_BYTES)];
                Ok(FollowEvent::Refused(String::from_utf8_lossy(text).into_owned()))
            }
            (FeedKind::Copy, Stage::Copying(rest)) => whole_operations(rest, body),
            (FeedKind::Copied, Stage::Copying(rest)) if rest.is_empty() => {
                let sequence = u64::read_from_bytes(body).map_err(|_| FeedError::Malformed)?;
                let (key, epoch) = self.of.ok_or(FeedError::Malformed)?;
                let key = LogKey::of_word(key);
                let next = check_sequence(sequence)? + 1;
                self.stage = Stage::Following(Box::new(LogReceiver::new(key, next)));
                Ok(FollowEvent::Copied { sequence, epoch })
            }
            (FeedKind::Entries | FeedKind::Echo, Stage::Following(receiver)) => {
                let asks = match receiver.take(message)? {
                    Received::Entries { asks } => asks,
                    Received::Gap => true,
                };
                Ok(FollowEvent::Entries { asks })
            }
            _ => Err(FeedError::Malformed),
        }
    }

    fn begin(&mut self, begins: &Begins) -> Result<FollowEvent, FeedError> {
        let next = check_sequence(begins.next.get())?;
        let of = (begins.key.get(), check_epoch(begins.epoch.get())?);
        self.is_asked = false;
        let copies = next == 0;
        let primary = PrimaryFacts {
            arena_bytes: begins.arena_bytes.get(),
            used_bytes: begins.used_bytes.get(),
            keys: begins.keys.get(),
            shards: begins.shards.get(),
        };
        if copies && self.of.is_some_and(|(key, _)| key != of.0) {
            // A primary of ours says that the log is another one.
            return Err(FeedError::Malformed);
        }
        let former = begins.former.get();
        let is_next_epoch = self.of.is_some_and(|(key, epoch)| match former {
            0 => key == of.0 && epoch < of.1,
            former => key == former,
        });
        match &mut self.stage {
            stage if copies => *stage = Stage::Copying(Vec::new()),
            Stage::Following(_) if self.of == Some(of) => {}
            Stage::Following(receiver) if is_next_epoch => {
                let before = next.checked_sub(1).ok_or(FeedError::Malformed)?;
                let rest = receiver.end_epoch(begins.kept.get()).ok_or(FeedError::Malformed)?;
                let key = LogKey::of_word(of.0);
                **receiver = LogReceiver::new(key, before + 1).committed(before);
                self.of = Some(of);
                return Ok(FollowEvent::Resumes { primary, rest, at: (before, of.1) });
            }
            _ => return Err(FeedError::Malformed),
        }
        self.of = Some(of);
        Ok(FollowEvent::Begins { copies, primary })
    }
}

/// The whole operations of what has come; the beginning of one that goes on stays in `rest`.
fn whole_operations(rest: &mut Vec<u8>, more: &[u8]) -> Result<FollowEvent, FeedError> {
    rest.extend_from_slice(more);
    let mut left = &rest[..];
    while let Some((_, behind)) = split_operation(left).map_err(|_| FeedError::Malformed)? {
        left = behind;
    }
    let whole = rest.len() - left.len();
    let behind = rest.split_off(whole);
    if behind.len() > SNAPSHOT_OPERATION_BYTES + size_of::<u64>() {
        return Err(FeedError::Malformed);
    }
    Ok(FollowEvent::Operations(std::mem::replace(rest, behind)))
}
