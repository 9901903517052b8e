//! Replies in the order of their requests: those that wait for shards, or for an earlier
//! one. What waits is counted until it is in the output.

use super::Connection;
use crate::jobs::{OwnedReply, Token};
use crate::resp::many_keys::ManyKeys;
use crate::resp::pending::{Pending, Piece, Waiting, Writing};
use remora_layout::limits::{RESP_MAX_REPLY_BYTES, RESP_PAUSE_OUTPUT_BYTES};
use remora_protocol::message::Status;
use remora_resp::form::Part;
use remora_resp::wire::Protocol;
use smallvec::SmallVec;

impl Connection {
    /// Appends a reply that is known at once.
    pub fn reply(&mut self, write: impl FnOnce(&mut Vec<u8>, Protocol)) {
        if self.pending.is_empty() {
            write(&mut self.output, self.protocol);
        } else {
            let mut bytes = Vec::new();
            write(&mut bytes, self.protocol);
            self.held_bytes += bytes.len();
            self.pending.push_back(Pending::Ready(bytes));
        }
    }

    /// Adds a request of which parts are missing.
    pub fn wait(&mut self, waiting: Waiting) {
        self.held_parts += waiting.parts.len();
        self.held_bytes += waiting.bytes;
        self.job_bytes += waiting.job_bytes;
        self.pending.push_back(Pending::Waiting(waiting, self.protocol));
    }

    /// Adds a request of which keys are missing.
    pub fn wait_for_keys(&mut self, many: ManyKeys) {
        self.held_parts += many.keys();
        self.held_bytes += many.value_bytes();
        self.job_bytes += many.job_bytes();
        self.pending.push_back(Pending::Keys(many, self.protocol));
    }

    /// Takes the last request out again, if a further turn is to take keys of it.
    pub(super) fn take_keys_left(&mut self) -> Option<ManyKeys> {
        if !self.has_keys_left() {
            return None;
        }
        let Some(Pending::Keys(many, _)) = self.pending.pop_back() else { return None };
        self.held_parts -= many.keys();
        self.held_bytes -= many.value_bytes();
        self.job_bytes -= many.job_bytes();
        Some(many)
    }

    /// Whether a further turn is to take keys of the last request.
    pub(super) fn has_keys_left(&self) -> bool {
        matches!(self.pending.back(), Some(Pending::Keys(many, _)) if many.has_left())
    }

    /// Takes a part's reply from a shard.
    pub fn answer(&mut self, token: Token, mut reply: OwnedReply) {
        let Some(at) = token.request.checked_sub(self.first_pending) else { return };
        let waiting = match self.pending.get_mut(at as usize) {
            Some(Pending::Waiting(waiting, _)) => waiting,
            Some(Pending::Keys(many, _)) => {
                self.held_bytes -= many.value_bytes();
                self.job_bytes -= many.job_bytes();
                many.take(token.part, reply, |asked| self.unanswered.answered(asked));
                self.held_bytes += many.value_bytes();
                self.job_bytes += many.job_bytes();
                return self.settle();
            }
            Some(Pending::Writing(writing)) => {
                self.held_bytes -= writing.bytes();
                self.broken_off = writing.take(reply).err();
                self.held_bytes += writing.bytes();
                return self.settle();
            }
            _ => return,
        };
        let asked = waiting.asked[token.part];
        self.unanswered.answered(asked);
        waiting.job_bytes -= asked.bytes;
        self.job_bytes -= asked.bytes;
        waiting.missing -= 1;
        waiting.rest = Some(token).filter(|_| reply.has_more);
        let bytes = reply.value.as_ref().map_or(0, Vec::len);
        // The shard bounds what it sends as one part.
        if waiting.bytes > 0 && waiting.bytes + bytes > RESP_MAX_REPLY_BYTES {
            reply = OwnedReply::status(Status::TooLarge);
        } else {
            waiting.bytes += bytes;
            self.held_bytes += bytes;
        }
        waiting.parts[token.part] = Some(reply);
        self.settle();
    }

    /// Bytes of its jobs that are not answered, and of replies that wait for a shard or for
    /// an earlier reply.
    pub const fn pending_bytes(&self) -> usize {
        self.job_bytes + self.held_bytes
    }

    /// Moves the replies that are due into the output; of one that is written
    /// piece by piece one piece, so that other connections are served between
    /// two, and only as fast as the client reads.
    pub(super) fn settle(&mut self) {
        loop {
            match self.pending.front_mut() {
                Some(Pending::Ready(bytes)) => {
                    self.held_bytes -= bytes.len();
                    self.output.append(bytes);
                }
                Some(Pending::Waiting(waiting, protocol)) if waiting.missing == 0 => {
                    let protocol = *protocol;
                    self.held_parts -= waiting.parts.len();
                    if let [Some(part)] = &waiting.parts[..]
                        && !waiting.render.is_long()
                    {
                        self.held_bytes -= waiting.bytes;
                        let part = [Part::from(part)];
                        waiting.render.write(&mut self.output, protocol, &part);
                        self.pending.pop_front();
                        self.first_pending += 1;
                        continue;
                    }
                    let parts = std::mem::take(&mut waiting.parts).into_iter().flatten();
                    let mut parts: SmallVec<[OwnedReply; 1]> = parts.collect();
                    if let [OwnedReply { status, number, value, .. }] = &mut parts[..]
                        && let Some(long) = waiting.render.long_reply((*status, *number), value)
                    {
                        let writing = Writing::new(long, protocol, waiting.rest);
                        self.pending[0] = Pending::Writing(writing);
                        continue;
                    }
                    self.held_bytes -= waiting.bytes;
                    let parts: SmallVec<[Part<'_>; 1]> = parts.iter().map(Part::from).collect();
                    waiting.render.write(&mut self.output, protocol, &parts);
                }
                Some(Pending::Keys(many, protocol)) if many.is_complete() => {
                    self.held_parts -= many.keys();
                    self.held_bytes -= many.value_bytes();
                    many.write(&mut self.output, *protocol);
                }
                Some(Pending::Writing(writing)) => {
                    let unsent = self.output.len() - self.sent;
                    if unsent > RESP_PAUSE_OUTPUT_BYTES || !writing.can_go_on() {
                        return;
                    }
                    match writing.write_piece(&mut self.output) {
                        Piece::Some => return,
                        Piece::Ask(token) => {
                            self.rest_due = Some(token);
                            return;
                        }
                        Piece::Last => self.held_bytes -= writing.bytes(),
                    }
                }
                _ => return,
            }
            self.pending.pop_front();
            self.first_pending += 1;
        }
    }
}
