//! A redis-server process that belongs to this one.

use anyhow::Context;
use remora_command_line::Connection;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A server that does not listen by then never will.
const START_LIMIT: Duration = Duration::from_secs(10);

/// It keeps nothing, and is killed at the end.
pub struct Redis {
    child: Child,
    address: String,
    _directory: TempDir,
}

impl Redis {
    /// Starts one on a free port of this machine; `None` if there is no redis-server on the PATH.
    pub fn start() -> anyhow::Result<Option<Self>> {
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port().to_string();
        let directory = tempfile::tempdir()?;
        let mut command = Command::new("redis-server");
        command.args(["--port", &port, "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
        command.arg("--dir").arg(directory.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = match command.spawn() {
            Ok(child) => child,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).context("cannot start redis-server"),
        };
        let address = format!("127.0.0.1:{port}");
        let redis = Self { child, address, _directory: directory };
        let since = Instant::now();
        while redis.connect().is_err() {
            anyhow::ensure!(since.elapsed() < START_LIMIT, "redis-server does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(Some(redis))
    }

    /// A connection.
    pub fn connect(&self) -> anyhow::Result<Connection> {
        Connection::connect(&self.address)
    }

    /// The process.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
