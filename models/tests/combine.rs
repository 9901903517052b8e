//! No message that a thread left for the combiner stays where it is, in any order of
//! steps and with any load as stale as the memory model allows.

use loom::sync::{Arc, Mutex, MutexGuard};
use loom::thread;
use remora_layout::plant::{Plant, choose};
use remora_models::any_run;
use remora_models::combine::combine;
use remora_models::sync::{AtomicU64, Ordering, WITHOUT_FENCES};
use std::convert::Infallible;

/// What threads share: messages that were left, of which only the number matters, and
/// the ring, which the combiner has.
#[derive(Default)]
struct Shared {
    left: [AtomicU64; 2],
    ring: Mutex<[u64; 2]>,
    /// A combiner has let another thread look, which waits.
    is_handed_on: AtomicU64,
}

impl Shared {
    fn send(&self, thread: usize, message: u64) {
        self.left[thread].store(message, Ordering::Relaxed);
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
        let hand_on = || self.is_handed_on.store(1, Ordering::Relaxed);
        combine(waits, || self.ring.try_lock().ok(), drain, hand_on).unwrap();
    }
}

/// Two threads send so many messages each.
fn send_both(messages: [u64; 2]) -> Arc<Shared> {
    let shared = Arc::new(Shared::default());
    let other = Arc::clone(&shared);
    let other = thread::spawn(move || {
        (1..=messages[1]).for_each(|message| other.send(1, message));
    });
    (1..=messages[0]).for_each(|message| shared.send(0, message));
    other.join().unwrap();
    shared
}

/// Two threads send so many messages each. Whether in any run one of them is left, and
/// no thread was let look for it.
fn is_lost(messages: [u64; 2], preemptions: Option<usize>) -> bool {
    any_run(preemptions, move || {
        let shared = send_both(messages);
        let is_left = *shared.ring.lock().unwrap() != messages;
        is_left && shared.is_handed_on.load(Ordering::Relaxed) == 0
    })
}

/// The same; whether in any run a thread was let look.
fn is_handed_on(messages: [u64; 2], preemptions: Option<usize>) -> bool {
    any_run(preemptions, move || {
        let shared = send_both(messages);
        shared.is_handed_on.load(Ordering::Relaxed) == 1
    })
}

/// One test: plants are chosen for the whole process.
#[test]
fn nothing_is_left_and_the_model_can_tell() {
    for (messages, preemptions) in [([1, 1], None), ([2, 1], Some(3))] {
        assert!(!is_lost(messages, preemptions), "{messages:?}");
        choose(Some(Plant::CombineOnce));
        assert!(is_lost(messages, preemptions), "{messages:?}: a combiner that looks once");
        choose(None);
        WITHOUT_FENCES.set(true);
        assert!(is_lost(messages, preemptions), "{messages:?}: stores that overtake loads");
        WITHOUT_FENCES.set(false);
    }
    // The bound is reached.
    let (messages, preemptions) = ([2, 1], Some(3));
    assert!(is_handed_on(messages, preemptions));
    choose(Some(Plant::LeaveWithoutLook));
    assert!(is_lost(messages, preemptions), "a combiner that leaves without a last look");
    choose(None);
}
