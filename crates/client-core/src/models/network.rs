//! A network of a few lines: WRITEs take effect at once, and a link's sleep ends when the server
//! has written since the link last reported it. It does what the contract of
//! [`remora_fabric::Link`] says, and no more: nothing else wakes a sleeping thread.

use super::*;
use remora_fabric::{Completion, LinkError, Waited, Work};
use shuttle::sync::{Condvar, Mutex};

/// Sleeps by links in all runs.
pub static SLEEPS: Count = Count::new(0);

/// WRITEs of the server.
#[derive(Default)]
pub struct Arrivals {
    count: Mutex<u64>,
    changed: Condvar,
}

impl Arrivals {
    /// The server has stored what it writes.
    pub fn tell(&self) {
        *self.count.lock().unwrap() += 1;
        self.changed.notify_all();
    }
}

/// One session's link.
pub struct NetworkLink {
    inner: ShmLink,
    arrivals: Arc<Arrivals>,
    /// Number of them that `wait` has reported.
    seen: u64,
    done: Option<Completion>,
}

impl NetworkLink {
    /// A link that writes this mailbox.
    pub fn new(to_server: &Words, arrivals: &Arc<Arrivals>) -> Self {
        let mut inner = ShmLink::new(None);
        inner.add_writable(SHARDS as u32, to_server.clone());
        Self { inner, arrivals: Arc::clone(arrivals), seen: 0, done: None }
    }
}

impl Link for NetworkLink {
    fn transport(&self) -> Transport {
        Transport::Sim
    }

    fn reads_cost_peer_cpu(&self) -> bool {
        false
    }

    fn post(&mut self, batch: &[Work<'_>]) {
        for work in batch {
            let Work::Write { id, to, bytes, .. } = *work else { panic!("nobody READs") };
            // The server polls.
            self.inner.post(&[Work::Write { id, to, bytes, imm: None }]);
        }
    }

    fn poll(&mut self) -> Option<Completion> {
        let done = self.done.take().or_else(|| self.inner.poll());
        if done.is_none() {
            // It polls in place of others' steps.
            thread::yield_now();
        }
        done
    }

    fn wait(&mut self, timeout: Option<Duration>) -> Waited {
        self.done = self.poll();
        if self.done.is_some() {
            return Waited::Completed;
        }
        let mut count = self.arrivals.count.lock().unwrap();
        if *count == self.seen && timeout.is_some_and(|timeout| timeout <= PAUSE) {
            drop(count);
            thread::yield_now();
            return Waited::TimedOut;
        }
        SLEEPS.fetch_add((*count == self.seen) as usize, Ordering::Relaxed);
        let seen = self.seen;
        count = self.arrivals.changed.wait_while(count, |count| *count == seen).unwrap();
        self.seen = *count;
        Waited::Arrived
    }

    fn landed(&self, at: usize, bytes: usize) -> &[u8] {
        self.inner.landed(at, bytes)
    }

    fn reserve_landing(&mut self, bytes: usize) {
        self.inner.reserve_landing(bytes);
    }

    fn failure(&self) -> Option<LinkError> {
        self.inner.failure()
    }

    fn has_completed(&self) -> bool {
        self.inner.has_completed()
    }
}
