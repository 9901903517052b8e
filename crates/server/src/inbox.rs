//! Messages between the server's threads.
//!
//! Each shard's thread has an [`Inbox`]. Other shards' threads put *mail* into
//! it: jobs for its shard, and replies to jobs that it handed out itself. Each
//! pair of threads has a bounded queue of its own ([`MailQueues`]; [`Mail`] is what
//! one turn of the sender gathers for one receiver), so that no two threads write the
//! same line of it, and a turn rings the receiver once, however much it sends.
//! Threads without a shard (control, the acceptor) send a [`Message`].
//!
//! The protocol of the rings wakes the receiver: [`remora_fabric::shm::asleep`].

use crate::acknowledging::Requirement;
use crate::client_stream::ClientStream;
use crate::disk::SnapshotPort;
use crate::following::{Batch, RoleStep};
use crate::mail_queues::{MailQueues, bits};
use crate::ring_session::RingSession;
use crate::thread_counts::ThreadCounts;
use crossbeam_queue::SegQueue;
use remora_fabric::shm::Bell;
use remora_frontend::{Connection, Job, OwnedReply, Token};
use remora_layout::limits::MAIL_UNDER_WAY;
use remora_mongo::frontend::Mongo;
use remora_resp::Resp;
use std::sync::Arc;
use std::sync::mpsc::Sender;

/// A message from a thread without a shard to a shard's thread.
pub enum Message {
    /// A client's rings.
    Attach(Box<RingSession>),
    /// The session with this number has ended.
    Detach(u64),
    /// A RESP connection to serve.
    Serve(Box<Handed>),
    /// A connection of MongoDB's protocol to serve.
    ServeMongo(Box<HandedMongo>),
    /// How far changes are durable, and on the disk.
    Durable {
        /// The last durable sequence.
        durable: u64,
        /// The last one on the disk.
        synced: u64,
    },
    /// Parts of changes of two shards have become durable at another shard.
    Parts,
    /// Say which is the last sequence, once the shard is not held: with it all parts are there of the
    /// changes of two shards that had begun.
    Ends(Sender<(usize, u64)>),
    /// Write a snapshot of the shard.
    Snapshot(Arc<SnapshotPort>),
    /// A part of the log of the primary, to be applied.
    Apply(Arc<Batch>),
    /// A step of a change of the server's role.
    Role(RoleStep),
    /// In a cluster, what an acknowledgement needs from now on.
    Requirement(Arc<Requirement>),
    /// What is known of the cluster, or of the users, has changed: connections may have to be told, or
    /// to end.
    News,
    /// The answer to a request for such a change.
    RoleAnswer(Token, OwnedReply),
    /// Whether the disk of the log takes entries.
    Keeps(bool),
    /// Take no more RESP requests. The sender is dropped once those that were
    /// taken are answered, or have been unread for too long.
    Drain(Sender<()>),
    /// Finish the present work and end.
    Stop,
}

impl Message {
    /// Whether it waits while the shard is held (decision 0070): it is about the shard's changes, in their
    /// order.
    pub const fn waits_for_changes(&self) -> bool {
        matches!(
            self,
            Self::Ends(_) | Self::Snapshot(_) | Self::Apply(_) | Self::Role(_) | Self::Drain(_)
        )
    }
}

/// A connection on its way to the thread that is to serve it.
pub struct Handed {
    /// Its stream, which does not block.
    pub stream: ClientStream,
    /// Its state.
    pub connection: Connection<Resp>,
}

/// The same of MongoDB's protocol.
pub struct HandedMongo {
    /// Its stream, which does not block.
    pub stream: ClientStream,
    /// Its state.
    pub connection: Connection<Mongo>,
}

/// Most emptied mail that a thread keeps for its next messages; none with room for more than
/// [`SPARE_ITEMS`] jobs or replies.
const SPARE_MAIL: usize = 16;
const SPARE_ITEMS: usize = 32;

/// The mail of one turn of a shard's thread for another thread.
#[derive(Default)]
pub struct Mail {
    /// Jobs for its shard, in the order of their connections' requests.
    pub jobs: Vec<Job>,
    /// Replies for its connections.
    pub replies: Vec<(Token, OwnedReply)>,
}

impl Mail {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.jobs.is_empty() && self.replies.is_empty()
    }
}

/// Wakes the thread that has an inbox.
pub trait Wake {
    /// Wakes it if it sleeps. Whether it had to be signalled.
    fn ring(&self) -> bool;
}

impl Wake for Bell {
    fn ring(&self) -> bool {
        Self::ring(self)
    }
}

impl<W: Wake> Wake for std::sync::Arc<W> {
    fn ring(&self) -> bool {
        W::ring(self)
    }
}

/// Messages from other threads to the thread of one shard.
pub struct Inbox<W = Bell> {
    messages: SegQueue<Message>,
    /// By the number of the shard that sends it.
    mail: MailQueues<Mail>,
    bell: W,
}

impl<W: Wake> Inbox<W> {
    /// An inbox of a server with this many shards; `bell` wakes its thread.
    pub fn new(shards: usize, bell: W) -> Self {
        Self { messages: SegQueue::new(), mail: MailQueues::new(shards, MAIL_UNDER_WAY), bell }
    }

    /// Sends the thread a message.
    pub fn push(&self, message: Message) {
        self.messages.push(message);
        self.bell.ring();
    }

    /// The next message.
    pub fn pop(&self) -> Option<Message> {
        self.messages.pop()
    }

    /// Sends the mail of one turn of the thread of shard `from`.
    ///
    /// # Errors
    /// If the receiver has not taken enough of the earlier mail, the mail is returned, to be sent
    /// with later mail. The receiver rings for that shard's thread when there is room.
    pub fn post(&self, from: usize, mail: Mail) -> Result<(), Mail> {
        self.mail.post(from, mail, || _ = self.bell.ring())
    }

    /// The mail of other shards' threads.
    pub fn mail(&self) -> &MailQueues<Mail> {
        &self.mail
    }

    /// Wakes the thread if it sleeps: another thread or process wrote into its rings. Returns
    /// whether a signal was needed.
    pub fn ring(&self) -> bool {
        self.bell.ring()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.mail.is_empty()
    }
}

/// Mail that a thread has for the others, and has not sent.
pub struct Outbox {
    /// The thread's own shard.
    from: usize,
    /// By the number of the shard that receives it.
    mail: Vec<Mail>,
    /// A bit for each of them that has some.
    has_mail: u64,
    /// A bit for each receiver whose mail waits for room.
    waits: u64,
    /// Empty mail with capacity, for the next mail to some receiver.
    spare: Vec<Mail>,
}

impl Outbox {
    /// The thread of shard `from` has no mail for any of this many shards.
    pub fn new(from: usize, shards: usize) -> Self {
        Self {
            from,
            mail: (0..shards).map(|_| Mail::default()).collect(),
            has_mail: 0,
            waits: 0,
            spare: Vec::new(),
        }
    }

    /// Adds a job for a shard.
    pub fn add_job(&mut self, to: usize, job: Job) {
        self.mail[to].jobs.push(job);
        self.has_mail |= 1 << to;
    }

    /// Adds a reply for a connection of another thread, which its token names.
    pub fn add_reply(&mut self, token: Token, reply: OwnedReply) {
        self.mail[token.home].replies.push((token, reply));
        self.has_mail |= 1 << token.home;
    }

    /// Keeps mail that the thread has received and emptied: its next messages need as much room,
    /// because jobs and replies go to and fro.
    pub fn keep(&mut self, mail: Mail) {
        debug_assert!(mail.is_empty());
        let room = mail.jobs.capacity().max(mail.replies.capacity());
        if self.spare.len() < SPARE_MAIL && room <= SPARE_ITEMS {
            self.spare.push(mail);
        }
    }

    /// Whether there is room for mail that had to wait. The thread asks in its last scan before it
    /// sleeps.
    pub fn may_send<'i, W: Wake + 'i>(&self, inbox: impl Fn(usize) -> &'i Inbox<W>) -> bool {
        bits(self.has_mail).any(|to| inbox(to).mail.has_room(self.from))
    }

    /// Sends a turn's mail at its end. Mail that cannot be sent, because a receiver has not taken
    /// earlier mail, is sent with a later turn's.
    pub fn send<'i, W: Wake + 'i>(
        &mut self,
        inbox: impl Fn(usize) -> &'i Inbox<W>,
        counts: &ThreadCounts,
    ) {
        counts.turns.add(1);
        for to in bits(self.has_mail) {
            let empty = self.spare.pop().unwrap_or_default();
            let mail = std::mem::replace(&mut self.mail[to], empty);
            let jobs = mail.jobs.len() as u64;
            match inbox(to).post(self.from, mail) {
                Ok(()) => {
                    self.has_mail &= !(1 << to);
                    self.waits &= !(1 << to);
                    counts.mail_sent.add(1);
                    counts.jobs_sent.add(jobs);
                }
                Err(mail) => {
                    let empty = std::mem::replace(&mut self.mail[to], mail);
                    self.spare.push(empty);
                    // Counted once, however many turns it waits.
                    counts.mail_waited.add((self.waits >> to & 1) ^ 1);
                    self.waits |= 1 << to;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;
