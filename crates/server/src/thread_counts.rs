//! The counters of one shard's thread for its RESP connections. Only this thread writes them, so
//! that counting costs no locked instruction and no line that two cores write; INFO adds up those
//! of all threads.

use remora_frontend::Counter;
use std::sync::atomic::{AtomicU64, Ordering};

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
    /// The counters of the connections themselves.
    pub frontend: remora_frontend::ConnectionCounts,
    /// Connections that went to a thread that had less to do.
    pub connections_moved: Counter,
}

/// Adds to a counter that only statistics read, and that several threads write.
pub fn count(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Ordering::Relaxed);
}

/// The same by the only thread that writes it: without a locked instruction.
#[inline(always)]
pub fn count_alone(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
}
