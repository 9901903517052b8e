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
        combine(waits, || self.ring.try_lock().ok(), drain).unwrap();
    }
}

/// Two threads send so many messages each. Whether in any run one of them is left.
fn is_lost(messages: [u64; 2], preemptions: Option<usize>) -> bool {
    any_run(preemptions, move || {
        let shared = Arc::new(Shared::default());
        let other = Arc::clone(&shared);
        let other = thread::spawn(move || {
            (1..=messages[1]).for_each(|message| other.send(1, message));
        });
        (1..=messages[0]).for_each(|message| shared.send(0, message));
        other.join().unwrap();
        *shared.ring.lock().unwrap() != messages
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
}
