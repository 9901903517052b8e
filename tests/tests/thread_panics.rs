//! A panic in any thread of a server ends its process at once.
//!
//! Each test starts a whole server in another process. One thread of that
//! server panics when it logs something, because the log's writer panics in
//! the thread that the test names; a client makes the thread log.

use remora_client_core::{Options, Session};
use remora_fabric::client_hello;
use remora_fabric::detect::Wanted;
use remora_layout::frame::first_word;
use remora_layout::session::ring_offset;
use remora_server::{Config, Server};
use remora_tests::{RawSession, Role, own_config, role};
use rustix::process::{Resource, Rlimit, Signal, getrlimit, setrlimit};
use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use zerocopy::IntoBytes;

/// The test's server has no more open files than this after its start: the
/// next client finds none left.
const NO_MORE_FILES: u64 = 4;

fn local(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

fn lower(resource: Resource, current: u64) {
    let maximum = getrlimit(resource).maximum;
    setrlimit(resource, Rlimit { current: Some(current), maximum }).unwrap();
}

#[test]
fn plays_its_part() {
    let Some((thread, arguments)) = role() else { return };
    // The end of this process shall not leave a core file.
    lower(Resource::Core, 0);
    tracing_subscriber::fmt()
        .with_writer(move || {
            assert_ne!(std::thread::current().name(), Some(thread.as_str()), "the test's panic");
            std::io::sink()
        })
        .init();
    let config = own_config(Path::new(&arguments[0]));
    let server = Server::start(Config { fabric_address: Some(local(0)), ..config }).unwrap();
    Role::say(&server.resp_address().to_string());
    Role::say(&server.fabric_address().unwrap().to_string());
    if Role::wait_for_word() {
        lower(Resource::Nofile, NO_MORE_FILES);
        Role::say("no more files");
    }
    Role::wait_for_end();
}

/// A server in another process.
struct Scene {
    directory: TempDir,
    process: Role,
    resp: SocketAddr,
    fabric: SocketAddr,
}

impl Scene {
    /// A server whose thread of this name panics when it logs.
    fn new(thread: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("s");
        let stderr = File::create(directory.path().join("stderr")).unwrap();
        let mut process =
            Role::start_with_stderr(module_path!(), thread, &[socket.to_str().unwrap()], stderr);
        let mut address = || process.hear().expect("it serves").parse().unwrap();
        let (resp, fabric) = (address(), address());
        Self { directory, process, resp, fabric }
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("s")
    }

    /// The process ends, and says why.
    fn ends_because_of(&mut self, thread: &str) {
        let status = self.process.ended();
        let mut stderr = String::new();
        let path = self.directory.path().join("stderr");
        File::open(path).unwrap().read_to_string(&mut stderr).unwrap();
        assert_eq!(status.signal(), Some(Signal::ABORT.as_raw()), "{status}: {stderr}");
        let name = format!("thread \"{thread}\" panicked at ");
        let line = stderr.lines().find(|line| line.contains(&name));
        let line = line.unwrap_or_else(|| panic!("nothing of \"{thread}\": {stderr}"));
        assert!(line.contains(Path::new(file!()).file_name().unwrap().to_str().unwrap()), "{line}");
        assert!(stderr.contains("the test's panic"), "{stderr}");
    }
}

#[test]
fn of_a_shard() {
    let mut scene = Scene::new("shard-0");
    let raw = RawSession::connect(&scene.socket());
    // A frame longer than any: the shard gives the session up, and logs that.
    let word = first_word(0, u32::MAX, raw.seed());
    raw.to_server().copy_in(ring_offset(0), &word.to_le_bytes());
    raw.ring_bell();
    scene.ends_because_of("shard-0");
}

#[test]
fn of_the_control_thread() {
    let mut scene = Scene::new("control");
    // Whether the session is granted before the end makes no difference.
    let _ = Session::connect(&scene.socket(), &Options::default());
    scene.ends_because_of("control");
}

#[test]
fn of_a_shard_by_its_agent() {
    let mut scene = Scene::new("shard-0");
    let mut stream = TcpStream::connect(scene.fabric).unwrap();
    stream.write_all(client_hello(Wanted::Tcp).as_bytes()).unwrap();
    // No frame begins so.
    stream.write_all(&[0xff; 5000]).unwrap();
    scene.ends_because_of("shard-0");
}

#[test]
fn of_the_acceptor() {
    let mut scene = Scene::new("acceptor");
    scene.process.give_word();
    assert_eq!(scene.process.hear().as_deref(), Some("no more files"));
    let _client = TcpStream::connect(scene.resp).unwrap();
    scene.ends_because_of("acceptor");
}
