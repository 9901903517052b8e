//! What an idle session over shared memory takes, of client and server. Alone in
//! its file, because it measures the memory of its own process.

use remora_client_core::{Options, Path, Session, SetOptions, Wanted};
use remora_tests::proc::anonymous_kib;
use remora_tests::{ServerProcess, in_own_process};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::os::unix::fs::MetadataExt;

/// Bytes of the mailboxes that have been touched, by client or server.
fn mailbox_bytes_touched(pid: u32) -> u64 {
    let descriptors = std::fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let mailboxes = descriptors.filter_map(|entry| {
        let path = entry.unwrap().path();
        let name = std::fs::read_link(&path).ok()?.to_string_lossy().into_owned();
        let is_mailbox = name.contains("remora-to-server") || name.contains("remora-to-client");
        is_mailbox.then(|| std::fs::metadata(&path).unwrap().blocks() * 512)
    });
    mailboxes.sum()
}

#[test]
fn an_idle_session_takes_little_memory() {
    in_own_process(|| {
        const SESSIONS: u64 = 200;
        let limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
        let server = ServerProcess::start(&["--max-memory=64MiB", "--shards=1", "--wake=event"]);
        let own = std::process::id();
        let options = Options { transport: Wanted::Shm, ..remora_tests::by_pointers() };
        let connect = || {
            let mut session = server.session_with(&options);
            for _ in 0..50 {
                session.set(b"k", b"a small value", SetOptions::default()).unwrap();
                assert!(session.get(b"k", Path::Ask).unwrap().value.is_some());
            }
            session
        };
        // What is there once.
        let first = connect();
        let before = (anonymous_kib(server.pid()), anonymous_kib(own));
        let touched = mailbox_bytes_touched(server.pid());
        let sessions: Vec<Session> = (0..SESSIONS).map(|_| connect()).collect();
        let mailboxes = (mailbox_bytes_touched(server.pid()) - touched) / SESSIONS;
        let servers = (anonymous_kib(server.pid()) - before.0) * 1024 / SESSIONS;
        let clients = (anonymous_kib(own) - before.1) * 1024 / SESSIONS;
        println!(
            "a session: {mailboxes} bytes of mailboxes, {servers} of the server, {clients} own"
        );
        drop((first, sessions));
        assert!(mailboxes <= 16 << 10, "{mailboxes} bytes of mailboxes");
        let all = mailboxes + servers + clients;
        assert!(all <= 32 << 10, "{all} bytes for an idle session");
    });
}
