//! Bells and sleepers: the wake-up protocol of [`asleep`] over a word of
//! shared memory and an eventfd.

use super::asleep;
use remora_arena::{AsleepWord, ReadView};
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::Errno;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

/// The sender's side: wakes a receiver that sleeps.
#[derive(Clone)]
pub struct Bell {
    asleep: ReadView,
    word: usize,
    eventfd: Arc<OwnedFd>,
}

impl Bell {
    /// A bell for the receiver whose word `word` of `asleep` is 1 while it
    /// sleeps, and that waits for `eventfd`.
    pub fn new(asleep: ReadView, word: usize, eventfd: Arc<OwnedFd>) -> Self {
        Self { asleep, word, eventfd }
    }

    /// A new eventfd for a bell.
    pub fn eventfd() -> std::io::Result<Arc<OwnedFd>> {
        Ok(Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?))
    }

    /// Call it after every frame: wakes the receiver if it sleeps. Returns whether it had to.
    #[inline]
    pub fn ring(&self) -> bool {
        let must_signal = asleep::must_signal(|| self.asleep());
        if must_signal {
            self.signal();
        }
        must_signal
    }

    /// The receiver's word.
    #[inline(always)]
    pub(super) fn asleep(&self) -> u64 {
        self.asleep.load(self.word)
    }

    /// Wakes the receiver whether it sleeps or not.
    pub fn signal(&self) {
        // A full counter (EAGAIN) means that a wake-up is already due.
        let _ = rustix::io::write(&*self.eventfd, &1u64.to_ne_bytes());
    }
}

/// Why a sleeper woke up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Woken {
    /// The last scan before sleeping found something.
    Found,
    /// A sender rang, or a watched descriptor became ready.
    Signalled,
    /// The time was up.
    TimedOut,
}

/// Descriptors that one system call says are ready, at most; the others follow.
const READY_AT_ONCE: usize = 256;
/// Tells streams from bells.
const STREAM_MARK: u64 = 1 << 62;

/// A watched stream to which something happened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StreamEvent {
    /// The name that it was given.
    pub name: u64,
    /// Its peer has closed its side.
    pub is_end: bool,
    /// It is broken, or both sides are closed: nothing that is sent arrives.
    pub is_gone: bool,
}

/// The receiver's side: sleeps in the kernel until a bell rings, or something
/// happens to a stream.
pub struct Sleeper {
    asleep: AsleepWord,
    epoll: OwnedFd,
    /// What became ready and was not taken yet: the marks of bells, and what
    /// happened to streams.
    ready: Ready,
    /// Times it really slept.
    sleeps: u64,
}

/// What became ready.
#[derive(Default)]
struct Ready {
    bells: Vec<u64>,
    streams: Vec<StreamEvent>,
}

impl Ready {
    fn add(&mut self, event: &epoll::Event) {
        let (flags, data) = (event.flags, event.data);
        let mark = data.u64();
        if mark & STREAM_MARK != 0 {
            use epoll::EventFlags as Flags;
            let is_gone = flags.intersects(Flags::HUP | Flags::ERR);
            let is_end = is_gone || flags.contains(Flags::RDHUP);
            self.streams.push(StreamEvent { name: mark ^ STREAM_MARK, is_end, is_gone });
        } else if mark != 0 {
            self.bells.push(mark);
        }
    }
}

impl Sleeper {
    /// A sleeper that announces itself in this word.
    pub fn new(asleep: AsleepWord) -> std::io::Result<Self> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        Ok(Self { asleep, epoll, ready: Ready::default(), sleeps: 0 })
    }

    /// Wakes also for this descriptor, and then reports its mark, unless that is 0
    /// ([`Sleeper::take_ready`]). Edge-triggered: an eventfd need never be drained, each signal is
    /// a new edge.
    pub fn watch(&self, fd: BorrowedFd<'_>, mark: u64) -> std::io::Result<()> {
        let flags = epoll::EventFlags::IN | epoll::EventFlags::ET;
        let mark = mark & !STREAM_MARK;
        Ok(epoll::add(&self.epoll, fd, epoll::EventData::new_u64(mark), flags)?)
    }

    /// Wakes also when this stream can be read or written again, or ends. Edge-triggered: unread
    /// bytes raise no event of their own.
    ///
    /// # Errors
    /// The kernel has no room for another one.
    pub fn watch_stream(&self, fd: BorrowedFd<'_>, name: u64) -> std::io::Result<()> {
        use epoll::EventFlags as Flags;
        self.watch_named(fd, name, Flags::IN | Flags::OUT | Flags::RDHUP | Flags::ET)
    }

    /// As [`Sleeper::watch_stream`], for a descriptor that is only read.
    ///
    /// # Errors
    ///
    /// The kernel has no room for another one.
    pub fn watch_source(&self, fd: BorrowedFd<'_>, name: u64) -> std::io::Result<()> {
        self.watch_named(fd, name, epoll::EventFlags::IN | epoll::EventFlags::ET)
    }

    fn watch_named(
        &self,
        fd: BorrowedFd<'_>,
        name: u64,
        flags: epoll::EventFlags,
    ) -> std::io::Result<()> {
        assert!(name < STREAM_MARK, "a name leaves the mark's bits free");
        let mark = STREAM_MARK | name;
        Ok(epoll::add(&self.epoll, fd, epoll::EventData::new_u64(mark), flags)?)
    }

    /// No longer wakes for this descriptor.
    pub fn forget(&self, fd: BorrowedFd<'_>) {
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Looks which descriptors and streams are ready, without sleeping.
    pub fn look(&mut self) {
        wait(&self.epoll, &mut self.ready, Some(Duration::ZERO));
    }

    /// The marks of descriptors that sleeps and looks have found ready since they
    /// were taken last; each finds a bounded number, the others come by the next.
    pub fn take_ready(&mut self) -> impl Iterator<Item = u64> {
        self.ready.bells.drain(..)
    }

    /// The same of streams: one of the events, the latest first.
    pub fn pop_stream_event(&mut self) -> Option<StreamEvent> {
        self.ready.streams.pop()
    }

    /// How often it really slept.
    pub fn sleeps(&self) -> u64 {
        self.sleeps
    }

    /// Sleeps until a bell rings or `timeout` has passed (`None`: for ever),
    /// unless `scan` finds something to do.
    pub fn sleep(&mut self, timeout: Option<Duration>, scan: impl FnOnce() -> bool) -> Woken {
        let Self { asleep, epoll, ready, sleeps } = self;
        let slept = asleep::sleep_unless(asleep.word(), scan, || {
            *sleeps += 1;
            wait(epoll, ready, timeout)
        });
        slept.unwrap_or(Woken::Found)
    }
}

/// Sleeps in the kernel until a watched descriptor is ready; `ready` receives the ready ones.
fn wait(epoll: &OwnedFd, ready: &mut Ready, timeout: Option<Duration>) -> Woken {
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    let mut events = [const { MaybeUninit::<epoll::Event>::uninit() }; READY_AT_ONCE];
    match epoll::wait(epoll, &mut events, timeout.as_ref()) {
        Ok(([], _)) => Woken::TimedOut,
        Ok((events, _)) => {
            events.iter().for_each(|event| ready.add(event));
            Woken::Signalled
        }
        Err(Errno::INTR) => Woken::Signalled,
        // The set is ours; nothing else can go wrong with it.
        Err(error) => panic!("epoll_wait: {error}"),
    }
}

impl AsFd for Sleeper {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conformance::DEADLINE;
    use remora_arena::{Mapping, Words};

    /// Frames are a counter; the receiver always sleeps when it sees no new one. A wake-up was lost
    /// if [`DEADLINE`] is up and the frame is there: otherwise the other side was slow, which is
    /// possible on a busy machine.
    fn hammer(rounds: u64) -> (u64, u64) {
        let words = Words::new(Mapping::heap(4096));
        let back = Words::new(Mapping::heap(4096));
        let there_fd = Bell::eventfd().unwrap();
        let back_fd = Bell::eventfd().unwrap();
        let mut there = Sleeper::new(AsleepWord::new(words.clone(), 1)).unwrap();
        there.watch(there_fd.as_fd(), 0).unwrap();
        let mut here = Sleeper::new(AsleepWord::new(back.clone(), 1)).unwrap();
        here.watch(back_fd.as_fd(), 0).unwrap();
        let ring_there = Bell::new(words.view(), 1, there_fd);
        // A clone: closing the eventfd would take a signal that is due with it.
        let ring_back = Bell::new(back.view(), 1, Arc::clone(&back_fd));
        let echo = std::thread::spawn({
            let (words, back) = (words.clone(), back.clone());
            move || {
                let mut lost = 0;
                for round in 1..=rounds {
                    while words.load_acquire(0) < round {
                        let scan = || words.load_acquire(0) >= round;
                        let woken = there.sleep(Some(DEADLINE), scan);
                        lost += (woken == Woken::TimedOut && scan()) as u64;
                    }
                    back.store_release(0, round);
                    ring_back.ring();
                }
                (lost, there.sleeps())
            }
        });
        let mut lost = 0;
        for round in 1..=rounds {
            words.store_release(0, round);
            ring_there.ring();
            while back.load_acquire(0) < round {
                let scan = || back.load_acquire(0) >= round;
                let woken = here.sleep(Some(DEADLINE), scan);
                lost += (woken == Woken::TimedOut && scan()) as u64;
            }
        }
        let (lost_there, sleeps) = echo.join().unwrap();
        (lost + lost_there, sleeps)
    }

    #[test]
    fn no_wake_up_is_lost() {
        let (lost, sleeps) = hammer(20_000);
        assert_eq!(lost, 0);
        assert!(sleeps > 100, "it did sleep: {sleeps}");
    }
}
