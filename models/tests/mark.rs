//! No frame stays in the ring of a client over a network because the shard parked the
//! client, or fell asleep, in any order of steps and with any load as stale as the
//! memory model allows.

use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use remora_models::any_run;
use remora_models::asleep::{must_signal, sleep_unless};
use remora_models::mark::{ReadyMark, RungClients};
use remora_models::sync::{AtomicU64, Ordering, WITHOUT_FENCES};

/// The client's place at the shard: not in the first word.
const PLACE: usize = 70;

/// What a receiving thread and a shard share: the client's ring, of which only the
/// number of frames matters, its mark, and the shard's bell.
#[derive(Default)]
struct Shared {
    ring: AtomicU64,
    mark: ReadyMark,
    rung: RungClients,
    asleep: AtomicU64,
    /// Whether it is signalled, and whether it never will be again.
    eventfd: Mutex<(bool, bool)>,
    changed: Condvar,
}

impl Shared {
    fn receive(&self, frame: u64) {
        // Relaxed: frames prove themselves.
        self.ring.store(frame, Ordering::Relaxed);
        self.mark.tell(&self.rung);
        if must_signal(|| self.asleep.load(Ordering::Relaxed)) {
            self.eventfd.lock().unwrap().0 = true;
            self.changed.notify_one();
        }
    }

    /// Nothing comes any more.
    fn end(&self) {
        self.eventfd.lock().unwrap().1 = true;
        self.changed.notify_one();
    }

    /// The shard sleeps until it is signalled; false if it never will be.
    fn wait(&self) -> bool {
        let mut state = self.eventfd.lock().unwrap();
        while !state.0 && !state.1 {
            state = self.changed.wait(state).unwrap();
        }
        std::mem::take(&mut state.0)
    }
}

/// So many frames are received; the shard parks the client and sleeps whenever it
/// sees nothing. Whether in any run it sleeps for ever with a frame in the ring.
fn is_lost(frames: u64, preemptions: Option<usize>) -> bool {
    any_run(preemptions, move || {
        let shared = Arc::new(Shared::default());
        let receiving = Arc::clone(&shared);
        thread::spawn(move || {
            (1..=frames).for_each(|frame| receiving.receive(frame));
            receiving.end();
        });
        let Shared { ring, mark, rung, asleep, .. } = &*shared;
        let (mut seen, mut is_parked) = (0, false);
        loop {
            let mut has_rung = false;
            rung.take(|place| has_rung |= place == PLACE);
            if has_rung && is_parked {
                mark.unpark();
                is_parked = false;
            }
            if !is_parked {
                if mark.take() {
                    seen = ring.load(Ordering::Relaxed);
                }
                if seen == frames {
                    return false;
                }
                is_parked = mark.park(PLACE, || mark.is_set());
                if !is_parked {
                    continue;
                }
            }
            if sleep_unless(asleep, || !rung.is_empty(), || shared.wait()) == Some(false) {
                return true;
            }
        }
    })
}

#[test]
fn no_frame_of_a_parked_client_is_left_and_the_model_can_tell() {
    for (frames, preemptions) in [(1, Some(3)), (2, Some(2))] {
        let lost = || is_lost(frames, preemptions);
        assert!(!lost(), "{frames}: the shard sleeps for ever");
        WITHOUT_FENCES.set(true);
        assert!(lost(), "{frames}: stores that overtake loads");
        WITHOUT_FENCES.set(false);
    }
}
