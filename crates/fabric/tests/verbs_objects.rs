//! Sessions, incomplete connects and clients that lie leave no verbs objects behind. A forked child
//! releases none of its parent's. They need devices: the virtual machine of `make rxe` runs them.

use crate::verbs_world::{MAILBOX_BYTES, Server, bare, control, devices, heard, in_child, side};
use remora_arena::{Mapping, Words};
use remora_fabric::conformance::DEADLINE;
use remora_fabric::verbs::{
    Parts, Registration, Unconnected, VerbsLink, access, bind_window, open,
};
use remora_fabric::{Link, RemoteAddress, Work};
use remora_layout::verbs::{RegionKey, VerbsEnd};
use remora_verbs_sys::IBV_WC_SUCCESS;
use std::process::Command;
use std::sync::Arc;

/// How many objects of each kind the devices have.
fn objects() -> String {
    let shown = Command::new("rdma").args(["resource", "show"]).output().unwrap();
    assert!(shown.status.success());
    String::from_utf8(shown.stdout).unwrap()
}

#[test]
fn sessions_leave_nothing() {
    let before = objects();
    {
        let server = Server::new();
        for _ in 0..10 {
            let (session, raw) = server.session();
            let link = VerbsLink::new(raw.into_connection());
            assert_ne!(objects(), before, "the control");
            drop((session, link));
        }
    }
    assert_eq!(objects(), before);
}

#[test]
fn parts_that_become_no_connection_leave_nothing() {
    let before = objects();
    {
        let (domain, pair, mut client, far_control) = bare();
        let mailbox = Words::new(Mapping::heap(MAILBOX_BYTES));
        let memory = Registration::of(&domain, &mailbox, access::BY_WINDOW).unwrap();
        let window = bind_window(&domain, &pair, &memory).unwrap();
        assert_eq!(client.write(memory.address(), window.rkey, 5), IBV_WC_SUCCESS);
        drop(Parts {
            windows: vec![window],
            pair,
            domain,
            control: far_control,
            peer: Vec::new(),
            shards: 1,
            exposed: vec![memory],
            on_immediate: Box::new(|_| {}),
        });
    }
    assert_eq!(objects(), before);
}

#[test]
fn a_client_that_lies_gets_an_error_or_a_session_that_fails() {
    let before = objects();
    {
        let server = Server::new();
        let (domain, place) = open(None, &devices().1).unwrap();
        // A key that is not the client's.
        let (address, bytes) = (4096.into(), (1 << 20).into());
        let nobodys = RegionKey { address, bytes, rkey: 1.into(), reserved: 0.into() };
        let lies: [fn(&mut VerbsEnd, &mut RegionKey); 8] = [
            |end, _| end.qp_number = u32::MAX.into(),
            |end, _| end.qp_number = 0.into(),
            |end, _| end.gid = [0; 16],
            |end, _| end.gid = [0xff; 16],
            |end, _| (end.psn, end.lid) = (u32::MAX.into(), u16::MAX.into()),
            |end, _| (end.mtu, end.read_depth) = (0, 0),
            |end, _| (end.mtu, end.read_depth) = (255, 255),
            |_, key| {
                key.address = (u64::MAX - 64).into();
                key.bytes = u64::MAX.into();
            },
        ];
        for (number, lie) in lies.into_iter().enumerate() {
            let welcome = server.welcome();
            let unconnected = Unconnected::new(&domain, &place).unwrap();
            let (mut end, mut key) = (unconnected.end(), nobodys);
            lie(&mut end, &mut key);
            let _pair = unconnected.connect(&heard(&welcome).0).unwrap();
            let mailbox = Words::new(Mapping::heap(MAILBOX_BYTES));
            let (_near, far) = control();
            let side = side(&end, key);
            let accepted = welcome.accept(far, &side, &mailbox, Box::new(|_| {}));
            let Ok((connection, _)) = accepted else {
                println!("lie {number}: refused");
                continue;
            };
            let mut link = VerbsLink::new(Arc::clone(&connection));
            let to = RemoteAddress { region: 0, offset: 4096 };
            link.post(&[Work::Write { id: 1, to, bytes: &[1; 8], imm: None }]);
            // There is no answer, or the client's device refuses, or the address does not exist.
            // The connect never hangs.
            let ended = link.wait(Some(DEADLINE));
            let result = link.poll().map(|done| done.result);
            println!("lie {number}: {result:?}");
            assert!(matches!(result, Some(Err(_))), "lie {number}: {ended:?} {result:?}");
        }
        // The control: the server still serves.
        let (_session, mut client) = server.session();
        let arena = client.arena;
        assert_eq!(client.read(arena.address.get() + 16, arena.rkey.get()), Ok(2));
    }
    assert_eq!(objects(), before);
}

/// A child has copies of all handles, and drops them at its end.
#[test]
fn a_forked_child_releases_nothing_of_its_parents() {
    let server = Server::new();
    let (session, mut client) = server.session();
    let (arena, mailbox) = (client.arena, client.mailbox);
    assert_eq!(client.read(arena.address.get() + 16, arena.rkey.get()), Ok(2));
    let before = objects();
    let mut all = Some((server, session, client));
    in_child(|| drop(all.take()));
    let (_server, session, mut client) = all.expect("the child's copy is gone, not ours");
    assert_eq!(objects(), before);
    assert_eq!(client.read(arena.address.get() + 24, arena.rkey.get()), Ok(3));
    let written = client.write(mailbox.address.get(), mailbox.rkey.get(), 9);
    assert_eq!((written, session.mailbox.load_acquire(0)), (IBV_WC_SUCCESS, 9));
}
