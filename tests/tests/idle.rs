//! Event mode blocks in the kernel: an idle server costs next to nothing.
//! Alone in its file, because it measures CPU time.

use remora_client_core::{Options, Path, Session, SetOptions, Wake};
use remora_layout::limits::HEARTBEAT_MS;
use remora_tests::proc::{Task, tasks};
use remora_tests::{Resp, ServerProcess, Value, wait_until};
use std::time::{Duration, Instant};

/// How long an idle server is watched.
const WINDOW: Duration = Duration::from_secs(5);
/// Times that its threads may wake meanwhile, all but `control`.
const MOST_WAKE_UPS: u64 = 150;
/// CPU time that it may take meanwhile: far more than it does, since a busy
/// machine makes each wake-up dearer, and far less than one thread that polls.
const MOST_CPU: Duration = Duration::from_millis(500);

/// A server with one idle session and one idle connection.
struct Fixture {
    server: ServerProcess,
    session: Session,
    resp: Resp,
}

impl Fixture {
    fn new(wake: &str) -> Self {
        let server = ServerProcess::start(&["--shards=1", "--max-memory=64MiB", "--wake", wake]);
        let options = Options { wake: Wake::Event, ..remora_tests::by_pointers() };
        let (mut session, mut resp) = (server.session_with(&options), server.resp());
        for round in 0..200u32 {
            let value = round.to_le_bytes();
            session.set(b"k", &value, SetOptions::default()).unwrap();
            assert_eq!(session.get(b"k", Path::Choose).unwrap().value, Some(&value[..]));
            assert_eq!(resp.call("SET other 1"), Value::ok());
        }
        Self { server, session, resp }
    }

    fn tasks(&self) -> Vec<Task> {
        tasks(self.server.pid())
    }

    /// The shard's thread.
    fn shard(&self) -> Task {
        self.tasks().into_iter().find(|task| task.name == "shard-0").expect("there is one")
    }

    /// A thread that polls never does so.
    fn wait_until_all_sleep(&self) {
        wait_until("all threads of the server sleep", || {
            self.tasks().iter().all(|task| task.is_asleep)
        });
    }

    fn is_awake(&mut self) {
        assert!(self.session.get(b"k", Path::Ask).unwrap().value.is_some());
        assert_eq!(self.resp.call("GET other"), Value::bulk("1"));
    }
}

#[test]
fn event_mode_sleeps() {
    let mut fixture = Fixture::new("event");
    fixture.wait_until_all_sleep();
    let (began, before) = (Instant::now(), fixture.tasks());
    assert!(
        ["control", "acceptor"].iter().all(|name| before.iter().any(|task| task.name == *name))
    );
    std::thread::sleep(WINDOW);
    let (after, watched) = (fixture.tasks(), began.elapsed());
    let (mut cpu_ns, mut wake_ups, mut heartbeats) = (0, 0, 0);
    for task in &after {
        let old = before.iter().find(|old| old.tid == task.tid);
        let (old_cpu_ns, old_sleeps) = old.map_or((0, 0), |old| (old.cpu_ns, old.sleeps));
        let sleeps = task.sleeps - old_sleeps;
        cpu_ns += task.cpu_ns - old_cpu_ns;
        // Its timer is that of the heartbeats.
        *if task.name == "control" { &mut heartbeats } else { &mut wake_ups } += sleeps;
    }
    let cpu = Duration::from_nanos(cpu_ns);
    println!("{cpu:?} of CPU, {wake_ups} wake-ups, {heartbeats} for heartbeats in {watched:?}");
    assert!(wake_ups < MOST_WAKE_UPS, "{wake_ups} wake-ups");
    let most = watched.as_millis() / u128::from(HEARTBEAT_MS) + 10;
    assert!(u128::from(heartbeats) < most, "{heartbeats} wake-ups for heartbeats");
    assert!(cpu < MOST_CPU, "{cpu:?}");
    fixture.is_awake();
    fixture.wait_until_all_sleep();
}

/// The measurement notices a server that does not sleep.
#[test]
fn poll_mode_does_not() {
    let mut fixture = Fixture::new("poll");
    let before = fixture.shard();
    wait_until("the shard has polled for a while", || {
        let now = fixture.shard();
        assert!(!now.is_asleep && now.sleeps == before.sleeps, "{before:?}, {now:?}");
        now.cpu_ns > before.cpu_ns + MOST_CPU.as_nanos() as u64
    });
    fixture.is_awake();
}
