//! A PostgreSQL server of a test's own.

use crate::wait::wait_until;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// The user of Debian's package: the server refuses to run as root.
const USER: &str = "postgres";

/// A server in a directory of its own; it is killed when this is dropped. The user `loader` has the
/// password [`PostgresServer::PASSWORD`] over TCP, and needs none over the Unix socket.
pub struct PostgresServer {
    directory: TempDir,
    port: u16,
    child: Option<Child>,
}

impl Default for PostgresServer {
    fn default() -> Self {
        Self::start()
    }
}

impl PostgresServer {
    /// The password of the user `loader`.
    pub const PASSWORD: &str = "pass:word";

    /// Makes a server and starts it.
    pub fn start() -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let path = directory.path();
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).expect("our directory");
        std::fs::write(path.join("password"), Self::PASSWORD).expect("our directory");
        if let Some(user) = other_user() {
            for entry in [path, &path.join("password")] {
                chown(entry, Some(user), None).expect("root may");
            }
        }
        let made = program("initdb")
            .args(["--username=loader", "--auth-local=trust", "--auth-host=scram-sha-256"])
            .args(["--no-sync", "--pwfile=password", "--pgdata=data"])
            .current_dir(path)
            .output()
            .expect("PostgreSQL is installed");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        // It is free now; another process can take it only by asking for this very number.
        let free = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = free.local_addr().expect("it is bound").port();
        drop(free);
        let mut server = Self { directory, port, child: None };
        server.start_again();
        server
    }

    /// Starts it again after [`PostgresServer::stop`].
    pub fn start_again(&mut self) {
        let path = self.directory.path();
        let log = std::fs::File::create(path.join("log")).expect("our directory");
        let child = program("postgres")
            .args(["-D", "data", "-F", "-c", "listen_addresses=127.0.0.1", "-k"])
            .arg(path)
            .args(["-p", &self.port.to_string()])
            .current_dir(path)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("PostgreSQL is installed");
        self.child = Some(child);
        wait_until("PostgreSQL listens", || self.try_sql("SELECT 1").is_ok());
    }

    /// Kills it: connections break, and new ones are refused.
    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
        let address = ("127.0.0.1", self.port);
        wait_until("PostgreSQL has ended", || TcpStream::connect(address).is_err());
    }

    /// Runs statements as `loader`.
    pub fn sql(&self, statements: &str) {
        self.try_sql(statements).unwrap_or_else(|error| panic!("{statements}: {error}"));
    }

    fn try_sql(&self, statements: &str) -> Result<(), String> {
        let output = program("psql")
            .args(["--no-psqlrc", "--quiet", "--set=ON_ERROR_STOP=1", "--username=loader"])
            .arg(format!("--host={}", self.directory.path().display()))
            .arg(format!("--port={}", self.port))
            .args(["--dbname=postgres", "--command", statements])
            .stdin(Stdio::null())
            .output()
            .map_err(|error| error.to_string())?;
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() { Ok(()) } else { Err(error) }
    }

    /// Its URL over TCP; it wants a password.
    pub fn url(&self) -> String {
        format!("postgres://loader@127.0.0.1:{}/postgres", self.port)
    }

    /// Its URL over the Unix socket.
    pub fn socket_url(&self) -> String {
        let directory = self.directory.path().display();
        format!("postgres:///postgres?user=loader&host={directory}&port={}", self.port)
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A program of PostgreSQL, which ends with us, as a user that it accepts.
fn program(name: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]);
    if let Some(user) = other_user() {
        command.args([format!("--reuid={user}"), "--clear-groups".to_owned()]);
        command.env("HOME", "/nonexistent");
    }
    command.arg(binaries().join(name));
    command.env("LC_ALL", "C");
    command
}

/// The user to run as, if we are root.
fn other_user() -> Option<u32> {
    if !rustix::process::geteuid().is_root() {
        return None;
    }
    let id = Command::new("id").args(["-u", USER]).output().expect("id runs");
    let id = String::from_utf8_lossy(&id.stdout).trim().parse();
    Some(id.expect("the package makes the user postgres"))
}

/// Where Debian has the programs of the newest version.
fn binaries() -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").expect("PostgreSQL is installed");
    let paths = versions.flatten().map(|version| version.path().join("bin"));
    let number =
        |path: &Path| -> Option<u32> { path.parent()?.file_name()?.to_str()?.parse().ok() };
    let installed = paths.filter(|path| path.join("initdb").exists());
    installed.max_by_key(|path| number(path)).expect("PostgreSQL is installed")
}
