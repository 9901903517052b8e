//! No message that a thread left for the combiner stays where it is, in any order of
//! steps and with any load as stale as the memory model allows.

use loom::sync::{Arc, Mutex, MutexGuard};
use loom::thread;
use remora_models::any_run;
use remora_models::combine::combine;
use remora_models::sync::{AtomicU64, Ordering, WITHOUT_FENCES, fence};
use std::convert::Infallible;

/// What threads share: messages that were left, of which only the number matters, and
/// the ring, which the combiner has.
#[derive(Default)]
struct Shared {
    left: [AtomicU64; 2],
    ring: Mutex<[u64; 2]>,
    parked: [AtomicU64; 2],
    /// A combiner has woken a parked thread, which takes the role then.
    is_nudged: AtomicU64,
}

impl Shared {
    fn send(&self, thread: usize, message: u64) {
        self.left[thread].store(message, Ordering::Relaxed);
        self.push();
    }

    fn push(&self) {
        let left = || [0, 1].map(|thread| self.left[thread].load(Ordering::Relaxed));
        // What the thread has seen in the ring, it need not look for again.
        let seen = std::cell::Cell::new([0; 2]);
        let drain = |ring: &mut MutexGuard<'_, [u64; 2]>| {
            for (sent, left) in ring.iter_mut().zip(left()) {
                *sent = left.max(*sent);
            }
            seen.set(**ring);
            Ok::<_, Infallible>(true)
        };
        let waits = || left() != seen.get();
        let hand_on = || {
            if self.parked.iter().any(|parked| parked.load(Ordering::Relaxed) == 1) {
                self.is_nudged.store(1, Ordering::Relaxed);
            }
        };
        combine(waits, || self.ring.try_lock().ok(), drain, hand_on).unwrap();
    }

    /// The thread has sent all that it has, and parks.
    fn park(&self, thread: usize, pushes: bool) {
        self.parked[thread].store(1, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if pushes {
            self.push();
        }
    }

    fn run(&self, thread: usize, messages: u64, pushes: bool) {
        (1..=messages).for_each(|message| self.send(thread, message));
        self.park(thread, pushes);
    }
}

/// Two threads send so many messages each, and park; if `pushes`, with a last try to take
/// the role.
fn send_both(messages: [u64; 2], pushes: bool) -> Arc<Shared> {
    let shared = Arc::new(Shared::default());
    let other = Arc::clone(&shared);
    let other = thread::spawn(move || other.run(1, messages[1], pushes));
    shared.run(0, messages[0], pushes);
    other.join().unwrap();
    shared
}

/// Whether in any run a message is left, and no thread was woken for it.
fn is_lost(messages: [u64; 2], preemptions: Option<usize>, pushes: bool) -> bool {
    any_run(preemptions, move || {
        let shared = send_both(messages, pushes);
        let is_left = *shared.ring.lock().unwrap() != messages;
        is_left && shared.is_nudged.load(Ordering::Relaxed) == 0
    })
}

#[test]
fn nothing_is_left_and_the_model_can_tell() {
    let lost = |messages| is_lost(messages, Some(3), true);
    for messages in [[1, 1], [2, 1]] {
        assert!(!lost(messages), "{messages:?}: a message is left");
        assert!(!is_lost(messages, Some(3), false), "{messages:?}: left without a last try");
        WITHOUT_FENCES.set(true);
        assert!(lost(messages), "{messages:?}: stores that overtake loads");
        WITHOUT_FENCES.set(false);
    }
    // As many rounds as a combiner makes.
    assert!(!lost([1, 2]), "a message is left after the last round");
    assert!(is_lost([1, 2], Some(4), false), "a thread that parks without a last try");
    let is_nudged = |shared: Arc<Shared>| shared.is_nudged.load(Ordering::Relaxed) == 1;
    assert!(any_run(Some(3), move || is_nudged(send_both([1, 2], true))));
}
