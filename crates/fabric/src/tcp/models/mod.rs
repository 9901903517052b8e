//! Threads that share a connection, in thousands of orders of their steps: no wake-up is lost, no
//! thread sleeps for ever while its completion is there, and the thread that reads the socket for
//! all hands that role on.
//!
//! Links and connections are production's, at both ends; the socket between them is a few lines. A
//! forgotten thread that sleeps without a timeout is a deadlock: the peer sleeps too while it
//! receives no request.

pub(super) mod socket;

use super::*;
use crate::sync::AtomicBool;
use crate::{Link, LinkError, RemoteAddress, Waited, Work};
use remora_arena::{Mapping, Words};
use shuttle::rand::{Rng, thread_rng};
use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, MaxSteps, Runner, thread};
use socket::{SLEEPS, Socket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// What the thread of one link does.
#[derive(Clone, Copy, Debug)]
enum Task {
    /// READs batches of so many words, one after the other: `poll`, and `wait`
    /// if nothing is there.
    Read { batches: u64, words: u64 },
    /// READs single words, without ever sleeping.
    Poll { batches: u64 },
    /// Posts a READ, waits with a timeout, and goes whatever has come.
    GoEarly,
    /// WRITEs a word.
    Write,
    /// Sleeps until the peer has written, which in half of the runs it does only
    /// when all others have gone.
    AwaitArrival,
    /// Sleeps until the connection has ended.
    AwaitEnd,
    /// Breaks the connection.
    Break,
}

use Task::{AwaitArrival, AwaitEnd, Break, GoEarly, Poll, Read, Write};

/// What the peer lets us read, and its words.
const REGION: u32 = 0;
const WORDS: u64 = 16;
/// What either end lets the other write.
const MAILBOX: u32 = 1;

fn post(link: &mut TcpLink, first: u64, words: u64) {
    let batch: Vec<Work<'_>> = (first..first + words)
        .map(|word| Work::Read {
            id: word,
            from: RemoteAddress { region: REGION, offset: word % WORDS * 8 },
            into: (word - first) as usize * 8,
            bytes: 8,
        })
        .collect();
    link.post(&batch);
}

/// What the READs of [`post`] bring, or the connection's failure.
fn complete(link: &mut TcpLink, first: u64, words: u64, sleeps: bool) -> Result<(), LinkError> {
    for word in first..first + words {
        let completion = loop {
            if let Some(completion) = link.poll() {
                break completion;
            }
            if sleeps {
                assert_ne!(link.wait(None), Waited::TimedOut);
            } else {
                thread::yield_now();
            }
        };
        assert_eq!(completion.id, word, "in order");
        completion.result?;
        let landed = link.landed((word - first) as usize * 8, 8);
        assert_eq!(landed, content(word % WORDS).to_le_bytes());
    }
    Ok(())
}

fn content(word: u64) -> u64 {
    word * 0x0101_0101 + 1
}

impl Task {
    fn run(self, connection: &Arc<Connection>, number: u64) -> Result<(), LinkError> {
        let mut link = TcpLink::new(Arc::clone(connection));
        link.reserve_landing(WORDS as usize * 8);
        let (batches, words, sleeps) = match self {
            Read { batches, words } => (batches, words, true),
            Poll { batches } => (batches, 1, false),
            GoEarly => {
                post(&mut link, number, 1);
                let waited = link.wait(Some(Duration::from_millis(1)));
                assert!(matches!(waited, Waited::Completed | Waited::Arrived | Waited::TimedOut));
                return Ok(());
            }
            Write => {
                write(&mut link);
                while link.wait(None) == Waited::Arrived {}
                return link.poll().expect("it is complete").result;
            }
            AwaitArrival => match link.wait(None) {
                Waited::Arrived => return Ok(()),
                Waited::Failed(reason) => return Err(reason),
                other => panic!("{other:?}: it has posted nothing, and has time"),
            },
            AwaitEnd => loop {
                if let Waited::Failed(_) = link.wait(None) {
                    return Ok(());
                }
            },
            Break => {
                connection.close();
                return Ok(());
            }
        };
        for batch in 0..batches {
            let first = number + batch * words;
            post(&mut link, first, words);
            complete(&mut link, first, words, sleeps)?;
        }
        Ok(())
    }

    fn start(self, connection: &Arc<Connection>, number: u64) -> Thread {
        let connection = Arc::clone(connection);
        thread::spawn(move || self.run(&connection, number))
    }
}

type Thread = thread::JoinHandle<Result<(), LinkError>>;

fn write(link: &mut TcpLink) {
    let to = RemoteAddress { region: MAILBOX, offset: 0 };
    link.post(&[Work::Write { id: 0, to, bytes: &[1; 8], imm: None }]);
}

/// The peer's agent: serves until the connection ends. It writes once: at some
/// time, or only when it is told to.
fn serve(peer: &Arc<Connection>, is_told: &AtomicBool) {
    let mut writer = Some(TcpLink::new(Arc::clone(peer)));
    let mut buffer = ReceiveBuffer::default();
    let waits_long = thread_rng().gen_bool(0.5);
    loop {
        let writes_now =
            is_told.load(Ordering::SeqCst) || !waits_long && thread_rng().gen_range(0..4) == 0;
        if let Some(mut writer) = writer.take_if(|_| writes_now) {
            write(&mut writer);
        }
        let progress = peer.serve(&mut buffer, false, &mut |_| {});
        match progress.state {
            State::Idle if writer.is_some() && !waits_long => thread::yield_now(),
            State::Idle => peer.socket.sleep(peer.wants_write(), None),
            State::More => {}
            State::Closed => return,
            State::Failed(reason) => panic!("{reason}"),
        }
    }
}

fn breaks(tasks: &[Task]) -> bool {
    tasks.iter().any(|task| matches!(task, Break))
}

fn share(tasks: &[Task]) {
    let [near, far] = Socket::pair();
    let near = Arc::new(Connection::over(near, Pumping::ByLinks));
    let far = Arc::new(Connection::over(far, Pumping::ByAgent));
    let region = Words::new(Mapping::heap(WORDS as usize * 8));
    for word in 0..WORDS {
        region.store(word as usize, content(word));
    }
    far.expose(REGION, Exposed::Readable(region.view()));
    for end in [&near, &far] {
        end.expose(MAILBOX, Exposed::Writable(Words::new(Mapping::heap(64))));
    }
    let is_told = Arc::new(AtomicBool::new(false));
    let agent = {
        let (far, is_told) = (Arc::clone(&far), Arc::clone(&is_told));
        thread::spawn(move || serve(&far, &is_told))
    };
    let numbered = (0u64..).zip(tasks);
    let (stay, go): (Vec<_>, Vec<_>) = numbered.partition(|(_, task)| matches!(task, AwaitArrival));
    let start = |(number, task): (u64, &Task)| task.start(&near, number);
    let stay: Vec<Thread> = stay.into_iter().map(start).collect();
    let mut go: Vec<Thread> = go.into_iter().map(start).collect();
    // A link whose connection the agent reads.
    if tasks.iter().any(|task| matches!(task, Write)) {
        go.push(AwaitArrival.start(&far, 0));
    }
    let last = AwaitEnd.start(&far, 0);
    let join = |thread: Thread| {
        let ended = thread.join().expect("it ended");
        assert!(
            ended.is_ok() || breaks(tasks) && ended == Err(LinkError::Disconnected),
            "{ended:?}"
        );
    };
    go.into_iter().for_each(join);
    is_told.store(true, Ordering::SeqCst);
    far.socket.kick();
    stay.into_iter().for_each(join);
    LEFT.fetch_add(near.traffic().left as usize, Ordering::Relaxed);
    near.close();
    join(last);
    agent.join().expect("it ended");
}

/// Times that a thread left the rest to the one that had the pump, in all runs.
static LEFT: AtomicUsize = AtomicUsize::new(0);

/// Orders of steps that are tried with each of two schedulers.
const RUNS: usize = 2_000;

fn run(scheduler: impl Scheduler + 'static, tasks: &'static [Task]) {
    let mut config = Config::new();
    config.stack_size = 1 << 18;
    config.max_steps = MaxSteps::FailAfter(200_000);
    Runner::new(scheduler, config).run(|| share(tasks));
}

const ONE: Task = Read { batches: 1, words: 1 };
const TWO: Task = Read { batches: 2, words: 1 };

const CROWDS: [&[Task]; 9] = [
    &[ONE, ONE],
    &[TWO, TWO, TWO],
    &[Read { batches: 1, words: 4 }, Read { batches: 2, words: 3 }],
    &[GoEarly, ONE],
    &[GoEarly, GoEarly, TWO, ONE],
    &[Poll { batches: 2 }, ONE, TWO],
    &[AwaitArrival, AwaitArrival, ONE, Write],
    &[AwaitArrival, TWO, TWO],
    &[Break, AwaitArrival, TWO, TWO],
];

#[test]
fn links_that_share_a_connection_lose_no_wake_up() {
    for tasks in CROWDS {
        run(RandomScheduler::new_from_seed(1, RUNS), tasks);
        run(PctScheduler::new_from_seed(2, 3, RUNS), tasks);
    }
    let sleeps = SLEEPS.load(Ordering::Relaxed);
    assert!(sleeps > CROWDS.len() * RUNS, "they did sleep on the socket: {sleeps}");
    let left = LEFT.load(Ordering::Relaxed);
    assert!(left > RUNS / 10, "no thread sends for the others without end: {left}");
}

/// What a thread has left is sent by the one that has the pump, and not by itself; without
/// such a thread it is not left.
#[test]
fn what_is_left_to_the_thread_that_pumps_is_sent_when_it_lets_go() {
    let once = || {
        let [near, far] = Socket::pair();
        let near = Arc::new(Connection::over(near, Pumping::ByLinks));
        let _far = Connection::over(far, Pumping::ByAgent);
        let mut link = TcpLink::new(Arc::clone(&near));
        link.hold();
        write(&mut link);
        assert!(!near.leave_rest(false), "nobody pumps");
        near.send_left();
        assert_eq!((near.traffic().writes, near.traffic().left), (0, 0));
        let pump = near.inbound.lock().expect("nobody panics");
        assert!(near.leave_rest(false));
        drop(pump);
        assert_eq!((near.traffic().writes, near.traffic().left), (0, 1));
        near.send_left();
        assert_eq!(near.traffic().writes, 1);
        near.send_left();
        assert_eq!(near.traffic().writes, 1, "it was left once");
    };
    Runner::new(RandomScheduler::new_from_seed(1, 1), Config::new()).run(once);
}
