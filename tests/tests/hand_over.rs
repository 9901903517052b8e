//! The control arm of `shared_connection.rs`: threads that wait are told by a
//! time-out if a wake-up was lost, and it is lost if the thread that slept in
//! the kernel for all leaves without letting another take its place.

use remora_client::{Client, Error, Options, Wake};
use remora_layout::plant::{Plant, choose};
use remora_tests::ServerProcess;
use std::time::Duration;

/// Threads that ask in turn; how many of them ran into the time-out.
fn time_outs(server: &ServerProcess, timeout: Duration, rounds: u32) -> usize {
    let options = Options { wake: Wake::Event, timeout, ..Options::default() };
    let client = Client::connect(&server.socket(), &options).unwrap();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8)
            .map(|thread: u32| {
                let client = &client;
                scope.spawn(move || {
                    let mut session = client.session().unwrap();
                    // Several shards, so that replies do not come all at once.
                    let key = format!("n{thread}");
                    (0..rounds).find_map(|_| session.incr(key.as_bytes(), 1).err())
                })
            })
            .collect();
        let ends = threads.into_iter().filter_map(|thread| thread.join().unwrap());
        ends.filter(|error| *error == Error::TimedOut).count()
    })
}

#[test]
fn a_sleep_that_is_not_handed_over_is_noticed() {
    let server = ServerProcess::start(&["--max-memory=32MiB", "--shards=4", "--wake=event"]);
    choose(Some(Plant::KeepSleepToOneself));
    // Threads that end at once: who stays would take the place of who leaves.
    let planted = (0..500).any(|_| time_outs(&server, Duration::from_millis(300), 2) > 0);
    choose(None);
    assert!(planted, "eight threads and nobody in the kernel for them");
    for _ in 0..100 {
        assert_eq!(time_outs(&server, Duration::from_secs(20), 2), 0);
    }
}
