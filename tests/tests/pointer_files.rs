//! The file through which clients of one machine share pointers when the
//! server is on another one: which client makes it, may use it, removes it.

use remora_client_core::{Client, ConnectError, Options, PointerCacheKind, Wanted};
use remora_layout::limits::POINTER_TABLE_BYTES;
use remora_tests::{Role, ServerProcess, role};
use std::collections::HashSet;
use std::fs::{File, Permissions};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use tempfile::TempDir;

fn server() -> ServerProcess {
    ServerProcess::start(&["--shards=1", "--max-memory=16MiB", "--fabric-address=127.0.0.1:0"])
}

/// A directory for the directory of tables.
fn place() -> (TempDir, PathBuf) {
    let place = tempfile::tempdir_in("/dev/shm").unwrap();
    let directory = place.path().join("remora");
    (place, directory)
}

fn connect_to(socket: &Path, directory: &Path) -> Result<Client, ConnectError> {
    let options = Options {
        transport: Wanted::Tcp,
        pointer_cache: PointerCacheKind::Shared,
        pointer_directory: Some(directory.to_owned()),
        ..remora_tests::by_pointers()
    };
    Client::connect(socket, &options)
}

fn connect(server: &ServerProcess, directory: &Path) -> Result<Client, ConnectError> {
    connect_to(&server.socket(), directory)
}

fn files(directory: &Path) -> HashSet<PathBuf> {
    std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect()
}

fn one_file(directory: &Path) -> PathBuf {
    let files = files(directory);
    assert_eq!(files.len(), 1, "{files:?}");
    files.into_iter().next().unwrap()
}

/// Why connecting fails, and what it names.
fn refusal(server: &ServerProcess, directory: &Path) -> (&'static str, PathBuf) {
    match connect(server, directory).err().expect("it is refused") {
        ConnectError::PointerFile { path, what, .. } => (what, path),
        other => panic!("{other}"),
    }
}

#[test]
fn plays_its_part() {
    let Some((_, arguments)) = role() else { return };
    let _client = connect_to(Path::new(&arguments[0]), Path::new(&arguments[1])).unwrap();
    Role::say("connected");
    Role::wait_for_end();
}

#[test]
fn however_many_come_at_once_one_table_of_the_users_own_is_made() {
    let server = server();
    let (_place, directory) = place();
    let clients: Vec<Client> = std::thread::scope(|scope| {
        let threads: Vec<_> =
            (0..8).map(|_| scope.spawn(|| connect(&server, &directory).unwrap())).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let path = one_file(&directory);
    let status = path.metadata().unwrap();
    assert_eq!(status.mode() & 0o777, 0o600);
    assert_eq!(status.len(), POINTER_TABLE_BYTES as u64);
    assert!(status.blocks() * 512 >= status.len(), "its memory is reserved");
    assert_eq!(directory.metadata().unwrap().mode() & 0o777, 0o700);
    // Every one of them maps this file. (By its number: the client that made it has it
    // without its name.)
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mapped = maps.lines().filter(|line| line.contains(directory.to_str().unwrap()));
    let numbers: Vec<&str> =
        mapped.map(|line| line.split_whitespace().nth(4).unwrap_or_default()).collect();
    assert_eq!(numbers, vec![status.ino().to_string(); clients.len()]);
    // It outlives its users: the next client finds it warm.
    drop(clients);
    let again = connect(&server, &directory).unwrap();
    assert_eq!(one_file(&directory).metadata().unwrap().ino(), status.ino());
    drop(again);
}

#[test]
fn a_file_that_is_not_as_it_should_be_is_refused_and_says_why() {
    let server = server();
    let (_place, directory) = place();
    drop(connect(&server, &directory).unwrap());
    let path = one_file(&directory);
    let expect = |what: &str| assert_eq!(refusal(&server, &directory), (what, path.clone()));

    for mode in [0o640, 0o602, 0o666] {
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        expect("its mode lets other users in");
    }
    std::fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    connect(&server, &directory).unwrap();

    let file = File::options().write(true).open(&path).unwrap();
    for bytes in [0, POINTER_TABLE_BYTES as u64 - 64, POINTER_TABLE_BYTES as u64 + 64] {
        file.set_len(bytes).unwrap();
        expect("it has another size than a table of this release");
    }

    if rustix::process::geteuid().is_root() {
        file.set_len(POINTER_TABLE_BYTES as u64).unwrap();
        chown(&path, Some(12_345), None).unwrap();
        expect("it belongs to another user");
    }
    let elsewhere = directory.join("elsewhere");
    std::fs::rename(&path, &elsewhere).unwrap();
    symlink(&elsewhere, &path).unwrap();
    expect("it is a symbolic link");
    std::fs::remove_file(&path).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &path,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    expect("it is not a regular file");
    std::fs::remove_file(&path).unwrap();

    let held = File::create(&path).unwrap();
    rustix::fs::flock(&held, rustix::fs::FlockOperation::LockExclusive).unwrap();
    expect("another process keeps it locked");
    // Other clients still work.
    assert!(server.session().get(b"k", remora_client_core::Path::Ask).unwrap().value.is_none());
}

#[test]
fn a_directory_that_is_not_the_users_alone_is_refused_and_says_why() {
    let server = server();
    let (place, directory) = place();
    let expect = |directory: &Path, what: &str| {
        assert_eq!(refusal(&server, directory), (what, directory.to_owned()));
    };
    std::fs::DirBuilder::new().mode(0o700).create(&directory).unwrap();
    for mode in [0o750, 0o702, 0o777] {
        std::fs::set_permissions(&directory, Permissions::from_mode(mode)).unwrap();
        expect(&directory, "its mode lets other users in");
    }
    std::fs::set_permissions(&directory, Permissions::from_mode(0o700)).unwrap();
    let link = place.path().join("link");
    symlink(&directory, &link).unwrap();
    expect(&link, "it cannot be opened as a directory");
    expect(&place.path().join("not/there"), "the directory cannot be made");
    if rustix::process::geteuid().is_root() {
        chown(&directory, Some(12_345), None).unwrap();
        expect(&directory, "it belongs to another user");
    } else {
        expect(Path::new("/"), "it belongs to another user");
    }
    assert!(files(&directory).is_empty(), "nothing was left there");
}

#[test]
fn tables_that_nobody_maps_are_removed_by_whoever_makes_another() {
    let (_place, directory) = place();
    let (first, second) = (server(), server());
    let other = directory.join("not-a-table");

    // One incarnation's table with a living process, another's whose process was killed.
    let socket = second.socket();
    let arguments = [socket.to_str().unwrap(), directory.to_str().unwrap()];
    let mut killed = Role::start(module_path!(), "client", &arguments);
    assert_eq!(killed.hear().as_deref(), Some("connected"));
    let of_second = one_file(&directory);
    std::fs::write(&other, "mine").unwrap();
    let client = connect(&first, &directory).unwrap();
    let mut all = files(&directory);
    assert!(all.remove(&of_second), "its process lives");
    assert!(all.remove(&other));
    let of_first = all.into_iter().next().expect("each incarnation has its own");

    killed.kill();
    drop(second);
    let third = server();
    let newest = connect(&third, &directory).unwrap();
    let now = files(&directory);
    assert!(!now.contains(&of_second), "nobody maps it any more");
    assert!(now.contains(&of_first) && now.contains(&other) && now.len() == 3, "{now:?}");

    // A client that only found it keeps it too, and so does a single session.
    let found = connect(&first, &directory).unwrap();
    let session = found.session().unwrap();
    drop((client, found));
    drop(first);
    connect(&server(), &directory).unwrap();
    assert!(files(&directory).contains(&of_first));
    drop((session, newest));
    connect(&server(), &directory).unwrap();
    assert_eq!(files(&directory).len(), 2, "the last one's, and what is not ours");
}

/// Clients that come and go while tables are made and swept away: whoever is
/// connected shares the file that has the name.
#[test]
fn sweeping_never_takes_a_table_from_those_who_use_it() {
    let servers = [server(), server(), server()];
    let (_place, directory) = place();
    std::thread::scope(|scope| {
        for server in &servers {
            for _ in 0..2 {
                scope.spawn(|| {
                    let incarnation = format!("{:016x}", incarnation_of(server));
                    for _ in 0..10 {
                        let one = connect(server, &directory).unwrap();
                        let names = files(&directory);
                        let other = connect(server, &directory).unwrap();
                        drop(one);
                        // What this one maps was there while `one` lived.
                        let is_there = |names: &HashSet<PathBuf>| {
                            names.iter().any(|name| name.to_str().unwrap().contains(&incarnation))
                        };
                        assert!(is_there(&names) && is_there(&files(&directory)));
                        drop(other);
                    }
                });
            }
        }
    });
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    assert!(!maps.contains(directory.to_str().unwrap()), "nothing stays mapped");
}

fn incarnation_of(server: &ServerProcess) -> u64 {
    remora_fabric::shm::connect(&server.socket()).unwrap().hello.incarnation.get()
}
