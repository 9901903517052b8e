//! No mail between shards' threads stays in a queue while its receiver sleeps, and no
//! sender sleeps on while there is room for its mail, in any order of steps and with any
//! load as stale as the memory model allows.

use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use remora_models::any_run;
use remora_models::asleep::{must_signal, sleep_unless};
use remora_models::mail_queues::{MailQueues, receive};
use remora_models::sync::{AtomicU64, WITHOUT_FENCES};
use std::sync::atomic::Ordering;

/// The receiver's number among the threads; the senders' are lower.
const RECEIVER: usize = 2;
const THREADS: usize = 3;

/// What the kernel knows of a thread.
#[derive(Clone, Copy, Default)]
struct Known {
    /// It was signalled since it last slept.
    signalled: bool,
    sleeps: bool,
    /// It sends no more signals.
    has_ended: bool,
}

/// The threads' eventfds. When all threads sleep unsignalled or have ended, those that
/// sleep do so for ever.
#[derive(Default)]
struct Kernel {
    threads: Mutex<[Known; THREADS]>,
    changed: [Condvar; THREADS],
}

impl Kernel {
    fn signal(&self, thread: usize) {
        self.threads.lock().unwrap()[thread].signalled = true;
        self.changed[thread].notify_one();
    }

    /// A thread sleeps until it is signalled; false if it never will be.
    fn wait(&self, thread: usize) -> bool {
        let mut threads = self.threads.lock().unwrap();
        threads[thread].sleeps = true;
        while !threads[thread].signalled {
            if all_sleep(&threads) {
                self.changed.iter().for_each(Condvar::notify_one);
                return false;
            }
            threads = self.changed[thread].wait(threads).unwrap();
        }
        threads[thread] = Known::default();
        true
    }

    /// A thread has ended, or there is none.
    fn end(&self, thread: usize) {
        let mut threads = self.threads.lock().unwrap();
        threads[thread].has_ended = true;
        if all_sleep(&threads) {
            self.changed.iter().for_each(Condvar::notify_one);
        }
    }
}

fn all_sleep(threads: &[Known; THREADS]) -> bool {
    threads.iter().all(|thread| thread.has_ended || thread.sleeps && !thread.signalled)
}

/// What the threads share: queues with room for one piece of mail each, the words that
/// say who sleeps, and the kernel.
struct Shared {
    mail: MailQueues<u64>,
    asleep: [AtomicU64; THREADS],
    kernel: Kernel,
}

impl Shared {
    fn new(senders: usize) -> Arc<Self> {
        let (asleep, kernel) = (Default::default(), Kernel::default());
        (senders..RECEIVER).for_each(|nobody| kernel.end(nobody));
        Arc::new(Self { mail: MailQueues::new(senders, 1), asleep, kernel })
    }

    /// As a bell.
    fn ring(&self, thread: usize) {
        if must_signal(|| self.asleep[thread].load(Ordering::Relaxed)) {
            self.kernel.signal(thread);
        }
    }

    /// A thread sleeps unless its last scan finds something; false if it never wakes.
    fn sleep(&self, thread: usize, scan: impl FnOnce() -> bool) -> bool {
        sleep_unless(&self.asleep[thread], scan, || self.kernel.wait(thread)) != Some(false)
    }

    /// A sender sends so much mail; what is not taken at once it sends when it is woken.
    fn send(&self, from: usize, mail: u64, waits: Waits) {
        for next in 1..=mail {
            while self.mail.post(from, next, || self.ring(RECEIVER)).is_err() {
                let is_woken = match waits {
                    Waits::AsThreadsDo => self.sleep(from, || self.mail.has_room(from)),
                    Waits::ForTheSignal => self.kernel.wait(from),
                };
                if !is_woken {
                    return;
                }
            }
        }
        self.kernel.end(from);
    }
}

/// How a sender waits for room.
#[derive(Clone, Copy, Debug)]
enum Waits {
    /// Asleep after a last scan, which looks for room.
    AsThreadsDo,
    /// For nothing but the signal, which the receiver always gives: what `post` promises
    /// by itself.
    ForTheSignal,
}

/// The receiver, and how much mail it has taken.
struct Receiver {
    shared: Arc<Shared>,
    taken: u64,
}

/// As many senders as `mail` has entries send so much mail each. Whether in any run
/// somebody sleeps for ever. Threads are interrupted at most so often, if that is bounded.
fn is_lost(mail: &'static [u64], preemptions: Option<usize>, waits: Waits) -> bool {
    any_run(preemptions, move || {
        let shared = Shared::new(mail.len());
        for (from, &mail) in mail.iter().enumerate() {
            let shared = Arc::clone(&shared);
            thread::spawn(move || shared.send(from, mail, waits));
        }
        let mut receiver = Receiver { shared: Arc::clone(&shared), taken: 0 };
        let ring = |receiver: &mut Receiver, from| match waits {
            Waits::AsThreadsDo => receiver.shared.ring(from),
            Waits::ForTheSignal => receiver.shared.kernel.signal(from),
        };
        while receiver.taken < mail.iter().sum() {
            let take = |receiver: &mut Receiver, _| receiver.taken += 1;
            let came = receive(&mut receiver, |receiver| &receiver.shared.mail, take, ring);
            if !came && !shared.sleep(RECEIVER, || !shared.mail.is_empty()) {
                return true;
            }
        }
        shared.kernel.end(RECEIVER);
        false
    })
}

#[test]
fn no_mail_is_left_and_no_sender_sleeps_on_and_the_model_can_tell() {
    for (mail, preemptions) in [(&[2][..], Some(3)), (&[2, 1], Some(2))] {
        for waits in [Waits::AsThreadsDo, Waits::ForTheSignal] {
            let lost = || is_lost(mail, preemptions, waits);
            assert!(!lost(), "{mail:?}, {waits:?}: somebody sleeps for ever");
            WITHOUT_FENCES.set(true);
            assert!(lost(), "{mail:?}, {waits:?}: stores that overtake loads");
            WITHOUT_FENCES.set(false);
        }
    }
}
