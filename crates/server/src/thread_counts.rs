//! What the thread of one shard counts of its RESP connections. It alone writes
//! these counters, so that counting costs no locked instruction and no line that
//! two cores write; INFO adds up those of all threads.

use std::sync::atomic::{AtomicU64, Ordering};

/// A counter that one thread writes and others read now and then.
#[derive(Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Counts so many. For its one writer.
    #[inline(always)]
    pub fn add(&self, by: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
    }

    /// One of the things that are counted has changed from `before` to `after`.
    #[inline(always)]
    pub fn change(&self, before: usize, after: usize) {
        self.add((after as u64).wrapping_sub(before as u64));
    }

    /// What is counted so far.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// See the module's text.
#[derive(Default)]
#[repr(align(128))]
pub struct ThreadCounts {
    /// Commands.
    pub commands: Counter,
    /// Commands that the thread's own shard executed at once: in a request about many
    /// keys, at least one of them.
    pub executed_here: Counter,
    /// Keys that it executed at once in requests about many.
    pub keys_here: Counter,
    /// Reads that were concluded in another shard's memory.
    pub optimistic_reads: Counter,
    /// Values that were read so for GET or MGET: hits that the shard does not count.
    pub hits: Counter,
    /// Reads of another shard's memory that did not conclude: it was asked.
    pub asked_reads: Counter,
    /// Turns of the thread in which there was something to do.
    pub turns: Counter,
    /// Jobs that were handed to other shards.
    pub jobs_sent: Counter,
    /// Mail to other shards, each with the jobs and replies of one turn.
    pub mail_sent: Counter,
    /// Mail that had to wait, as the receiver had not taken earlier mail.
    pub mail_waited: Counter,
    /// Looks at the sockets: waits in the kernel and looks without waiting.
    pub socket_looks: Counter,
    /// Writes to sockets.
    pub writes: Counter,
    /// Bytes written.
    pub bytes_written: Counter,
    /// Connections that were closed for a protocol error or an oversized request.
    pub protocol_errors: Counter,
    /// Connections that were closed because too much of their output was unread.
    pub output_cut_off: Counter,
    /// Requests that were given up because no more of them came.
    pub requests_abandoned: Counter,
    /// Bytes that the connections' jobs and replies hold, now
    /// ([`Connection::pending_bytes`](crate::resp::Connection::pending_bytes)), and the
    /// jobs of requests that go on with an answer, with what these have found.
    pub pending_bytes: Counter,
    /// Connections that went to a thread that had less to do.
    pub connections_moved: Counter,
}
