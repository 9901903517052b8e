//! Links that poll and links that sleep share a device, in thousands of orders of their
//! steps. Intake, waiting and the pump are production's; the device and its completion
//! channel are a few lines.

use super::super::peer::Remote;
use super::super::posting::{Piece, Posting};
use super::*;
use crate::sync::{AtomicUsize, Condvar, MutexGuard, Ordering};
use crate::waiting::{Handle, Turns, Waiters, wait};
use shuttle::thread;
use std::collections::VecDeque;
use std::panic::catch_unwind;
use std::sync::Arc;
use std::time::Duration;

/// Pieces that may be under way.
const DEPTH: usize = 2;
/// Completions taken at a time.
const BATCH: usize = 1;
/// WRITEs of each link.
const WRITES: usize = 2;
/// Rounds of a check: more than the pieces of four links can cause. A round goes on for a
/// completion, for a post, and once for what waits.
const ROUNDS: usize = 2 * 4 * WRITES + 2;

/// A device, its completion queue and the channel.
#[derive(Default)]
struct Nic {
    state: Mutex<NicState>,
    changed: Condvar,
}

#[derive(Default)]
struct NicState {
    posted: VecDeque<Piece>,
    completed: VecDeque<Piece>,
    is_armed: bool,
    is_signalled: bool,
}

impl Nic {
    fn state(&self) -> MutexGuard<'_, NicState> {
        lock(&self.state)
    }

    fn wait_until(&self, mut comes: impl FnMut(&mut NicState) -> bool) -> MutexGuard<'_, NicState> {
        self.changed.wait_while(self.state(), |state| !comes(state)).unwrap()
    }

    /// Executes so many pieces, in their order.
    fn execute(&self, pieces: usize) {
        for _ in 0..pieces {
            let mut state = self.wait_until(|state| !state.posted.is_empty());
            let piece = state.posted.pop_front().expect("it was waited for");
            state.completed.push_back(piece);
            state.is_signalled |= std::mem::take(&mut state.is_armed);
            self.changed.notify_all();
        }
    }
}

/// As `Connection`: what its methods of the same names do.
struct Shared {
    nic: Nic,
    /// What waits for the device to have room, and pieces under way.
    device: Mutex<Option<(VecDeque<Piece>, usize)>>,
    intake: Intake,
    leads: Mutex<()>,
    waiters: Waiters,
    /// Links that have not completed everything.
    writers: AtomicUsize,
    /// What a driver does that finds the device taken: it waits, but in the control arm.
    driver: IfTaken,
}

impl Shared {
    fn new(driver: IfTaken, writers: usize) -> Arc<Self> {
        Arc::new(Self {
            nic: Nic::default(),
            device: Mutex::new(Some(Default::default())),
            intake: Intake::default(),
            leads: Mutex::new(()),
            waiters: Waiters::default(),
            writers: AtomicUsize::new(writers),
            driver,
        })
    }

    /// Hands to the device what it has room for. Whether something waits.
    fn post_waiting(&self, (waiting, under_way): &mut (VecDeque<Piece>, usize)) -> bool {
        self.intake.take_into(waiting);
        while *under_way < DEPTH
            && let Some(piece) = waiting.pop_front()
        {
            *under_way += 1;
            self.nic.state().posted.push_back(piece);
            self.nic.changed.notify_all();
        }
        !waiting.is_empty()
    }

    fn look(&self, if_taken: IfTaken) {
        let pumped = pump(&self.device, &self.intake, if_taken, ROUNDS, |device, may_arm| {
            let mut count = 0;
            while count < BATCH
                && let Some(piece) = { self.nic.state().completed.pop_front() }
            {
                count += 1;
                device.1 -= 1;
                self.intake.completed(1);
                piece.handle.deliver(&[], 1);
            }
            let waits = self.post_waiting(device);
            if waits && may_arm {
                self.nic.state().is_armed = true;
            }
            // Others post while the device is still taken.
            thread::yield_now();
            Taken { is_full: count == BATCH, waits, failed: None }
        });
        assert_eq!(pumped, Pumped::Done, "a check has rounds for all pieces");
    }

    fn flush(&self) {
        let mut waits = false;
        self.intake.drive(&self.device, |device| {
            waits = self.post_waiting(device.as_mut().expect("it does not end"));
            if waits {
                self.nic.state().is_armed = true;
            }
            !waits
        });
        if waits {
            self.look(IfTaken::Wait);
        }
    }
}

impl Turns for Shared {
    fn lead(&self, timeout: Option<Duration>, mut came: impl FnMut() -> bool) -> bool {
        let Some(_leads) = try_lock(&self.leads) else { return false };
        self.nic.state().is_signalled = false;
        {
            let _device = lock(&self.device);
            self.nic.state().is_armed = true;
        }
        self.look(self.driver);
        if !came() {
            // Some time, or none.
            drop(self.nic.wait_until(|state| state.is_signalled || timeout.is_some()));
            self.look(self.driver);
        }
        true
    }

    fn waiters(&self) -> &Waiters {
        &self.waiters
    }
}

/// How a link waits for its completions.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Link {
    /// It polls.
    Polls,
    /// It polls once, and sleeps.
    PollsAndSleeps,
    /// It sleeps at once.
    Sleeps,
    /// It posts nothing, and sleeps until something comes from the peer: once the others
    /// have completed everything.
    Awaits,
}

use Link::{Awaits, Polls, PollsAndSleeps, Sleeps};

/// A link posts two WRITEs, one after the other, and completes each.
fn run_link(shared: &Shared, link: Link) {
    let (handle, mut posting) = (Arc::new(Handle::default()), Posting::default());
    if link == Awaits {
        let look = || (shared.writers.load(Ordering::SeqCst) == 0).then_some(());
        return wait(shared, &handle, None, look).expect("it has time");
    }
    for _ in 0..WRITES {
        posting.write(&handle, Remote { address: 0, rkey: 1, bytes: 8 }, &[1; 8], None);
        shared.intake.post(&mut posting);
        shared.flush();
        let look = || (handle.take(&mut Vec::new()).0 > 0).then_some(());
        loop {
            if link != Sleeps {
                shared.look(IfTaken::Leave);
                if look().is_some() {
                    break;
                }
            }
            if link != Polls {
                wait(shared, &handle, None, look).expect("it has time");
                break;
            }
            thread::yield_now();
        }
    }
    if shared.writers.fetch_sub(1, Ordering::SeqCst) == 1 {
        shared.nic.state().is_signalled = true;
        shared.nic.changed.notify_all();
        shared.waiters.wake_all();
    }
}

fn links_share_a_device(driver: IfTaken, links: &[Link]) {
    let writers = links.iter().filter(|link| **link != Awaits).count();
    let shared = Shared::new(driver, writers);
    let (nic, pieces) = (Arc::clone(&shared), writers * WRITES);
    let mut threads = vec![thread::spawn(move || nic.nic.execute(pieces))];
    for &link in links {
        let shared = Arc::clone(&shared);
        threads.push(thread::spawn(move || run_link(&shared, link)));
    }
    threads.into_iter().for_each(|thread| thread.join().expect("it ended"));
}

#[test]
fn no_completion_and_no_wake_up_is_lost_among_links_that_poll_and_links_that_sleep() {
    for links in [
        &[PollsAndSleeps, Polls][..],
        &[Awaits, Sleeps],
        &[Awaits, Sleeps, Polls],
        &[Sleeps, PollsAndSleeps, Polls],
        &[PollsAndSleeps, PollsAndSleeps, Polls, Polls],
    ] {
        let share = move || links_share_a_device(IfTaken::Wait, links);
        shuttle::check_random(share, 2_000);
        shuttle::check_pct(share, 2_000, 3);
    }
}

/// The control arm: why a thread that has armed the queue waits.
#[test]
fn a_driver_that_leaves_while_the_device_is_taken_is_found() {
    let share = || links_share_a_device(IfTaken::Leave, &[PollsAndSleeps, Polls]);
    assert!(catch_unwind(|| shuttle::check_random(share, 10_000)).is_err(), "no wake-up was lost");
}

#[test]
fn who_polls_does_not_wait_for_the_thread_that_has_the_device() {
    let polls = || {
        let shared = Shared::new(IfTaken::Wait, 0);
        let _taken = lock(&shared.device);
        // To wait for oneself would be a deadlock.
        shared.look(IfTaken::Leave);
    };
    shuttle::check_random(polls, 1);
}
