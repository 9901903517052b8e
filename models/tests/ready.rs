//! No frame stays in a ring because its ready bit was taken too early, or because
//! the shard parked its client, in any order of steps and with any load as stale as
//! the memory model allows.

use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use remora_models::any_run;
use remora_models::ready::{park, take, tell, unpark};
use remora_models::sync::{AtomicU64, Ordering, WITHOUT_FENCES};

/// What a client process and a shard share: ready bits, the word that says that
/// the shard does not look, a ring for each thread, of which only the number of
/// frames matters, and an eventfd.
#[derive(Default)]
struct Shared {
    ready: AtomicU64,
    parked: AtomicU64,
    rings: [AtomicU64; 2],
    /// Whether it is signalled, and how many threads will never signal again.
    eventfd: Mutex<(bool, usize)>,
    changed: Condvar,
}

impl Shared {
    fn send(&self, set: usize, frame: u64, bit_first: bool) {
        // Relaxed: frames prove themselves.
        let store = || self.rings[set].store(frame, Ordering::Relaxed);
        let tell = || tell(&self.ready, set as u32, || self.parked.load(Ordering::Relaxed));
        let must_signal = if bit_first {
            let must_signal = tell();
            store();
            must_signal
        } else {
            store();
            tell()
        };
        if must_signal {
            self.eventfd.lock().unwrap().0 = true;
            self.changed.notify_one();
        }
    }

    /// A thread has sent its last frame.
    fn end(&self) {
        self.eventfd.lock().unwrap().1 += 1;
        self.changed.notify_one();
    }

    /// The shard waits for a doorbell; false if it never rings again.
    fn wait(&self, threads: usize) -> bool {
        let mut state = self.eventfd.lock().unwrap();
        while !state.0 && state.1 < threads {
            state = self.changed.wait(state).unwrap();
        }
        std::mem::take(&mut state.0)
    }
}

/// As many threads as `frames` has entries send so many frames each; the shard
/// parks their process whenever it sees nothing. Whether in any run it waits for
/// ever with a frame in a ring.
fn is_lost(frames: &'static [u64], preemptions: Option<usize>, bit_first: bool) -> bool {
    any_run(preemptions, move || {
        let shared = Arc::new(Shared::default());
        for (set, &frames) in frames.iter().enumerate() {
            let shared = Arc::clone(&shared);
            thread::spawn(move || {
                (1..=frames).for_each(|frame| shared.send(set, frame, bit_first));
                shared.end();
            });
        }
        let mut seen = [0; 2];
        loop {
            let bits = take(&shared.ready);
            for set in (0..frames.len()).filter(|set| bits & 1 << set != 0) {
                seen[set] = shared.rings[set].load(Ordering::Relaxed);
            }
            if seen.iter().sum::<u64>() == frames.iter().sum() {
                return false;
            }
            if park(&shared.parked, 1, || shared.ready.load(Ordering::Relaxed) != 0) {
                if !shared.wait(frames.len()) {
                    return true;
                }
                unpark(&shared.parked);
            }
        }
    })
}

#[test]
fn no_frame_is_left_in_a_ring_and_the_model_can_tell() {
    for (frames, preemptions) in [(&[1][..], None), (&[2], Some(3)), (&[1, 1], Some(2))] {
        let lost = || is_lost(frames, preemptions, false);
        assert!(!lost(), "{frames:?}: the shard sleeps for ever");
        WITHOUT_FENCES.set(true);
        assert!(lost(), "{frames:?}: stores that overtake loads");
        WITHOUT_FENCES.set(false);
        assert!(is_lost(frames, preemptions, true), "{frames:?}: a bit before its frame");
    }
}
