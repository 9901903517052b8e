//! Code that waits in the middle of its work, in one thread: coroutines.
//!
//! A client's library waits for replies and READs where it needs them. In a world it runs unchanged
//! on a stack of its own; when it waits, another task or the next event continues. The world alone
//! chooses which one.
//!
//! This is the crate's one file of `unsafe`: a coroutine reaches its own
//! yielder through a thread-local pointer.

use corosensei::{Coroutine, CoroutineResult, Yielder};
use remora_fabric::sim::{SimWorld, Tasks};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

type Stack = Coroutine<(), (), ()>;

thread_local! {
    /// Tasks that are suspended.
    static SUSPENDED: RefCell<BTreeMap<u64, Stack>> = const { RefCell::new(BTreeMap::new()) };
    /// The task that runs, and how it is suspended.
    static RUNNING: Cell<Option<(u64, *const Yielder<(), ()>)>> = const { Cell::new(None) };
    /// Stopped tasks, and whether each would be woken by now.
    static STOPPED: RefCell<BTreeMap<u64, bool>> = const { RefCell::new(BTreeMap::new()) };
    /// Tasks that were ever begun: a number is never used again.
    static BEGUN: Cell<u64> = const { Cell::new(0) };
}

/// Runs the tasks of the worlds of this thread.
#[derive(Clone, Copy, Default, Debug)]
pub struct Coroutines;

impl Coroutines {
    /// Begins a task, as the world's next event.
    pub fn spawn(world: &SimWorld, body: impl FnOnce() + 'static) -> u64 {
        let task = BEGUN.replace(BEGUN.get() + 1);
        let stack = Stack::new(move |yielder, ()| {
            RUNNING.set(Some((task, std::ptr::from_ref(yielder))));
            body();
        });
        SUSPENDED.with_borrow_mut(|tasks| tasks.insert(task, stack));
        world.schedule(0, move || Self.resume(task));
        task
    }

    /// Stops a task wherever it waits, as by SIGSTOP: wake-ups have no effect before
    /// [`Coroutines::go_on`]. Not from within the task.
    pub fn stop(task: u64) {
        assert!(RUNNING.get().is_none_or(|(running, _)| running != task), "it waits somewhere");
        STOPPED.with_borrow_mut(|stopped| _ = stopped.entry(task).or_insert(false));
    }

    /// Continues a stopped task, at once if it was woken meanwhile. As an event.
    pub fn go_on(task: u64) {
        if STOPPED.with_borrow_mut(|stopped| stopped.remove(&task)) == Some(true) {
            Self.resume(task);
        }
    }

    /// Whether a task has not come to its end.
    pub fn is_alive(task: u64) -> bool {
        SUSPENDED.with_borrow(|tasks| tasks.contains_key(&task))
            || RUNNING.get().is_some_and(|(running, _)| running == task)
    }

    /// Forgets all suspended tasks, and frees their memory.
    pub fn forget_all() {
        assert!(RUNNING.get().is_none(), "a task does not end the world it runs in");
        STOPPED.take();
        let tasks = SUSPENDED.take();
        // In the order of their numbers: dropping a task may have effects.
        for (task, stack) in tasks {
            // Unwinding runs the destructors on the task's own stack, which must not suspend from
            // now on.
            drop((task, stack));
        }
    }
}

impl Coroutines {
    /// Leaves all tasks where they are, after one of them has panicked: their memory is never
    /// freed.
    pub fn abandon_all() {
        RUNNING.set(None);
        STOPPED.take();
        std::mem::forget(SUSPENDED.take());
    }
}

impl Tasks for Coroutines {
    fn current(&self) -> Option<u64> {
        RUNNING.get().map(|(task, _)| task)
    }

    fn suspend(&self) {
        let running = RUNNING.take().expect("a task runs");
        // SAFETY: the yielder lives on the stack of the coroutine whose body
        // runs now, below this very frame; it is not moved nor freed before
        // the body returns.
        unsafe { &*running.1 }.suspend(());
        RUNNING.set(Some(running));
    }

    fn resume(&self, task: u64) {
        assert!(RUNNING.get().is_none(), "tasks are resumed by events, not by tasks");
        let is_stopped = STOPPED.with_borrow_mut(|stopped| {
            stopped.get_mut(&task).map(|is_woken| *is_woken = true).is_some()
        });
        if is_stopped {
            return;
        }
        // It may have ended, or been woken twice and be at something else.
        let Some(mut stack) = SUSPENDED.with_borrow_mut(|tasks| tasks.remove(&task)) else {
            return;
        };
        if let CoroutineResult::Yield(()) = stack.resume(()) {
            SUSPENDED.with_borrow_mut(|tasks| tasks.insert(task, stack));
        }
        RUNNING.set(None);
    }
}
