//! No wake-up is lost between a receiver's last scan and its sleep, in any
//! order of steps and with any load as stale as the memory model allows.

use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use remora_models::any_run;
use remora_models::asleep::{must_signal, sleep_unless};
use remora_models::sync::{AtomicU64, Ordering, WITHOUT_FENCES};

/// An eventfd: a signal stays until a sleeper takes it.
#[derive(Default)]
struct Eventfd {
    /// Whether it is signalled, and how many senders will never signal again.
    state: Mutex<(bool, usize)>,
    changed: Condvar,
}

impl Eventfd {
    fn signal(&self) {
        self.state.lock().unwrap().0 = true;
        self.changed.notify_one();
    }

    /// A sender has sent its last frame.
    fn end(&self) {
        self.state.lock().unwrap().1 += 1;
        self.changed.notify_one();
    }

    /// Sleeps until a thread signals; false if none ever will.
    fn wait(&self, senders: usize) -> bool {
        let mut state = self.state.lock().unwrap();
        while !state.0 && state.1 < senders {
            state = self.changed.wait(state).unwrap();
        }
        std::mem::take(&mut state.0)
    }
}

/// What two processes share: the receiver's word, and a ring for each sender,
/// of which only the number of frames matters.
#[derive(Default)]
struct Shared {
    asleep: AtomicU64,
    rings: [AtomicU64; 2],
    eventfd: Eventfd,
}

/// As many senders as `frames` has entries, each of so many frames; one
/// receiver, which sleeps whenever it sees nothing new. Whether in any run it
/// sleeps for ever. Threads are interrupted at most so often, if that is bounded.
fn is_lost(frames: &'static [u64], preemptions: Option<usize>) -> bool {
    any_run(preemptions, move || {
        let shared = Arc::new(Shared::default());
        for (ring, &frames) in frames.iter().enumerate() {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                for frame in 1..=frames {
                    // Relaxed: frames prove themselves.
                    shared.rings[ring].store(frame, Ordering::Relaxed);
                    if must_signal(|| shared.asleep.load(Ordering::Relaxed)) {
                        shared.eventfd.signal();
                    }
                }
                shared.eventfd.end();
            });
        }
        let count = || shared.rings.iter().map(|ring| ring.load(Ordering::Relaxed)).sum::<u64>();
        let mut taken = 0;
        while taken < frames.iter().sum() {
            let sleep = || shared.eventfd.wait(frames.len());
            if sleep_unless(&shared.asleep, || count() > taken, sleep) == Some(false) {
                return true;
            }
            taken = count();
        }
        false
    })
}

#[test]
fn no_wake_up_is_lost_and_the_model_can_tell() {
    for (frames, preemptions) in [(&[1][..], None), (&[2], Some(3)), (&[1, 1], Some(2))] {
        let is_lost = || is_lost(frames, preemptions);
        assert!(!is_lost(), "{frames:?}: the receiver sleeps for ever");
        WITHOUT_FENCES.set(true);
        assert!(is_lost(), "{frames:?}: stores that overtake loads");
        WITHOUT_FENCES.set(false);
    }
}
