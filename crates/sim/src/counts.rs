//! Counters of a server's threads, for worlds that judge a request's cost by them. INFO has the
//! same counters.

use remora_server::thread_counts::ThreadCounts;

/// Sums over the threads of one incarnation.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct RunCounts {
    /// Frames of ring clients, executed.
    pub ring_frames: u64,
    /// Turns in which there were some.
    pub ring_turns: u64,
    /// Clients whose ready bits the shards have looked at in these turns.
    pub clients_looked_at: u64,
    /// Rings that were looked at in these turns.
    pub rings_looked_at: u64,
    /// Clients that rang while they were parked.
    pub ring_doorbells: u64,
    /// Signals that clients had to give.
    pub signals: u64,
    /// Clients that were parked at the end.
    pub parked: u64,
    /// Turns of threads.
    pub turns: u64,
    /// RESP commands.
    pub commands: u64,
    /// Jobs for other shards.
    pub jobs_sent: u64,
    /// Mail, of jobs and replies.
    pub mail_sent: u64,
    /// Mail that had to wait for room.
    pub mail_waited: u64,
    /// Writes to streams.
    pub writes: u64,
    /// Bytes of these.
    pub bytes_written: u64,
    /// RESP connections that went to another thread.
    pub connections_moved: u64,
}

impl RunCounts {
    /// Adds a thread's counters of its connections.
    pub fn add_thread(&mut self, thread: &ThreadCounts) {
        self.turns += thread.turns.get();
        self.commands += thread.commands.get();
        self.jobs_sent += thread.jobs_sent.get();
        self.mail_sent += thread.mail_sent.get();
        self.mail_waited += thread.mail_waited.get();
        self.writes += thread.frontend.writes.get();
        self.bytes_written += thread.frontend.bytes_written.get();
        self.connections_moved += thread.connections_moved.get();
    }
}
