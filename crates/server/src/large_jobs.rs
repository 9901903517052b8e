//! Jobs, one at once or, if they move a large value or search a tree, piece
//! by piece.
//!
//! What it keeps true: in one turn of the shard one piece of one large value
//! is moved, so that rings and other jobs never wait for a whole one; the jobs
//! of one RESP connection are executed in the order in which they came, those
//! behind a large one after it.

use crate::jobs::{Job, OwnedReply, ReplyQueue, Token};
use remora_arena::Journal;
use remora_engine::command::{Command, GeoCommand};
use remora_engine::shard::{GeoWalk, TreeSearch};
use remora_engine::{Download, LargeSet, Now, Outcome, Reply, Shard, Upload};
use remora_layout::hash::KeyHash;
use remora_layout::limits::{JOBS_PER_TURN, RESP_MAX_REPLY_BYTES, STREAM_PIECE_BYTES};
use remora_layout::message::Status;
use remora_layout::node::{ENTRY_BYTES, Entry};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

/// One connection of one RESP thread.
type Origin = (usize, usize, u64);

fn origin_of(job: &Job) -> Origin {
    // A queue lives as long as its thread, so that its address names it.
    (Arc::as_ptr(&job.reply_to) as usize, job.token.connection, job.token.serial)
}

/// What is left of a large job.
enum Work {
    /// A SET: the encoded command, of whose value the last bytes are missing.
    Upload { command: Vec<u8>, upload: Upload },
    /// A reply and what has been copied of its value.
    Download { reply: OwnedReply, value: Vec<u8>, download: Download },
    /// A search of a tree, the objects found so far, and the bytes of those
    /// that the reply may have at most.
    Search { search: TreeSearch, found: Vec<u8>, most: usize },
    /// A search of a GEO key.
    GeoSearch(GeoWalk),
}

struct LargeJob {
    reply_to: Arc<ReplyQueue>,
    token: Token,
    work: Work,
}

/// What is under way for one connection.
struct Line {
    origin: Origin,
    /// The large job; `None` once it is done.
    large: Option<LargeJob>,
}

/// The large jobs under way, and those that wait for them.
#[derive(Default)]
pub struct LargeJobs {
    lines: VecDeque<Line>,
    /// The jobs behind the large one of each line.
    behind: BTreeMap<Origin, VecDeque<Job>>,
}

impl LargeJobs {
    /// Whether nothing is under way.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Executes a job, begins it if it is large, or lets it wait for an
    /// earlier one of its connection.
    pub fn execute<J: Journal>(&mut self, shard: &mut Shard<J>, job: Job, now: Now) {
        let origin = origin_of(&job);
        if let Some(behind) = self.behind.get_mut(&origin) {
            behind.push_back(job);
        } else if let Some(large) = begin(shard, job, now) {
            self.behind.insert(origin, VecDeque::new());
            self.lines.push_back(Line { origin, large: Some(large) });
        }
    }

    /// Moves one piece; with the last one goes on with the jobs behind it.
    pub fn turn<J: Journal>(&mut self, shard: &mut Shard<J>, now: Now) {
        let Some(mut line) = self.lines.pop_front() else { return };
        if let Some(large) = line.large.take() {
            line.large = advance(shard, large, now);
        }
        let behind = self.behind.get_mut(&line.origin).expect("each line has its list");
        for _ in 0..JOBS_PER_TURN {
            if line.large.is_some() {
                break;
            }
            let Some(job) = behind.pop_front() else { break };
            line.large = begin(shard, job, now);
        }
        if line.large.is_none() && behind.is_empty() {
            self.behind.remove(&line.origin);
        } else {
            self.lines.push_back(line);
        }
    }
}

/// Executes a job, or begins it if it moves a large value.
fn begin<J: Journal>(shard: &mut Shard<J>, job: Job, now: Now) -> Option<LargeJob> {
    let Job { command: bytes, reply_to, token, most_objects } = job;
    let outcome = match Command::decode(&bytes) {
        Ok((Command::Set { key, value, condition, expiry, get }, _))
            if value.len() > STREAM_PIECE_BYTES =>
        {
            let (hash, value_bytes) = (shard.hash(key), value.len());
            let set = LargeSet { key, hash, value_bytes, condition, expiry, get };
            match shard.begin_upload(set, now) {
                Ok(upload) => {
                    let work = Work::Upload { command: bytes, upload };
                    return Some(LargeJob { reply_to, token, work });
                }
                Err(status) => Outcome::Reply(Reply::status(status)),
            }
        }
        Ok((Command::Tree { name, request }, _)) if request.is_search() => {
            match shard.begin_search(name, request) {
                Ok(search) => {
                    let most = most_objects.saturating_mul(ENTRY_BYTES);
                    let work = Work::Search { search, found: Vec::new(), most };
                    return advance(shard, LargeJob { reply_to, token, work }, now);
                }
                Err(status) => Outcome::Reply(Reply::status(status)),
            }
        }
        Ok((Command::Geo { key, command: GeoCommand::Search { query } }, _)) => {
            let hash = shard.hash(key);
            match shard.begin_geo_search(key, hash, query, now) {
                Ok(walk) => {
                    let work = Work::GeoSearch(walk);
                    return advance(shard, LargeJob { reply_to, token, work }, now);
                }
                Err(status) => Outcome::Reply(Reply::status(status)),
            }
        }
        Ok((command, _)) => {
            let hash = command.key().map_or(KeyHash(0), |key| shard.hash(key));
            shard.execute_or_stream(&command, hash, now)
        }
        Err((status, _)) => Outcome::Reply(Reply::status(status)),
    };
    answer(outcome, reply_to, token)
}

/// Sends a reply, or begins to copy its value.
fn answer(outcome: Outcome<'_>, reply_to: Arc<ReplyQueue>, token: Token) -> Option<LargeJob> {
    match outcome {
        Outcome::Reply(reply) => {
            reply_to.push(token, reply.into());
            None
        }
        Outcome::Stream(reply, download) => {
            let value = Vec::with_capacity(download.len());
            let work = Work::Download { reply: reply.into(), value, download };
            Some(LargeJob { reply_to, token, work })
        }
    }
}

/// Moves one piece of a large value. What is left of the job.
fn advance<J: Journal>(shard: &mut Shard<J>, large: LargeJob, now: Now) -> Option<LargeJob> {
    let LargeJob { reply_to, token, work } = large;
    match work {
        Work::Upload { command, mut upload } => {
            // The value is the end of the command.
            let from = command.len() - upload.missing();
            let to = command.len().min(from + STREAM_PIECE_BYTES);
            let taken = shard.upload(&mut upload, &command[from..to]);
            assert_eq!(taken, Ok(()), "as many bytes as were announced");
            if upload.missing() > 0 {
                let work = Work::Upload { command, upload };
                return Some(LargeJob { reply_to, token, work });
            }
            answer(shard.finish_upload(upload, now), reply_to, token)
        }
        Work::Download { mut reply, mut value, download } => {
            value.extend_from_slice(shard.piece(&download, value.len(), STREAM_PIECE_BYTES));
            if value.len() < download.len() {
                let work = Work::Download { reply, value, download };
                return Some(LargeJob { reply_to, token, work });
            }
            shard.end_download(download, now);
            reply.value = Some(value);
            reply_to.push(token, reply);
            None
        }
        Work::Search { mut search, mut found, most } => {
            let turn = shard.search_turn(&mut search, &mut found);
            if search.may_have_doubles() && (turn == Ok(true) || found.len() >= most) {
                drop_doubles(&mut found);
            }
            let is_enough = found.len() >= most;
            found.truncate(most);
            let reply = match turn {
                Err(status) => OwnedReply::status(status),
                Ok(_) if found.len() > RESP_MAX_REPLY_BYTES => OwnedReply::status(Status::TooLarge),
                Ok(ended) if ended || is_enough => {
                    let value = search.gives_objects().then_some(found);
                    OwnedReply { status: Status::Ok, number: search.number(), value }
                }
                Ok(_) => {
                    let work = Work::Search { search, found, most };
                    return Some(LargeJob { reply_to, token, work });
                }
            };
            reply_to.push(token, reply);
            None
        }
        Work::GeoSearch(mut walk) => {
            let ended = shard.geo_search_turn(&mut walk);
            let reply = if walk.found_bytes() > RESP_MAX_REPLY_BYTES {
                OwnedReply::status(Status::TooLarge)
            } else if ended {
                let number = shard.geo_place(&walk);
                let value = Some(walk.into_found());
                OwnedReply { status: Status::Ok, number, value }
            } else {
                return Some(LargeJob { reply_to, token, work: Work::GeoSearch(walk) });
            };
            reply_to.push(token, reply);
            None
        }
    }
}

/// Leaves one object of each id.
fn drop_doubles(found: &mut Vec<u8>) {
    let (objects, _) = found.as_chunks::<ENTRY_BYTES>();
    let mut known = BTreeSet::new();
    let once = |object: &&[u8; ENTRY_BYTES]| known.insert(Entry::from_bytes(object).word);
    *found = objects.iter().filter(once).flatten().copied().collect();
}

#[cfg(test)]
mod tests;
