//! A ZooKeeper server in a process of its own, on a free port, in a temporary directory.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
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

impl Server {
    /// A server that answers; `None` if the tests are to do without it (`REMORA_SKIP` names it).
    pub fn start() -> Option<Self> {
        let skipped = std::env::var("REMORA_SKIP").unwrap_or_default();
        if skipped.split(',').any(|name| name == JAR) {
            println!("not run: ZooKeeper is missing, as REMORA_SKIP says");
            return None;
        }
        assert!(Path::new(JAR).exists(), "{JAR} is missing: apt-get install zookeeper");
        let directory = tempfile::tempdir().expect("a temporary directory");
        let port = free_port();
        let settings = format!(
            "tickTime={TICK_MS}\ndataDir={}\nclientPort={port}\nclientPortAddress=127.0.0.1\n\
             maxSessionTimeout={}\nmaxClientCnxns=0\nadmin.enableServer=false\n\
             4lw.commands.whitelist=ruok\n",
            directory.path().join("data").display(),
            TICK_MS * 400,
        );
        std::fs::write(directory.path().join("zoo.cfg"), settings)
            .expect("the settings are written");
        let mut server = Self { directory, port, process: None };
        server.resume();
        Some(server)
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
            .args(["-Dzookeeper.jmx.log4j.disable=true", "-cp", JAR])
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

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("bound").port()
}
