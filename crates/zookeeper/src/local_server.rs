//! A ZooKeeper server of one's own, for tests, the demo and `remora crash`: a process on this machine, on
//! a port of its own, in a temporary directory.
//!
//! Invariant: it ends with the process that started it, in whatever manner that one ends: a shell
//! between them reads its standard input, of which we hold the other end.

use rustix::process::{Pid, Signal, kill_process};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, ToSocketAddrs};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Where Debian's package `zookeeper` puts the server.
const JAR: &str = "/usr/share/java/zookeeper.jar";
/// What TLS of the server needs, of the same packages: the server names only some of it itself.
const NETTY: &str = "/usr/share/java/netty-codec.jar:/usr/share/java/netty-resolver.jar";
const PROGRAM: &str = "java";
/// How to get both.
const INSTALL: &str =
    "sudo apt-get install --yes --no-install-recommends zookeeper default-jre-headless";
/// A server that does not answer by then is not going to.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// One question and its answer.
const ASK_LIMIT: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_millis(20);
/// Says the number of the server's process, and ends it with its own input.
const SHELL: &str =
    r#"java "$@" </dev/null >>"$OUTPUT" 2>&1 & echo $!; cat >/dev/null; kill -9 $!; wait"#;

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub enum LocalServerError {
    /// Something is not installed.
    #[error("{0} is missing, so that no ZooKeeper can be started: {INSTALL}")]
    Missing(&'static str),
    /// It was started, and does not answer. What it has said.
    #[error("ZooKeeper does not answer:\n{0}")]
    Silent(String),
    /// A file, a process or a port.
    #[error("starting ZooKeeper: {0}")]
    Io(#[from] io::Error),
}

/// How a server is started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LocalServerPlan {
    /// The host on which it listens.
    pub host: String,
    /// Its port; 0 takes a free one of this machine.
    pub port: u16,
    /// What begins its process, such as the way into a network namespace; or nothing.
    pub launcher: Vec<String>,
    /// ZooKeeper's tick, ms. Sessions last 2 to 400 of them.
    pub tick_ms: u64,
    /// Further lines of its settings.
    pub more: String,
    /// Memory of its heap at most, MiB.
    pub heap_mib: u32,
    /// TLS, on a port of its own beside the plain one.
    pub tls: Option<LocalServerTls>,
}

/// TLS of a server of one's own.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LocalServerTls {
    /// The server's certificate and its private key: files of PEM.
    pub identity: (PathBuf, PathBuf),
    /// The authority of the clients' certificates, PEM: they have to show one.
    pub clients: PathBuf,
}

impl Default for LocalServerPlan {
    fn default() -> Self {
        Self {
            host: "127.0.0.1".into(),
            port: 0,
            launcher: Vec::new(),
            tick_ms: 100,
            more: String::new(),
            heap_mib: 128,
            tls: None,
        }
    }
}

/// See the module's text.
#[derive(Debug)]
pub struct LocalServer {
    directory: TempDir,
    plan: LocalServerPlan,
    /// Its port for TLS.
    tls_port: Option<u16>,
    process: Option<Process>,
}

/// The shell, and the server behind it.
#[derive(Debug)]
struct Process {
    shell: Child,
    stdin: Option<ChildStdin>,
    server: Pid,
}

impl LocalServer {
    /// Whether one can be started here.
    ///
    /// # Errors
    /// What is missing, with the line that installs it.
    pub fn check() -> Result<(), LocalServerError> {
        if !Path::new(JAR).exists() {
            return Err(LocalServerError::Missing(JAR));
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let has = |of: PathBuf| of.join(PROGRAM).exists();
        match std::env::split_paths(&path).any(has) {
            true => Ok(()),
            false => Err(LocalServerError::Missing(PROGRAM)),
        }
    }

    /// Whether tests are to do without it: it is missing, and `REMORA_SKIP` says so. Then it prints that.
    pub fn is_skipped() -> bool {
        let skipped = std::env::var("REMORA_SKIP").unwrap_or_default();
        let is_named = skipped.split(',').any(|name| name.trim() == JAR);
        let is_skipped = Self::check().is_err() && is_named;
        if is_skipped {
            println!("not run: ZooKeeper is missing, as REMORA_SKIP says");
        }
        is_skipped
    }

    /// Starts a server without data, and waits until it answers.
    ///
    /// # Errors
    /// See [`LocalServerError`].
    pub fn start(plan: LocalServerPlan) -> Result<Self, LocalServerError> {
        let mut server = Self::prepare(plan)?;
        server.resume()?;
        Ok(server)
    }

    /// Starts three servers that are one ensemble, and waits until all answer.
    ///
    /// # Errors
    /// See [`LocalServerError`].
    pub fn start_three(tick_ms: u64) -> Result<[Self; 3], LocalServerError> {
        let ports: Vec<_> = (0..6).map(|_| free_port()).collect();
        let line = |id: usize| {
            let (peer, election) = (ports[2 * id], ports[2 * id + 1]);
            format!("server.{}=127.0.0.1:{peer}:{election}\n", id + 1)
        };
        let more = format!("initLimit=20\nsyncLimit=10\n{}{}{}", line(0), line(1), line(2));
        let start = |id: u32| {
            let mut server = Self::prepare(LocalServerPlan {
                port: free_port(),
                tick_ms,
                more: more.clone(),
                ..LocalServerPlan::default()
            })?;
            let data = server.directory.path().join("data");
            std::fs::create_dir(&data)?;
            std::fs::write(data.join("myid"), id.to_string())?;
            server.process = Some(server.spawn()?);
            Ok::<_, LocalServerError>(server)
        };
        let mut servers = [start(1)?, start(2)?, start(3)?];
        servers.iter_mut().try_for_each(Self::wait)?;
        Ok(servers)
    }

    /// A server that is not started.
    fn prepare(mut plan: LocalServerPlan) -> Result<Self, LocalServerError> {
        Self::check()?;
        if plan.port == 0 {
            plan.port = free_port();
        }
        let directory = tempfile::Builder::new().prefix("remora-zookeeper-").tempdir()?;
        let LocalServerPlan { host, port, tick_ms, more, .. } = &plan;
        let settings = format!(
            "tickTime={tick_ms}\ndataDir={}\nclientPort={port}\nclientPortAddress={host}\n\
             maxSessionTimeout={}\nmaxClientCnxns=0\nadmin.enableServer=false\n\
             4lw.commands.whitelist=ruok,mntr\n{more}",
            directory.path().join("data").display(),
            tick_ms * 400,
        );
        let tls_port = plan.tls.as_ref().map(|_| free_port());
        let tls = match plan.tls.as_ref().zip(tls_port) {
            Some((tls, port)) => tls_settings(tls, (host, port), directory.path())?,
            None => String::new(),
        };
        std::fs::write(directory.path().join("zoo.cfg"), settings + &tls)?;
        Ok(Self { directory, plan, tls_port, process: None })
    }

    /// `HOST:PORT`, the same after each start.
    pub fn address(&self) -> String {
        format!("{}:{}", self.plan.host, self.plan.port)
    }

    /// The same of its port for TLS, if it has one.
    pub fn tls_address(&self) -> Option<String> {
        Some(format!("{}:{}", self.plan.host, self.tls_port?))
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.plan.port
    }

    /// Whether its process is there.
    pub fn is_alive(&self) -> bool {
        self.process.is_some()
    }

    /// Starts it again after [`LocalServer::kill`], with the data that it had, and waits until it answers.
    ///
    /// # Errors
    /// See [`LocalServerError`].
    pub fn resume(&mut self) -> Result<(), LocalServerError> {
        if self.process.is_some() {
            return Ok(());
        }
        self.process = Some(self.spawn()?);
        self.wait()
    }

    fn wait(&mut self) -> Result<(), LocalServerError> {
        let began = Instant::now();
        while !self.is_well() {
            if began.elapsed() > READY_LIMIT {
                self.kill();
                return Err(LocalServerError::Silent(self.output()));
            }
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    fn spawn(&self) -> io::Result<Process> {
        let words = self.plan.launcher.iter().map(String::as_str).chain(["sh", "-c", SHELL, "sh"]);
        let words: Vec<&str> = words.collect();
        let mut shell = Command::new(words[0])
            .args(&words[1..])
            .arg(format!("-Xmx{}m", self.plan.heap_mib))
            .args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])
            .args(["-Dzookeeper.jmx.log4j.disable=true", "-Dzookeeper.forceSync=no"])
            .args(["-cp", &format!("{JAR}:{NETTY}")])
            .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
            .arg(self.directory.path().join("zoo.cfg"))
            .env("OUTPUT", self.output_path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            // Ctrl-C is for this process; its end is the server's.
            .process_group(0)
            .spawn()?;
        let stdin = shell.stdin.take();
        let mut line = String::new();
        if let Some(stdout) = shell.stdout.take() {
            BufReader::new(stdout).read_line(&mut line)?;
        }
        let server = line.trim().parse().ok().and_then(Pid::from_raw);
        match server {
            Some(server) => Ok(Process { shell, stdin, server }),
            None => {
                shell.kill()?;
                shell.wait()?;
                Err(io::Error::other(format!("the shell said {line:?}")))
            }
        }
    }

    /// Kills it, as `kill -9` does. Its data stay.
    pub fn kill(&mut self) {
        // Its end is that of the shell, which kills the server.
        drop(self.process.take());
    }

    /// Stops its process, until [`LocalServer::go_on`].
    ///
    /// # Errors
    /// It is not there.
    pub fn pause(&self) -> io::Result<()> {
        self.signal(Signal::STOP)
    }

    /// See [`LocalServer::pause`].
    ///
    /// # Errors
    /// It is not there.
    pub fn go_on(&self) -> io::Result<()> {
        self.signal(Signal::CONT)
    }

    fn signal(&self, signal: Signal) -> io::Result<()> {
        let process = self.process.as_ref().ok_or(io::ErrorKind::NotFound)?;
        Ok(kill_process(process.server, signal)?)
    }

    /// Whether it answers.
    pub fn is_well(&self) -> bool {
        self.ask(b"ruok").is_ok_and(|answer| answer == "imok")
    }

    /// Its process, if it is there.
    pub fn pid(&self) -> Option<u32> {
        self.process.as_ref().map(|of| of.server.as_raw_nonzero().get().unsigned_abs())
    }

    /// A number that it tells by its command `mntr`, such as `zk_packets_received`.
    ///
    /// # Errors
    /// It does not answer, or tells no such number.
    pub fn metric(&self, name: &str) -> io::Result<u64> {
        let answer = self.ask(b"mntr")?;
        let of = |line: &str| line.strip_prefix(name)?.trim().parse::<f64>().ok();
        let found = answer.lines().find_map(of).ok_or(io::ErrorKind::NotFound)?;
        Ok(found as u64)
    }

    fn ask(&self, command: &[u8; 4]) -> io::Result<String> {
        let to = self.address().to_socket_addrs()?.next().ok_or(io::ErrorKind::NotFound)?;
        let mut stream = TcpStream::connect_timeout(&to, ASK_LIMIT)?;
        stream.set_read_timeout(Some(ASK_LIMIT))?;
        stream.write_all(command)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }

    fn output_path(&self) -> PathBuf {
        self.directory.path().join("output")
    }

    /// What it has said.
    pub fn output(&self) -> String {
        std::fs::read_to_string(self.output_path()).unwrap_or_default()
    }
}

/// The lines for TLS. ZooKeeper wants a certificate and its key in one file.
fn tls_settings(
    tls: &LocalServerTls,
    (host, port): (&str, u16),
    directory: &Path,
) -> io::Result<String> {
    let (certificate, key) = &tls.identity;
    let identity = [std::fs::read(key)?, std::fs::read(certificate)?].concat();
    let path = directory.join("identity.pem");
    std::fs::write(&path, identity)?;
    Ok(format!(
        "\nserverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n\
         secureClientPort={port}\nsecureClientPortAddress={host}\nssl.clientAuth=need\n\
         ssl.keyStore.type=PEM\nssl.keyStore.location={}\n\
         ssl.trustStore.type=PEM\nssl.trustStore.location={}\n",
        path.display(),
        tls.clients.display(),
    ))
}

/// A port that no process has now. It is none of those that the kernel gives to connections, which could take
/// it before the server does.
fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = std::process::id() * 16 + NEXT.fetch_add(1, Ordering::Relaxed);
        let port = 20_000 + (number % 12_000) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _ = self.shell.wait();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether a process is there, and is no zombie.
    fn is_there(of: Pid) -> bool {
        let path = format!("/proc/{}/stat", of.as_raw_nonzero());
        std::fs::read_to_string(path).is_ok_and(|stat| !stat.contains(") Z "))
    }

    #[test]
    fn a_server_answers_is_killed_resumes_and_ends() {
        if LocalServer::is_skipped() {
            return;
        }
        let mut server = LocalServer::start(LocalServerPlan::default()).unwrap();
        assert!(server.is_well());
        // It is well a moment before it serves, and tells numbers only then.
        let tells = || server.metric("zk_packets_received").is_ok_and(|of| of > 0);
        let is_told = (0..500).any(|_| {
            std::thread::sleep(Duration::from_millis(10));
            tells()
        });
        assert!(is_told, "it was asked");
        assert!(server.metric("zk_rain").is_err());
        server.pause().unwrap();
        // A thread that runs when the signal comes may answer once more.
        assert!((0..500).any(|_| !server.is_well()), "it is stopped");
        server.go_on().unwrap();
        assert!(server.is_well());
        let address = server.address();
        server.kill();
        assert!(!server.is_alive() && !server.is_well() && server.pause().is_err());
        server.resume().unwrap();
        // It has answered, and may be slow to answer again while it starts.
        assert!((0..500).any(|_| server.is_well()), "it is well again");
        assert_eq!(server.address(), address);
        let process = server.process.as_ref().unwrap().server;
        assert!(is_there(process));
        drop(server);
        assert!(!is_there(process), "it ends with its owner");
    }

    #[test]
    fn what_is_missing_is_said_with_the_line_that_installs_it() {
        let text = LocalServerError::Missing(JAR).to_string();
        assert!(
            text.contains("zookeeper.jar is missing") && text.contains("apt-get install"),
            "{text}"
        );
    }
}
