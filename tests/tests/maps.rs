//! What a client can do to the memory that the server shares: read arenas,
//! write its own mailbox and the hints of all, and nothing else. The kernel refuses the rest.

use remora_arena::{MapError, Mapping, ReadView};
use remora_client_core::{Path, Session, SetOptions};
use remora_layout::hello::ServerHello;
use remora_layout::limits::MAX_RING_SETS;
use remora_layout::session::mailbox_bytes;
use remora_protocol::Command;
use remora_tests::proc::{Map, own_maps, target_of};
use remora_tests::{RawSession, ServerProcess, greet, in_own_process, wait_until};
use rustix::fs::{SealFlags, fcntl_add_seals, fcntl_get_seals, fstat, ftruncate};
use rustix::io::Errno;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};

const SHARDS: usize = 2;

fn server() -> ServerProcess {
    ServerProcess::start(&["--shards=2", "--max-memory=16MiB"])
}

fn maps_of(name: &str) -> Vec<Map> {
    own_maps().into_iter().filter(|map| map.path.contains(name)).collect()
}

#[test]
fn a_client_maps_arenas_read_only_and_shared() {
    in_own_process(|| {
        let server = server();
        let mut session: Session = server.session();
        session.set(b"k", b"v", SetOptions::default()).unwrap();
        for _ in 0..10 {
            let got = session.get(b"k", Path::Read).unwrap();
            assert_eq!(got.value, Some(&b"v"[..]));
        }
        assert_ne!(session.server_pid(), std::process::id());
        assert_eq!(session.server_pid(), server.pid());
        // Other tests of this process are clients too: all that it maps counts.
        let arenas = maps_of("/memfd:remora-arena");
        assert!(arenas.len() >= SHARDS, "{arenas:?}");
        let inboxes = maps_of("/memfd:remora-to-client");
        assert!(!inboxes.is_empty());
        for map in arenas.iter().chain(&inboxes) {
            assert_eq!(map.permissions, "r--s", "{map:?}");
            // Without "mw" mprotect cannot make it writable either.
            assert!(!map.flags.iter().any(|flag| flag == "mw"), "{map:?}");
        }
        // The control: the one mailbox that is the client's to write.
        let outboxes = maps_of("/memfd:remora-to-server");
        assert!(!outboxes.is_empty());
        for map in &outboxes {
            assert_eq!(map.permissions, "rw-s", "{map:?}");
            assert!(map.flags.iter().any(|flag| flag == "mw"), "{map:?}");
            assert!(map.flags.iter().any(|flag| flag == "dc"), "kept from children: {map:?}");
        }
        assert!(maps_of("/memfd:remora").iter().all(|map| !map.permissions.contains('x')));
    });
}

/// A session by hand: its socket, hello and descriptors.
fn granted(server: &ServerProcess) -> (UnixStream, ServerHello, Vec<OwnedFd>) {
    let hello = remora_fabric::client_hello(remora_fabric::detect::Wanted::Shm);
    let granted = greet(&server.socket(), &hello).unwrap();
    assert_eq!(granted.1.refusal.get(), 0);
    assert_eq!(granted.2.len(), 4 + 2 * SHARDS);
    granted
}

fn bytes_of(fd: &OwnedFd) -> usize {
    fstat(fd).unwrap().st_size as usize
}

/// Every way to change what `fd` holds is refused.
fn cannot_be_changed(fd: &OwnedFd, name: &str) {
    let bytes = bytes_of(fd);
    assert!(target_of(fd).to_string_lossy().starts_with(&format!("/memfd:{name}")));
    let seals = fcntl_get_seals(fd).unwrap();
    let all = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::FUTURE_WRITE;
    assert!(seals.contains(all), "{name}: {seals:?}");
    match Mapping::of_peer(fd.as_fd(), bytes) {
        Err(MapError::Kernel { source: Errno::PERM | Errno::ACCESS, .. }) => {}
        Err(other) => panic!("{name}: {other}"),
        Ok(_) => panic!("{name} was mapped writable"),
    }
    assert!(ReadView::of_peer(fd.as_fd(), bytes).is_ok());
    for size in [0, bytes as u64 / 2, bytes as u64 * 2] {
        assert_eq!(ftruncate(fd, size), Err(Errno::PERM), "{name} to {size}");
    }
    assert_eq!(rustix::io::pwrite(fd, b"x", 8), Err(Errno::PERM), "{name}");
    // The same file opened anew, which needs no permission of the server.
    let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
    if let Ok(file) = File::options().read(true).write(true).open(&path) {
        let error = file.write_at(b"x", 8).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(Errno::PERM.raw_os_error()), "{name}: {error}");
        assert!(file.set_len(0).is_err());
        assert!(Mapping::of_peer(file.as_fd(), bytes).is_err());
    }
    let truncating = File::options().write(true).truncate(true).open(&path);
    assert!(truncating.is_err(), "{name} was truncated by opening it");
    assert_eq!(bytes_of(fd), bytes);
    assert!(fcntl_add_seals(fd, SealFlags::WRITE).is_err(), "sealed for good");
}

#[test]
fn neither_arenas_nor_the_servers_mailbox_can_be_changed_by_a_client() {
    in_own_process(|| {
        let server = server();
        let (_socket, _, fds) = granted(&server);
        cannot_be_changed(&fds[1], "remora-to-client");
        for shard in 0..SHARDS {
            cannot_be_changed(&fds[3 + 2 * shard], "remora-arena");
        }
        let mut session = server.session();
        assert!(session.set(b"k", b"v", SetOptions::default()).unwrap(), "the server goes on");
    });
}

#[test]
fn a_client_can_write_its_own_mailbox_but_not_resize_it() {
    in_own_process(|| {
        let server = server();
        let (_socket, _, fds) = granted(&server);
        let mailbox = &fds[0];
        assert_eq!(bytes_of(mailbox), MAX_RING_SETS * mailbox_bytes(SHARDS));
        assert!(Mapping::of_peer(mailbox.as_fd(), bytes_of(mailbox)).is_ok());
        for size in [0, 4096, 1 << 30] {
            assert_eq!(ftruncate(mailbox, size), Err(Errno::PERM), "to {size}");
        }
        // Otherwise a client could take the server's mapping away (SIGBUS).
        assert!(fcntl_add_seals(mailbox, SealFlags::WRITE).is_err());
        // The table of shared pointers is everyone's to write, and as fixed.
        let table = fds.last().unwrap();
        assert!(target_of(table).to_string_lossy().contains("remora-pointers"));
        assert!(Mapping::of_peer(table.as_fd(), bytes_of(table)).is_ok());
        for size in [0, 4096, 1 << 30] {
            assert_eq!(ftruncate(table, size), Err(Errno::PERM), "to {size}");
        }
        assert!(fcntl_add_seals(table, SealFlags::WRITE).is_err());
    });
}

#[test]
fn memory_that_is_mapped_read_only_is_not_written_through_proc_either() {
    in_own_process(|| {
        let server = server();
        let mut session = server.session();
        session.set(b"k", b"v", SetOptions::default()).unwrap();
        let text = std::fs::read_to_string("/proc/self/maps").unwrap();
        let line = text.lines().find(|line| line.contains("remora-arena")).unwrap();
        let address = u64::from_str_radix(line.split('-').next().unwrap(), 16).unwrap();
        let memory = File::options().read(true).write(true).open("/proc/self/mem").unwrap();
        let mut word = [0u8; 8];
        memory.read_at(&mut word, address).unwrap();
        assert!(memory.write_at(&word, address).is_err());
    });
}

#[test]
fn a_client_has_no_descriptor_of_another_session() {
    in_own_process(|| {
        let server = server();
        let identity = |fd: &OwnedFd| {
            let stat = fstat(fd).unwrap();
            (stat.st_dev, stat.st_ino)
        };
        let (_one_socket, one_hello, one) = granted(&server);
        let (_other_socket, other_hello, other) = granted(&server);
        assert_ne!(one_hello.session.get(), other_hello.session.get());
        assert_ne!(one_hello.session_seed.get(), other_hello.session_seed.get());
        for fds in [&one, &other] {
            let names: Vec<String> =
                fds.iter().map(|fd| target_of(fd).to_string_lossy().into_owned()).collect();
            let count = |name: &str| names.iter().filter(|found| found.contains(name)).count();
            assert_eq!(count("remora-to-server"), 1, "{names:?}");
            assert_eq!(count("remora-to-client"), 1, "{names:?}");
            assert_eq!(count("remora-large"), 1, "{names:?}");
            assert_eq!(count("remora-arena"), SHARDS, "{names:?}");
            assert_eq!(count("eventfd"), SHARDS, "{names:?}");
            assert_eq!(count("remora-pointers"), 1, "{names:?}");
        }
        // Mailboxes are each session's own; arenas are the same for both.
        for mine in &one[..2] {
            assert!(other.iter().all(|theirs| identity(mine) != identity(theirs)));
        }
        for shard in 0..SHARDS {
            assert_eq!(identity(&one[3 + 2 * shard]), identity(&other[3 + 2 * shard]));
        }
    });
}

/// Each session has mailboxes and a buffer of its own, of pages that nobody has written.
#[test]
fn a_new_session_sees_nothing_of_one_before_it() {
    const MARK: [u8; 16] = *b"another's secret";
    in_own_process(|| {
        let server = server();
        let content = |fd: &OwnedFd| {
            let view = ReadView::of_peer(fd.as_fd(), bytes_of(fd)).unwrap();
            let mut content = vec![0; view.bytes()];
            view.copy_out(0, &mut content);
            content
        };
        let has_mark = |fd: &OwnedFd| content(fd).windows(16).any(|bytes| bytes == MARK);
        for round in 0..3 {
            let mut raw = RawSession::connect(&server.socket());
            let mailbox = raw.to_server().clone();
            for at in (mailbox.bytes() / 2..mailbox.bytes() - 16).step_by(64) {
                mailbox.copy_in(at / 8 * 8, &MARK);
            }
            let set = Command::Append { key: b"k", value: &MARK };
            assert!(raw.send(&set, 1));
            wait_until("it is answered", || raw.receive().is_some());
            assert!(raw.send(&Command::Get { key: b"k" }, 2));
            wait_until("it has the value", || raw.receive().is_some());
            drop((raw, mailbox));
            let (_socket, _, fds) = granted(&server);
            assert!(!fds[..3].iter().any(has_mark), "round {round}");
            assert!(content(&fds[0]).iter().all(|byte| *byte == 0), "its own mailbox");
            // The control: the arenas, which all clients may read, have the value.
            assert!((0..SHARDS).any(|shard| has_mark(&fds[3 + 2 * shard])));
        }
    });
}

/// Each client has eventfds of its own: one that signals them without need, and takes signals away,
/// delays nobody else.
#[test]
fn eventfds_of_a_client_wake_no_other() {
    in_own_process(|| {
        let server = ServerProcess::start(&["--shards=2", "--max-memory=16MiB", "--wake=event"]);
        let mut session = server.session();
        let (_socket, _, fds) = granted(&server);
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !is_over.load(Ordering::Relaxed) {
                    for shard in 0..SHARDS {
                        let bell = &fds[4 + 2 * shard];
                        rustix::io::write(bell, &1u64.to_ne_bytes()).unwrap();
                        // What is there is taken away at once.
                        assert_eq!(rustix::io::read(bell, &mut [0; 8]), Ok(8));
                    }
                }
            });
            for number in 0..2_000u32 {
                let (key, value) = (number.to_le_bytes(), number.to_be_bytes());
                let written = session.set(&key, &value, SetOptions::default());
                let got = session.get(&key, Path::Ask).map(|got| got.value == Some(&value[..]));
                if (written.is_ok(), got) != (true, Ok(true)) {
                    is_over.store(true, Ordering::Relaxed);
                    panic!("{number} is not served");
                }
            }
            is_over.store(true, Ordering::Relaxed);
        });
    });
}
