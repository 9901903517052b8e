//! Mail for one thread, in a bounded queue for each sender.
//!
//! A sender that finds its queue full keeps its mail, and is woken when there is room:
//!
//! ```text
//!   sender, queue full             receiver
//!   mark itself as waiting         take mail
//!   full fence                     full fence
//!   try once more                  take the marks, wake those senders
//! ```
//! Whichever fence comes second sees the other side's step: either the sender finds room, or the
//! receiver finds the mark. The caller decides how a thread is woken. If a wake-up only reaches a
//! thread that already sleeps, as with a bell, the sender must look for room in its last scan
//! before it sleeps as well ([`MailQueues::has_room`]).

use crate::sync::{ArrayQueue, AtomicU64, Ordering, fence};

/// See the module's text.
pub struct MailQueues<T> {
    /// By the number of the sender.
    queues: Box<[ArrayQueue<T>]>,
    /// A bit for each sender that has sent mail since this was last taken.
    senders: AtomicU64,
    /// A bit for each sender that has mail for which there was no room.
    waiting: AtomicU64,
}

impl<T> MailQueues<T> {
    /// Queues of this many senders, 64 at most, each with room for this much mail.
    pub fn new(senders: usize, room: usize) -> Self {
        Self {
            queues: (0..senders).map(|_| ArrayQueue::new(room)).collect(),
            senders: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
        }
    }

    /// Puts mail into the queue of this sender, and then wakes the receiver by `ring`.
    ///
    /// # Errors
    /// Too much of it has not been taken yet: the mail is given back. The receiver
    /// wakes this sender when it has taken some ([`receive`]).
    pub fn post(&self, from: usize, mail: T, ring: impl FnOnce()) -> Result<(), T> {
        if let Err(mail) = self.queues[from].push(mail) {
            self.waiting.fetch_or(1 << from, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            self.queues[from].push(mail)?;
        }
        self.senders.fetch_or(1 << from, Ordering::Release);
        ring();
        Ok(())
    }

    /// Whether there is room for mail of this sender.
    pub fn has_room(&self, from: usize) -> bool {
        !self.queues[from].is_full()
    }

    /// Whether no mail was sent since it was last received.
    pub fn is_empty(&self) -> bool {
        self.senders.load(Ordering::Relaxed) == 0
    }

    /// The senders of mail since this was last asked.
    fn take_senders(&self) -> u64 {
        // A load first: a thread that polls does not write the line.
        match self.senders.load(Ordering::Relaxed) {
            0 => 0,
            _ => self.senders.swap(0, Ordering::Acquire),
        }
    }

    /// After mail was taken: the senders that wait for room.
    fn take_waiting(&self) -> u64 {
        fence(Ordering::SeqCst);
        match self.waiting.load(Ordering::Relaxed) {
            0 => 0,
            _ => self.waiting.swap(0, Ordering::SeqCst),
        }
    }
}

/// The receiver takes the mail of all senders, each one's in its order, and wakes by `ring` the
/// senders that wait for room. Returns whether there was any mail. `mail` finds the queues in the
/// receiver's state, which `take` changes.
pub fn receive<S, T>(
    receiver: &mut S,
    mail: impl for<'s> Fn(&'s S) -> &'s MailQueues<T>,
    mut take: impl FnMut(&mut S, T),
    mut ring: impl FnMut(&mut S, usize),
) -> bool {
    let senders = mail(receiver).take_senders();
    for from in bits(senders) {
        // Bounded by the items that may be under way.
        while let Some(next) = mail(receiver).queues[from].pop() {
            take(receiver, next);
        }
    }
    if senders != 0 {
        let waiting = mail(receiver).take_waiting();
        bits(waiting).for_each(|from| ring(receiver, from));
    }
    senders != 0
}

/// The numbers of the bits that are set.
pub fn bits(mut left: u64) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let bit = (left != 0).then_some(left.trailing_zeros() as usize);
        left &= left.wrapping_sub(1);
        bit
    })
}
