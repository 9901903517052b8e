//! A thread that drives an agent: waits for its descriptors, and polls a moment
//! for more while that finds work.

use crate::agent::{Agent, AgentInbox, Watcher};
use crate::config::Wake;
use crate::polling::Polling;
use crate::shared::{Shared, count};
use mio::event::Event;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Registry, Token, Waker};
use std::io::ErrorKind;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

const WAKER: Token = Token(0);
const FIRST_TOKEN: u64 = 1;
/// Descriptors that one look at the kernel tells of.
const EVENTS: usize = 256;

/// See the module's text.
pub struct AgentThread {
    shared: Arc<Shared>,
    number: usize,
    poll: Poll,
    agent: Agent,
}

impl AgentThread {
    /// The server's agent with this number, and how other threads reach it.
    ///
    /// # Errors
    /// The kernel gives no poll or waker.
    pub fn new(shared: Arc<Shared>, number: usize) -> std::io::Result<(Self, Arc<AgentInbox>)> {
        let poll = Poll::new()?;
        let waker = Waker::new(poll.registry(), WAKER)?;
        let inbox = AgentInbox::new(move || {
            // Fails only if the poll is gone, and then nobody waits.
            let _ = waker.wake();
        });
        let agent = Agent::new(Arc::clone(&shared), number, Arc::clone(&inbox), FIRST_TOKEN);
        Ok((Self { shared, number, poll, agent }, inbox))
    }

    /// Runs until the server is to end. The control thread, which ends first,
    /// has withdrawn and closed every connection by then.
    pub fn run(mut self) {
        let mut events = Events::with_capacity(EVENTS);
        let mut polling = Polling::new(self.shared.config.wake != Wake::Event);
        while !self.shared.is_stopping() || !self.agent.is_idle() {
            let polls = self.agent.has_work() || polling.polls_on(Instant::now());
            let timeout = polls.then_some(Duration::ZERO);
            if let Err(error) = self.poll.poll(&mut events, timeout)
                && error.kind() != ErrorKind::Interrupted
            {
                panic!("the agent cannot poll: {error}");
            }
            for event in &events {
                self.agent.on_event(event.token().0 as u64, is_hung_up(event));
            }
            if self.agent.turn(self.poll.registry()) {
                count(&self.shared.agents[self.number].wakes, !polls as u64);
                polling.worked(Instant::now());
            }
        }
    }
}

/// Whether the peer sends no more: what came before that is still there.
fn is_hung_up(event: &Event) -> bool {
    event.is_read_closed() || event.is_error()
}

impl Watcher for Registry {
    fn watch(&self, fd: BorrowedFd<'_>, token: u64, writable: bool) -> std::io::Result<()> {
        let more = writable.then_some(Interest::WRITABLE);
        let interest = more.map_or(Interest::READABLE, |more| Interest::READABLE | more);
        self.register(&mut SourceFd(&fd.as_raw_fd()), Token(token as usize), interest)
    }

    fn forget(&self, fd: BorrowedFd<'_>) {
        // It fails where it was not watched.
        let _ = self.deregister(&mut SourceFd(&fd.as_raw_fd()));
    }
}
