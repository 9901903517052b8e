//! A server process that belongs to this one and ends with it.
//!
//! The server reads its standard input, and this process holds the other end: when this process
//! ends, in whatever manner, the kernel closes it, and the server removes its socket and the
//! temporary directory and ends too.

use crate::options::Wake;
use crate::shards::default_shards;
use anyhow::{Context, anyhow, bail};
use rustix::process::{Pid, Signal};
use std::fs::Permissions;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A server that has not said "ready" by then never will.
const READY_LIMIT: Duration = Duration::from_secs(30);
/// A little more than a server allows itself for draining.
const END_LIMIT: Duration = Duration::from_secs(10);
/// Data are kept in the temporary directory, until the server's end.
const TEMPORARY_DATA: &str = "--temporary-data";
/// Kept bytes of the server's standard error.
const MAX_LOG_BYTES: usize = 64 << 10;

/// The server's settings.
#[derive(Clone, Debug)]
pub struct ServerPlan {
    /// RESP port; 0 takes a free one.
    pub port: u16,
    /// Shards.
    pub shards: usize,
    /// Bytes of all arenas.
    pub max_memory_bytes: u64,
    /// Buckets that the tables of all shards start with; 0: 1024 each.
    pub buckets: u64,
    /// How shards wait.
    pub wake: Wake,
    /// Whether shards are pinned.
    pub pin: bool,
    /// Whether clients may connect over TCP.
    pub over_tcp: bool,
    /// Shortest lease, ms.
    pub lease_min_ms: u64,
    /// How durable changes are: `memory`, `everysec` or `fsync`. The data then outlive a server that
    /// is killed, in a temporary directory. `None`: nothing is kept.
    pub durability: Option<&'static str>,
    /// Whether it has a port for MongoDB's protocol.
    pub speaks_mongo: bool,
}

impl ServerPlan {
    /// A plan with room for `records` records of these sizes.
    pub fn with_room(records: usize, key_bytes: usize, value_bytes: usize) -> Self {
        // Twice the record and its header, so that size classes, slots waiting
        // for leases and uneven shards find room; nothing is touched unused.
        let bytes = records as u64 * (2 * (32 + key_bytes + value_bytes) as u64 + 64);
        Self {
            port: 0,
            shards: default_shards(u64::MAX),
            max_memory_bytes: bytes + (256 << 20),
            // Seven slots a bucket: filled to a half or less.
            buckets: (records as u64 / 4).next_power_of_two().max(1024),
            wake: Wake::Hybrid,
            pin: false,
            over_tcp: false,
            lease_min_ms: remora_layout::limits::LEASE_MIN_S * 1000,
            durability: None,
            speaks_mongo: false,
        }
    }

    /// Arguments of `remora serve`.
    pub fn serve_args(&self) -> Vec<String> {
        let fixed = ["serve", "--owned-by-parent", "--bind=127.0.0.1", "--log=warn"];
        let mut args = fixed.map(str::to_owned).to_vec();
        args.extend([
            format!("--port={}", self.port),
            format!("--shards={}", self.shards),
            format!("--max-memory={}", self.max_memory_bytes),
            format!("--buckets={}", self.buckets),
            format!("--wake={}", self.wake),
            format!("--pin={}", self.pin),
            format!("--lease-min-ms={}", self.lease_min_ms),
        ]);
        args.extend(self.over_tcp.then(|| "--fabric-address=127.0.0.1:0".to_owned()));
        args.extend(self.speaks_mongo.then(|| "--mongo-port=0".to_owned()));
        if let Some(durability) = self.durability {
            args.extend([TEMPORARY_DATA.to_owned(), format!("--durability={durability}")]);
        }
        args
    }
}

/// A running server process.
#[derive(Debug)]
pub struct ServerProcess {
    command: Command,
    child: Child,
    stdin: Option<ChildStdin>,
    ready: Ready,
    log: Log,
    _directory: TempDir,
}

/// The tail of the server's standard error.
type Log = Arc<Mutex<Vec<u8>>>;

impl ServerProcess {
    /// Starts a server of this same binary and waits until it is ready.
    pub fn start(plan: &ServerPlan) -> anyhow::Result<Self> {
        Self::start_with(&plan.serve_args())
    }

    /// Starts this same binary with these arguments and `--socket PATH`, and
    /// waits until it says that it is ready. It has to end with its standard
    /// input, and to take the socket's directory along.
    pub fn start_with(args: &[String]) -> anyhow::Result<Self> {
        Self::start_in(args, &[])
    }

    /// The same, with more in its environment.
    pub fn start_in(args: &[String], environment: &[(&str, PathBuf)]) -> anyhow::Result<Self> {
        let binary = std::env::current_exe().context("cannot find this binary")?;
        Self::start_binary(&binary, args, environment)
    }

    /// The same behind the words of a launcher, which becomes the server: `nsenter` and its flags. A
    /// `--socket=PATH` among the arguments takes the place of a socket in a temporary directory.
    pub fn start_through(
        launcher: &[String],
        args: &[String],
        environment: &[(&str, PathBuf)],
    ) -> anyhow::Result<Self> {
        let binary = std::env::current_exe().context("cannot find this binary")?;
        let Some((program, words)) = launcher.split_first() else {
            return Self::start_binary(&binary, args, environment);
        };
        let mut command = Command::new(program);
        command.args(words).arg(binary);
        Self::start_command(command, args, environment)
    }

    /// Starts a server of the binary `remora` at this path and waits until it
    /// is ready.
    pub fn start_of(remora: &Path, plan: &ServerPlan) -> anyhow::Result<Self> {
        Self::start_binary(remora, &plan.serve_args(), &[])
    }

    fn start_binary(
        binary: &Path,
        args: &[String],
        environment: &[(&str, PathBuf)],
    ) -> anyhow::Result<Self> {
        Self::start_command(Command::new(binary), args, environment)
    }

    fn start_command(
        mut command: Command,
        args: &[String],
        environment: &[(&str, PathBuf)],
    ) -> anyhow::Result<Self> {
        let directory = tempfile::Builder::new()
            .prefix("remora-")
            .permissions(Permissions::from_mode(0o700))
            .tempdir()
            .context("cannot make a temporary directory")?;
        let socket = directory.path().join("remora.sock");
        command.args(args);
        if args.iter().any(|arg| arg == TEMPORARY_DATA) {
            command.arg("--data-dir").arg(directory.path().join("data"));
        }
        if !args.iter().any(|arg| arg.starts_with("--socket=")) {
            command.arg("--socket").arg(&socket);
        }
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            // Ctrl-C is for this process; its end is the server's.
            .process_group(0);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("REMORA_") {
                command.env_remove(name);
            }
        }
        command.envs(environment.iter().map(|(name, value)| (name, value)));
        let (child, log) = spawn(&mut command)?;
        let mut server = Self {
            command,
            child,
            stdin: None,
            ready: Ready { resp: None, socket, mongo: None },
            log,
            _directory: directory,
        };
        server.begin()?;
        Ok(server)
    }

    /// Takes the pipes of a new child, and waits until it is ready.
    fn begin(&mut self) -> anyhow::Result<()> {
        self.stdin = self.child.stdin.take();
        let stdout = self.child.stdout.take().context("no pipe from the server")?;
        self.ready = self.wait_until_ready(stdout)?;
        Ok(())
    }

    /// Kills the server, as `kill -9` does, and starts it again with the same arguments. Returns the
    /// time from its start until it was ready. Its RESP address may be another one.
    pub fn kill_and_restart(&mut self) -> anyhow::Result<Duration> {
        self.child.kill().context("cannot kill the server")?;
        self.child.wait().context("the server does not end")?;
        let started = Instant::now();
        (self.child, self.log) = spawn(&mut self.command)?;
        self.begin()?;
        Ok(started.elapsed())
    }

    fn wait_until_ready(&mut self, stdout: impl Read + Send + 'static) -> anyhow::Result<Ready> {
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            let mut lines = BufReader::new(stdout);
            let mut line = String::new();
            if matches!(lines.read_line(&mut line), Ok(bytes) if bytes > 0) {
                let _ = sender.send(line);
            }
            // Keeps the pipe open, so that a server that says more can.
            let _ = std::io::copy(&mut lines, &mut std::io::sink());
        });
        match receiver.recv_timeout(READY_LIMIT) {
            Ok(line) => parse_ready(&line)
                .ok_or_else(|| anyhow!("the server said \"{}\", not \"ready\"", line.trim_end())),
            Err(RecvTimeoutError::Timeout) => {
                bail!("the server was not ready in {READY_LIMIT:?}{}", self.last_words())
            }
            Err(RecvTimeoutError::Disconnected) => {
                let status = self.wait_for_end(END_LIMIT);
                let ended = status.map_or("silent".into(), |status| status.to_string());
                // The thread that keeps the log may be a moment behind.
                std::thread::sleep(Duration::from_millis(20));
                bail!("the server did not start ({ended}){}", self.last_words())
            }
        }
    }

    /// Process id of the server.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Its RESP address.
    ///
    /// # Panics
    /// It is no `remora serve`.
    pub fn resp_address(&self) -> SocketAddr {
        self.ready.resp.expect("remora serve names its address")
    }

    /// The address of its port for MongoDB's protocol, if it has one.
    pub fn mongo_address(&self) -> Option<SocketAddr> {
        self.ready.mongo
    }

    /// Its Unix socket.
    pub fn socket_path(&self) -> &Path {
        &self.ready.socket
    }

    /// Shows the server's last log lines on standard error, beside an error of this process.
    pub fn note_log(&self) {
        let words = self.last_words();
        if !words.is_empty() {
            let _ = writeln!(std::io::stderr(), "a server was running{words}");
        }
    }

    /// The end of the server's log, some thousands of characters.
    pub fn log(&self) -> String {
        let log = self.log.lock().map(|log| String::from_utf8_lossy(&log).into_owned());
        log.unwrap_or_default()
    }

    /// The server's last log lines, to be appended to an error.
    fn last_words(&self) -> String {
        match self.log() {
            text if text.trim().is_empty() => String::new(),
            text => format!("; its log:\n{}", text.trim_end()),
        }
    }

    /// Waits until the server ends by itself.
    pub fn wait(mut self) {
        let _ = self.child.wait();
    }

    /// Ends the server and says whether it ended well.
    pub fn stop(mut self) -> anyhow::Result<()> {
        self.stdin = None;
        self.ended_well()
    }

    fn ended_well(&mut self) -> anyhow::Result<()> {
        match self.wait_for_end(END_LIMIT) {
            Some(status) if status.success() => Ok(()),
            Some(status) => bail!("the server ended badly ({status}){}", self.last_words()),
            None => bail!("the server did not end in {END_LIMIT:?}{}", self.last_words()),
        }
    }

    /// Ends the server at once, by SIGKILL: it can do nothing any more.
    pub fn kill(mut self) -> anyhow::Result<()> {
        self.child.kill().context("cannot kill the server")?;
        self.child.wait().context("cannot wait for the server")?;
        Ok(())
    }

    /// Ends the server by SIGTERM and says whether it ended well.
    pub fn terminate(mut self) -> anyhow::Result<()> {
        self.signal(Signal::TERM)?;
        self.ended_well()
    }

    /// Sends the server a signal.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        rustix::process::kill_process(Pid::from_child(&self.child), signal)
            .with_context(|| format!("cannot send {signal:?} to the server"))
    }

    /// Waits for the end; at the limit it is forced, and there is no status.
    fn wait_for_end(&mut self, limit: Duration) -> Option<ExitStatus> {
        let deadline = Instant::now() + limit;
        while Instant::now() < deadline {
            if let Ok(Some(status)) = self.child.try_wait() {
                return Some(status);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        None
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        self.stdin = None;
        self.wait_for_end(END_LIMIT);
    }
}

/// A process of this command, and the tail of its standard error.
fn spawn(command: &mut Command) -> anyhow::Result<(Child, Log)> {
    let mut child = command.spawn().with_context(|| {
        format!("cannot start a server process of {}", command.get_program().display())
    })?;
    let log = keep_tail(child.stderr.take().context("no pipe from the server")?);
    Ok((child, log))
}

fn keep_tail(mut stderr: impl Read + Send + 'static) -> Log {
    let log = Log::default();
    let kept = Arc::clone(&log);
    std::thread::spawn(move || {
        let mut bytes = [0u8; 4096];
        while let Ok(read @ 1..) = stderr.read(&mut bytes) {
            let Ok(mut kept) = kept.lock() else { return };
            kept.extend_from_slice(&bytes[..read]);
            let excess = kept.len().saturating_sub(MAX_LOG_BYTES);
            kept.drain(..excess);
        }
    });
    log
}

/// The addresses that a server names when it is ready.
#[derive(PartialEq, Eq, Debug)]
struct Ready {
    resp: Option<SocketAddr>,
    socket: PathBuf,
    mongo: Option<SocketAddr>,
}

/// `ready resp=127.0.0.1:PORT socket=PATH pid=PID`, then more of this form; a server without RESP leaves
/// out the first part.
fn parse_ready(line: &str) -> Option<Ready> {
    let rest = line.trim_end().strip_prefix("ready ")?;
    let (resp, rest) = match rest.strip_prefix("resp=") {
        Some(rest) => {
            let (address, rest) = rest.split_once(' ')?;
            (Some(address.parse().ok()?), rest)
        }
        None => (None, rest),
    };
    let (socket, rest) = rest.strip_prefix("socket=")?.rsplit_once(" pid=")?;
    let mongo = rest.split(' ').find_map(|word| word.strip_prefix("mongo="));
    Some(Ready { resp, socket: PathBuf::from(socket), mongo: mongo.and_then(|of| of.parse().ok()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ready_line_is_understood() {
        let line = "ready resp=127.0.0.1:4711 socket=/tmp/a b/remora.sock pid=12 mongo=127.0.0.1:27 durability=none\n";
        let ready = parse_ready(line).unwrap();
        let port = |of: Option<SocketAddr>| of.map(|address| address.port());
        assert_eq!((port(ready.resp), port(ready.mongo)), (Some(4711), Some(27)));
        assert_eq!(ready.socket, Path::new("/tmp/a b/remora.sock"));
        let short = Ready { resp: None, socket: "/s".into(), mongo: None };
        assert_eq!(parse_ready("ready socket=/s pid=1\n"), Some(short));
        assert!(parse_ready("reddy resp=127.0.0.1:4711 socket=/s pid=1").is_none());
    }

    #[test]
    fn room_grows_with_the_records() {
        let plan = ServerPlan::with_room(1_000_000, 16, 32);
        assert_eq!(plan.buckets, 1 << 18);
        assert!(plan.max_memory_bytes > 400 << 20);
    }
}
