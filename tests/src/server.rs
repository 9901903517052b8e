//! A server process.

use crate::binary::{remora, remora_with_bounded_files, remora_with_open_files};
use crate::resp::Resp;
use crate::wait::{DEADLINE, wait_for};
use remora_client_core::{Options, Session, Wake};
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::channel;
use tempfile::TempDir;

/// Where a server has its socket and its log; it can be used again.
pub struct ServerDirectory {
    directory: TempDir,
}

impl ServerDirectory {
    /// A fresh place.
    pub fn new() -> Arc<Self> {
        let directory = tempfile::tempdir().expect("a temporary directory");
        Arc::new(Self { directory })
    }

    /// Path of the socket.
    pub fn socket(&self) -> PathBuf {
        self.directory.path().join("run").join("s")
    }

    /// Path of the log.
    pub fn log(&self) -> PathBuf {
        self.directory.path().join("log")
    }
}

/// A running server process; it is killed when this is dropped.
pub struct ServerProcess {
    place: Arc<ServerDirectory>,
    child: Child,
    resp: SocketAddr,
    mongo: Option<SocketAddr>,
    _stdin: Option<ChildStdin>,
}

impl ServerProcess {
    /// Starts a server with these flags in a place of its own.
    pub fn start(flags: &[&str]) -> Self {
        Self::start_at(&ServerDirectory::new(), flags)
    }

    /// Starts a server that can have so many open files at most.
    pub fn start_with_open_files(most: usize, flags: &[&str]) -> Self {
        Self::start_command(&ServerDirectory::new(), remora_with_open_files(most), flags)
    }

    /// Starts a small server that keeps its data in this directory.
    pub fn start_with_data(directory: &Path, flags: &[&str]) -> Self {
        let data = format!("--data-dir={}", directory.display());
        Self::start(&[&[data.as_str(), "--max-memory=64MiB", "--pin=false"], flags].concat())
    }

    /// As [`ServerProcess::start_with_data`], with more in its environment.
    pub fn start_with_environment(
        directory: &Path,
        environment: &[(&str, PathBuf)],
        flags: &[&str],
    ) -> Self {
        let mut command = remora();
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        Self::start_command_with_data(command, directory, flags)
    }

    /// As [`ServerProcess::start_with_data`]; its disk can fail: [`ServerProcess::bound_files`].
    pub fn start_with_bounded_files(directory: &Path, flags: &[&str]) -> Self {
        Self::start_command_with_data(remora_with_bounded_files(), directory, flags)
    }

    fn start_command_with_data(command: Command, directory: &Path, flags: &[&str]) -> Self {
        let data = format!("--data-dir={}", directory.display());
        let flags = [&[data.as_str(), "--max-memory=64MiB", "--pin=false"], flags].concat();
        Self::start_command(&ServerDirectory::new(), command, &flags)
    }

    /// No file can grow beyond so many bytes from now on (`None`: files grow as they like).
    pub fn bound_files(&self, most: Option<u64>) {
        let limit = Rlimit { current: most, maximum: None };
        let pid = Pid::from_child(&self.child);
        prlimit(Some(pid), Resource::Fsize, limit).expect("a limit of our own process");
    }

    /// Starts a server at this place and waits until it is ready.
    pub fn start_at(place: &Arc<ServerDirectory>, flags: &[&str]) -> Self {
        Self::start_command(place, remora(), flags)
    }

    fn start_command(place: &Arc<ServerDirectory>, mut command: Command, flags: &[&str]) -> Self {
        let socket = place.socket();
        std::fs::create_dir_all(socket.parent().expect("it has one")).expect("a directory");
        let log = File::options().create(true).append(true).open(place.log()).expect("a log");
        command.args(["serve", "--owned-by-parent", "--socket"]).arg(&socket);
        if !flags.iter().any(|flag| flag.starts_with("--port=")) {
            command.arg("--port=0");
        }
        command.args(flags);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn().expect("the server starts");
        let stdin = child.stdin.take();
        let out = child.stdout.take().expect("it is piped");
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            let mut line = String::new();
            let _ = BufReader::new(out).read_line(&mut line);
            let _ = sender.send(line);
        });
        let line = receiver.recv_timeout(DEADLINE).unwrap_or_default();
        let pid = child.id();
        let resp = line
            .strip_prefix("ready resp=")
            .and_then(|rest| rest.split_once(' '))
            .filter(|(_, rest)| {
                rest.starts_with(&format!("socket={} pid={pid} ", socket.display()))
            })
            .and_then(|(resp, _)| resp.parse().ok());
        let mut server = Self {
            place: Arc::clone(place),
            child,
            resp: ([0; 4], 0).into(),
            mongo: line
                .split_whitespace()
                .find_map(|word| word.strip_prefix("mongo="))
                .and_then(|address| address.parse().ok()),
            _stdin: stdin,
        };
        server.resp = resp.unwrap_or_else(|| panic!("not ready: {line:?}\n{}", server.log()));
        server
    }

    /// Where it speaks RESP.
    pub fn resp_address(&self) -> SocketAddr {
        self.resp
    }

    /// Where it speaks MongoDB's protocol: it was started with `--mongo-port`.
    pub fn mongo_address(&self) -> SocketAddr {
        self.mongo.expect("it was started with --mongo-port")
    }

    /// Its Unix socket.
    pub fn socket(&self) -> PathBuf {
        self.place.socket()
    }

    /// Its place.
    pub fn place(&self) -> Arc<ServerDirectory> {
        Arc::clone(&self.place)
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has logged.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.place.log()).unwrap_or_default()
    }

    /// A RESP connection.
    pub fn resp(&self) -> Resp {
        Resp::connect(self.resp).unwrap_or_else(|error| panic!("{error}\n{}", self.log()))
    }

    /// A session with these options.
    pub fn session_with(&self, options: &Options) -> Session {
        let socket = self.socket();
        Session::connect(&socket, options).unwrap_or_else(|error| panic!("{error}\n{}", self.log()))
    }

    /// A session.
    pub fn session(&self) -> Session {
        // Blocking: there are fewer cores than processes here.
        self.session_with(&Options { wake: Wake::Event, ..crate::by_pointers() })
    }

    /// Whether it still runs.
    pub fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// SIGKILL.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends SIGTERM.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        let _ = kill_process(Pid::from_child(&self.child), signal);
    }

    /// Waits for its end by itself: the exit code.
    pub fn ended(&mut self) -> Option<i32> {
        let log = self.log();
        wait_for(&format!("the server ends:\n{log}"), || self.child.try_wait().ok().flatten())
            .code()
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        self.kill();
    }
}
