//! Tasks wait in the middle of their work, and a seed repeats itself.

use remora_fabric::sim::{SimOptions, SimWorld, Tasks};
use remora_sim::tasks::Coroutines;
use std::cell::RefCell;
use std::rc::Rc;

fn run(seed: u64) -> Vec<(u64, u32)> {
    let world = SimWorld::new(SimOptions { seed, ..SimOptions::default() });
    world.run_tasks_by(Coroutines);
    let seen = Rc::new(RefCell::new(Vec::new()));
    let tasks: Vec<u64> = (0..5)
        .map(|number| {
            let (world, seen) = (world.clone(), Rc::clone(&seen));
            let inner = world.clone();
            Coroutines::spawn(&world, move || {
                for _ in 0..20 {
                    let until = inner.now_ns() + inner.draw(|random| random.below(100));
                    let task = Coroutines.current().expect("it runs");
                    while inner.now_ns() < until {
                        inner.suspend_until(task, until);
                    }
                    seen.borrow_mut().push((inner.now_ns(), number));
                }
            })
        })
        .collect();
    while world.step(u64::MAX) {}
    assert!(tasks.iter().all(|&task| !Coroutines::is_alive(task)));
    seen.take()
}

#[test]
fn tasks_take_turns_in_time_and_a_seed_repeats_itself() {
    let first = run(1);
    assert_eq!(first.len(), 100);
    assert!(first.is_sorted_by_key(|(now, _)| *now), "time goes on");
    let changes = first.windows(2).filter(|pair| pair[0].1 != pair[1].1).count();
    assert!(changes > 30, "they take turns: {changes}");
    assert_eq!(first, run(1));
    assert_ne!(first, run(2));
}

#[test]
fn what_suspended_tasks_hold_is_freed() {
    let world = SimWorld::new(SimOptions::default());
    world.run_tasks_by(Coroutines);
    let held = Rc::new(());
    let (inner, holds) = (world.clone(), Rc::clone(&held));
    Coroutines::spawn(&world, move || {
        let _holds = holds;
        inner.suspend_until(Coroutines.current().expect("it runs"), u64::MAX);
        unreachable!("nobody wakes it");
    });
    while world.step(u64::MAX) {}
    assert_eq!(Rc::strong_count(&held), 2);
    Coroutines::forget_all();
    assert_eq!(Rc::strong_count(&held), 1);
}
