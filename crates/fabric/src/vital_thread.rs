//! Threads that a server cannot run without: a panic in one of them ends the process.
//!
//! A server that has lost a thread still accepts clients. It answers none of them, or it answers
//! from a half-changed structure. So the process reports on standard error which thread panicked,
//! where and why, and aborts.
//!
//! It does so in the panic hook, before the stack unwinds: a destructor on the stack may wait for
//! another thread. The hook belongs to the whole process. A panic in any other thread goes to the
//! hook that the application had before, and has no other effect than without a server.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::any::Any;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::cell::Cell;
use std::os::fd::AsFd;
use std::panic::{PanicHookInfo, set_hook, take_hook};
use std::sync::Once;
use std::thread::{Builder, JoinHandle, current, panicking};

/// The process waits at most this long for each piece of its message to find room in standard
/// error, which may be a pipe without a reader.
const STDERR_WAIT: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// A pipe that is ready for writing takes this many bytes without blocking
/// (`PIPE_BUF`).
const PIECE_BYTES: usize = 4096;

thread_local! {
    static IS_VITAL: Cell<bool> = const { Cell::new(false) };
}

/// Starts a thread of this name whose panic ends the process.
///
/// # Errors
/// The kernel gives no thread.
pub fn spawn<T: Send + 'static>(
    name: &str,
    body: impl FnOnce() -> T + Send + 'static,
) -> std::io::Result<JoinHandle<T>> {
    extend_hook();
    Builder::new().name(name.into()).spawn(|| {
        IS_VITAL.set(true);
        let _last = LastResort;
        body()
    })
}

/// Waits for the end of a thread that [`spawn`] started.
pub fn join<T>(thread: JoinHandle<T>) -> T {
    thread.join().expect("a panic there ends the process")
}

/// Puts the end of the process before the present hook, once.
fn extend_hook() {
    static EXTENDED: Once = Once::new();
    EXTENDED.call_once(|| {
        let present = take_hook();
        set_hook(Box::new(move |panic| if IS_VITAL.get() { end(panic) } else { present(panic) }));
    });
}

/// Ends the process when the stack has unwound: needed if the application has replaced this
/// module's hook.
struct LastResort;

impl Drop for LastResort {
    fn drop(&mut self) {
        if panicking() {
            end_with(&format!("thread \"{}\" panicked", name()));
        }
    }
}

fn end(panic: &PanicHookInfo<'_>) -> ! {
    let place = panic.location().map_or("an unknown place".into(), ToString::to_string);
    let why = message(panic.payload());
    end_with(&format!("thread \"{}\" panicked at {place}: {why}", name()))
}

fn name() -> String {
    current().name().unwrap_or("unnamed").to_owned()
}

fn message(payload: &dyn Any) -> &str {
    match (payload.downcast_ref::<&str>(), payload.downcast_ref::<String>()) {
        (Some(text), _) => text,
        (_, Some(text)) => text,
        _ => "no message",
    }
}

fn end_with(what: &str) -> ! {
    say(&format!(
        "remora: {what}\nremora: the server cannot go on without this thread: the process ends. \
         Please report this bug.\n"
    ));
    // After the message: it takes a while to find the names.
    let trace = Backtrace::capture();
    if trace.status() == BacktraceStatus::Captured {
        say(&format!("{trace}\n"));
    }
    std::process::abort();
}

/// Writes to standard error without its lock: a logging thread may hold the lock while it waits for
/// a reader that has gone.
fn say(text: &str) {
    let stderr = std::io::stderr();
    for piece in text.as_bytes().chunks(PIECE_BYTES) {
        let mut ready = [PollFd::from_borrowed_fd(stderr.as_fd(), PollFlags::OUT)];
        let is_ready = matches!(poll(&mut ready, Some(&STDERR_WAIT)), Ok(1));
        if !is_ready || rustix::io::write(&stderr, piece).is_err() {
            return;
        }
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
    use std::os::unix::process::ExitStatusExt;
    use std::process::{Child, Command, Output, Stdio};
    use std::time::{Duration, Instant};

    const ROLE: &str = "VITAL_THREAD_TEST_ROLE";
    /// Far more than the end of a process takes on a busy machine.
    const BACKOFF: Duration = Duration::from_secs(60);

    struct NeverDropped;

    impl Drop for NeverDropped {
        fn drop(&mut self) {
            loop {
                std::thread::park();
            }
        }
    }

    /// Waits for the end that the test expects.
    fn wait_for_ever() -> ! {
        loop {
            std::thread::park();
        }
    }

    #[test]
    fn plays_its_part() {
        let Ok(role) = std::env::var(ROLE) else { return };
        let core = getrlimit(Resource::Core);
        setrlimit(Resource::Core, Rlimit { current: Some(0), ..core }).unwrap();
        set_hook(Box::new(|_| eprintln!("the application's hook")));
        match role.as_str() {
            "vital" => {
                let thread = spawn("shard-7", || {
                    let _hangs = NeverDropped;
                    panic!("broken on {}", "purpose");
                });
                let _: Result<(), _> = thread.unwrap().join();
                wait_for_ever();
            }
            "replaced hook" => {
                let (release, released) = std::sync::mpsc::channel::<()>();
                let thread = spawn("shard-7", move || {
                    let _ = released.recv();
                    panic!("broken on purpose");
                });
                set_hook(Box::new(|_| eprintln!("the application's other hook")));
                drop(release);
                let _: Result<(), _> = thread.unwrap().join();
                wait_for_ever();
            }
            "stderr held" => {
                let held = std::io::stderr().lock();
                let thread = spawn("shard-7", || panic!("broken on purpose"));
                let _: Result<(), _> = thread.unwrap().join();
                drop(held);
                wait_for_ever();
            }
            "not vital" => {
                join(spawn("shard-7", || {}).unwrap());
                let own = std::thread::spawn(|| panic!("the application's own"));
                assert!(own.join().is_err());
                eprintln!("alive");
            }
            _ => unreachable!(),
        }
    }

    fn start(role: &str) -> Child {
        Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "vital_thread::tests::plays_its_part", "--nocapture"])
            .env(ROLE, role)
            .env("RUST_BACKTRACE", "0")
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    fn ended(mut child: Child) -> Output {
        let deadline = Instant::now() + BACKOFF;
        while child.try_wait().unwrap().is_none() {
            if Instant::now() > deadline {
                child.kill().unwrap();
                panic!("the process did not end: {:?}", child.wait_with_output());
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        child.wait_with_output().unwrap()
    }

    /// The process aborted. Returns its message.
    fn aborted(child: Child) -> String {
        let output = ended(child);
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.signal(), Some(Signal::ABORT.as_raw()), "{stderr}");
        assert!(stderr.contains("Please report"), "{stderr}");
        stderr
    }

    #[test]
    fn a_panic_ends_the_process_before_the_stack_unwinds() {
        let line = line_of("panic!(\"broken on {}\"");
        let stderr = aborted(start("vital"));
        let place = format!("panicked at {}:{line}:", file!());
        assert!(stderr.contains(&place), "{place} is not in {stderr}");
        assert!(stderr.contains("thread \"shard-7\""), "{stderr}");
        assert!(stderr.contains(": broken on purpose\n"), "{stderr}");
        assert!(!stderr.contains("application"), "{stderr}");
    }

    fn line_of(text: &str) -> usize {
        let lines = include_str!("vital_thread.rs").lines();
        lines.into_iter().position(|line| line.trim_start().starts_with(text)).unwrap() + 1
    }

    #[test]
    fn a_panic_ends_the_process_if_the_hook_was_replaced() {
        let stderr = aborted(start("replaced hook"));
        assert!(stderr.contains("the application's other hook"), "{stderr}");
        assert!(stderr.contains("thread \"shard-7\" panicked\n"), "{stderr}");
    }

    #[test]
    fn a_panic_ends_the_process_although_its_message_finds_no_way_out() {
        let stderr = aborted(start("stderr held"));
        assert!(stderr.contains("thread \"shard-7\" panicked at"), "{stderr}");
        // A full pipe without a reader: the message is lost, and the process still ends.
        let (_unread, full) = std::io::pipe().unwrap();
        let flags = rustix::fs::fcntl_getfl(&full).unwrap();
        rustix::fs::fcntl_setfl(&full, flags | rustix::fs::OFlags::NONBLOCK).unwrap();
        while rustix::io::write(&full, &[b'-'; PIECE_BYTES]).is_ok() {}
        rustix::fs::fcntl_setfl(&full, flags).unwrap();
        let child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "vital_thread::tests::plays_its_part", "--nocapture"])
            .env(ROLE, "vital")
            .stdout(Stdio::null())
            .stderr(full)
            .spawn()
            .unwrap();
        assert_eq!(ended(child).status.signal(), Some(Signal::ABORT.as_raw()));
    }

    #[test]
    fn a_panic_in_a_thread_of_the_application_is_left_to_it() {
        let output = ended(start("not vital"));
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{stderr}");
        assert!(stderr.contains("the application's hook\nalive\n"), "{stderr}");
    }
}
