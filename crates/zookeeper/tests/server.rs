//! A ZooKeeper server in a process of its own, on a free port, in a temporary directory.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Where Debian's package `zookeeper` puts the server.
const JAR: &str = "/usr/share/java/zookeeper.jar";
/// ZooKeeper's tick, ms: sessions have 2 to 400 of them.
const TICK_MS: u64 = 200;
/// A server that does not answer by then is not going to.
const PATIENCE: Duration = Duration::from_secs(60);

/// It ends when this is dropped.
pub struct Server {
    directory: TempDir,
    pub port: u16,
    process: Option<Child>,
}

/// Whether the tests are to do without ZooKeeper (`REMORA_SKIP` names it).
pub fn is_skipped() -> bool {
    let skip = std::env::var("REMORA_SKIP").unwrap_or_default();
    let is_skipped = skip.split(',').any(|name| name.trim() == JAR);
    if is_skipped {
        println!("not run: ZooKeeper is missing, as REMORA_SKIP says");
    }
    is_skipped
}

impl Server {
    /// A server alone, which answers.
    pub fn start() -> Self {
        let mut server = Self::with("");
        server.resume();
        server
    }

    /// Three servers that are one ensemble. They answer as soon as two of them have found each other.
    pub fn start_three() -> [Self; 3] {
        let ports: Vec<_> = (0..6).map(|_| free_port()).collect();
        let line = |id: usize| {
            let (peer, election) = (ports[2 * id], ports[2 * id + 1]);
            format!("server.{}=127.0.0.1:{peer}:{election}\n", id + 1)
        };
        let more = format!("initLimit=20\nsyncLimit=10\n{}{}{}", line(0), line(1), line(2));
        [1, 2, 3].map(|id| {
            let mut server = Self::with(&more);
            let data = server.directory.path().join("data");
            std::fs::create_dir(&data).expect("its data");
            std::fs::write(data.join("myid"), id.to_string()).expect("its id");
            server.resume();
            server
        })
    }

    /// A server with these settings beside the usual ones, not started.
    fn with(more: &str) -> Self {
        assert!(Path::new(JAR).exists(), "{JAR} is missing: apt-get install zookeeper");
        let directory = tempfile::tempdir().expect("a temporary directory");
        let port = free_port();
        let settings = format!(
            "tickTime={TICK_MS}\ndataDir={}\nclientPort={port}\nclientPortAddress=127.0.0.1\n\
             maxSessionTimeout={}\nmaxClientCnxns=0\nadmin.enableServer=false\n\
             4lw.commands.whitelist=ruok\n{more}",
            directory.path().join("data").display(),
            TICK_MS * 400,
        );
        std::fs::write(directory.path().join("zoo.cfg"), settings)
            .expect("the settings are written");
        Self { directory, port, process: None }
    }

    /// Starts the server again, with what it had.
    pub fn resume(&mut self) {
        if self.process.is_some() {
            return;
        }
        let output = std::fs::File::options()
            .create(true)
            .append(true)
            .open(self.directory.path().join("output"))
            .expect("a file for its output");
        let process = Command::new("java")
            .args(["-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])
            // A kill of a process loses nothing that it wrote: nothing here needs the disk.
            .args(["-Dzookeeper.forceSync=no", "-Dzookeeper.jmx.log4j.disable=true", "-cp", JAR])
            .arg("org.apache.zookeeper.server.quorum.QuorumPeerMain")
            .arg(self.directory.path().join("zoo.cfg"))
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("the same file"))
            .stderr(output)
            .spawn()
            .expect("java runs");
        self.process = Some(process);
        let began = Instant::now();
        while !self.is_well() {
            assert!(began.elapsed() < PATIENCE, "ZooKeeper does not answer: {}", self.output());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Kills the server.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill().expect("it is ours");
            process.wait().expect("it ends");
        }
    }

    fn is_well(&self) -> bool {
        let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) else { return false };
        // A server that is only just starting may take the question and forget it.
        stream.set_read_timeout(Some(Duration::from_secs(1))).expect("a socket");
        let mut answer = String::new();
        stream.write_all(b"ruok").is_ok()
            && stream.read_to_string(&mut answer).is_ok()
            && answer == "imok"
    }

    fn output(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("output")).unwrap_or_default()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A port that nobody has now. It is none of those that the kernel gives to connections, which could take it
/// before the server does.
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
