//! Event mode blocks in the kernel: an idle server costs next to nothing.
//! Alone in its file, because it measures CPU time.

use remora_client::{Options, Path, SetOptions, Wake};
use remora_tests::proc::{Task, tasks};
use remora_tests::{ServerProcess, Value};
use std::time::{Duration, Instant};

const CPU_LIMIT: Duration = Duration::from_millis(20);
const WAKE_LIMIT: u64 = 150;
const WINDOWS: u32 = 3;

/// CPU time of the whole process, and sleeps of all threads but `control`,
/// whose timer is that of the heartbeats.
fn spent(before: &[Task], after: &[Task]) -> (Duration, u64) {
    let mut cpu_ns = 0;
    let mut sleeps = 0;
    for task in after {
        let old = before.iter().find(|old| old.tid == task.tid);
        cpu_ns += task.cpu_ns - old.map_or(0, |old| old.cpu_ns);
        if task.name != "control" {
            sleeps += task.sleeps - old.map_or(0, |old| old.sleeps);
        }
    }
    (Duration::from_nanos(cpu_ns), sleeps)
}

/// What a server with one idle session and one idle connection spends.
fn idle_for(wake: &str, time: Duration) -> (Duration, u64) {
    let server = ServerProcess::start(&["--shards=1", "--max-memory=64MiB", "--wake", wake]);
    let options = Options { wake: Wake::Event, ..remora_tests::by_pointers() };
    let mut session = server.session_with(&options);
    let mut resp = server.resp();
    for round in 0..200u32 {
        let value = round.to_le_bytes();
        session.set(b"k", &value, SetOptions::default()).unwrap();
        assert_eq!(session.get(b"k", Path::Choose).unwrap().value, Some(&value[..]));
        assert_eq!(resp.call("SET other 1"), Value::ok());
    }
    std::thread::sleep(Duration::from_millis(300));
    // A busy neighbour makes each wake-up dearer: the quietest of a few
    // windows tells what the server itself does.
    let mut least: Option<(Duration, u64)> = None;
    for _ in 0..WINDOWS {
        let before = tasks(server.pid());
        assert!(before.iter().any(|task| task.name == "control"), "{before:?}");
        assert!(before.iter().any(|task| task.name == "resp"), "{before:?}");
        std::thread::sleep(time);
        let after = tasks(server.pid());
        // It is awake at once.
        let asked = Instant::now();
        assert!(session.get(b"k", Path::Ask).unwrap().value.is_some());
        assert_eq!(resp.call("GET other"), Value::bulk("1"));
        assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
        let (cpu, sleeps) = spent(&before, &after);
        println!("{wake}: {cpu:?} of CPU, {sleeps} wake-ups in {time:?}");
        for task in &after {
            let old = before.iter().find(|old| old.tid == task.tid).map_or(0, |old| old.cpu_ns);
            println!("  {} {} us", task.name, (task.cpu_ns - old) / 1000);
        }
        least = Some(least.map_or((cpu, sleeps), |least| least.min((cpu, sleeps))));
        if cpu < CPU_LIMIT {
            break;
        }
    }
    least.expect("there was a window")
}

#[test]
fn event_mode_sleeps_and_poll_mode_does_not() {
    let (cpu, wakes) = idle_for("event", Duration::from_secs(5));
    assert!(cpu < CPU_LIMIT, "{cpu:?}");
    assert!(wakes < WAKE_LIMIT, "{wakes} wake-ups");
    // The measurement notices a server that does not sleep.
    let (cpu, _) = idle_for("poll", Duration::from_secs(1));
    assert!(cpu > CPU_LIMIT * 5, "{cpu:?}");
}
