//! Links of one connection poll concurrently: no link waits for the thread that holds the device.
//! The test counts posts and completions. They need devices: the virtual machine of `make rxe` runs
//! them.

use crate::verbs_world::Server;
use remora_fabric::conformance::DEADLINE;
use remora_fabric::verbs::{Verb, VerbsLink};
use remora_fabric::{Link, RemoteAddress, Waited, Work};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

/// The number of the mailbox on the client's connection: the one after the arena's.
const MAILBOX: u32 = 1;

/// The thread that holds the device stands still, as it would in a system call. Another thread
/// polls at that time.
#[test]
fn a_poll_does_not_wait_for_the_thread_that_has_the_device() {
    let server = Server::new();
    let (tell, told) = channel();
    let (let_go, goes) = channel();
    let goes = Mutex::new(goes);
    let (session, mut client) = server.session_telling(move |_, _| {
        tell.send(()).unwrap();
        goes.lock().unwrap().recv_timeout(DEADLINE).expect("the poll has ended");
    });
    let mut link = VerbsLink::new(Arc::clone(&session.connection));
    let (address, rkey) = (client.mailbox.address.get(), client.mailbox.rkey.get());
    client.run(Verb::Write(Some(0)), address, rkey, 8);
    std::thread::scope(|scope| {
        scope.spawn(|| session.connection.serve());
        told.recv_timeout(DEADLINE).expect("the immediate has come");
        assert!(link.poll().is_none());
        let_go.send(()).unwrap();
    });
    assert_eq!(session.connection.traffic().immediates, 1);
}

#[test]
fn what_is_posted_together_is_one_post_of_many_pieces() {
    let server = Server::new();
    let (_session, client) = server.session();
    let connection = client.into_connection();
    let mut link = VerbsLink::new(Arc::clone(&connection));
    let before = connection.traffic();
    let writes: Vec<_> = (0..16)
        .map(|id| {
            let to = RemoteAddress { region: MAILBOX, offset: id * 8 };
            Work::Write { id, to, bytes: &[1; 8], imm: None }
        })
        .collect();
    link.post(&writes);
    let mut done = 0;
    while done < writes.len() {
        match link.poll() {
            Some(completion) => {
                assert_eq!(completion.result, Ok(()));
                done += 1;
            }
            None => assert_ne!(link.wait(Some(DEADLINE)), Waited::TimedOut),
        }
    }
    let after = connection.traffic();
    assert_eq!((after.posts - before.posts, after.pieces - before.pieces), (1, 16));
}
