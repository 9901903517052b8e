//! `remora serve` as a process: settings from three places, the ready line,
//! the end by signals and by the owner.

use remora_tests::{Finished, remora, run, wait_until};
use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Stdio};

/// Settings that `serve --check` prints.
fn settings(args: &[&str], environment: &[(&str, &str)]) -> toml::Table {
    let mut command = remora();
    command.args(["serve", "--check"]).args(args).envs(environment.iter().copied());
    let finished = run(&mut command);
    assert_eq!(finished.code, Some(0), "{}", finished.err);
    finished.out.parse().unwrap()
}

#[test]
fn a_flag_beats_the_environment_beats_the_file_beats_the_default() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("remora.toml");
    std::fs::write(&file, "port = 1\nbuckets = 1\nwake = \"poll\"\nmax_memory = \"64MiB\"\n")
        .unwrap();
    let config = file.to_str().unwrap();
    let environment = [("REMORA_PORT", "2"), ("REMORA_BUCKETS", "2"), ("REMORA_CONFIG", config)];
    let found = settings(&["--port", "3"], &environment);
    assert_eq!(found["port"].as_integer(), Some(3));
    assert_eq!(found["buckets"].as_integer(), Some(2));
    assert_eq!(found["wake"].as_str(), Some("poll"));
    assert_eq!(found["max_memory"].as_str(), Some("64MiB"));
    assert_eq!(found["bind"].as_str(), Some("127.0.0.1"));
    assert_eq!(found["pin"].as_bool(), Some(true));
    let found = settings(&["--config", config, "--pin=false"], &[("REMORA_PIN", "true")]);
    assert_eq!(found["port"].as_integer(), Some(1));
    assert_eq!(found["pin"].as_bool(), Some(false));
}

#[test]
fn what_is_printed_can_be_read_back() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("remora.toml");
    let printed = settings(&["--shards", "2", "--wake", "event"], &[]);
    std::fs::write(&file, printed.to_string()).unwrap();
    assert_eq!(settings(&["--config", file.to_str().unwrap()], &[]), printed);
}

fn refused(args: &[&str]) -> Finished {
    let mut command = remora();
    command.arg("serve").args(args);
    let finished = run(&mut command);
    assert_eq!(finished.code, Some(2), "{}", finished.err);
    assert_eq!(finished.out, "");
    finished
}

#[test]
fn usage_errors_end_with_2_and_name_what_is_wrong() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("odd.toml");
    std::fs::write(&file, "port = 1\nprot = 7379\n").unwrap();
    let finished = refused(&["--config", file.to_str().unwrap()]);
    assert!(finished.err.contains("prot") && finished.err.contains("odd.toml"), "{}", finished.err);
    assert!(refused(&["--max-memory", "much"]).err.contains("much"));
    assert!(refused(&["--shards", "1000"]).err.contains("shards"));
    assert!(refused(&["--log", "a=b=c"]).err.contains("log"));
    refused(&["--config", "/nowhere/remora.toml"]);
    refused(&["--no-such-flag"]);
}

#[test]
fn a_socket_in_a_directory_that_others_may_write_is_refused() {
    use std::os::unix::fs::PermissionsExt;
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let mut command = remora();
    command.args(["serve", "--port", "0", "--socket"]).arg(directory.path().join("s"));
    let finished = run(&mut command);
    assert_eq!(finished.code, Some(1));
    assert!(finished.err.contains("written by others"), "{}", finished.err);
}

/// A server that is ready.
struct Served {
    child: Child,
    resp: String,
    fabric: Option<String>,
}

fn serve(socket: &Path, more: &[&str]) -> Served {
    let mut command = remora();
    command.args(["serve", "--port", "0", "--max-memory", "64MiB", "--log", "info", "--socket"]);
    command.arg(socket).args(more);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let pid = child.id();
    let rest = line.strip_prefix("ready resp=").unwrap_or_else(|| panic!("{line:?}"));
    let (resp, rest) = rest.split_once(' ').unwrap();
    let begin = format!("socket={} pid={pid}", socket.display());
    let named =
        rest.strip_prefix(&begin).and_then(|rest| rest.trim_end().strip_suffix(" durability=none"));
    let named = named.unwrap_or_else(|| panic!("{line:?}"));
    let fabric = named.strip_prefix(" fabric=").map(str::to_owned);
    assert!(fabric.is_some() || named.is_empty(), "{line:?}");
    Served { child, resp: resp.to_owned(), fabric }
}

impl Served {
    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    fn ended_well(mut self) -> String {
        let status = self.child.wait().unwrap();
        let mut err = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut err).unwrap();
        assert!(status.success(), "{status}: {err}");
        err
    }
}

#[test]
fn signals_drain_and_leave_no_socket() {
    for signal in [Signal::TERM, Signal::INT] {
        let directory = tempfile::tempdir().unwrap();
        let socket = directory.path().join("s");
        let served = serve(&socket, &[]);
        let mut stream = TcpStream::connect(&served.resp).unwrap();
        stream.write_all(b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n").unwrap();
        let mut reply = [0; 5];
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(&reply, b"+OK\r\n");
        served.signal(signal);
        let log = served.ended_well();
        assert!(log.contains("draining"), "{log}");
        assert!(!socket.exists());
        assert!(directory.path().exists(), "the directory was not the server's");
    }
}

#[test]
fn the_line_of_a_ready_server_names_each_address_that_listens() {
    let directory = tempfile::tempdir().unwrap();
    let served = serve(&directory.path().join("s"), &["--fabric-address=127.0.0.1:0"]);
    let fabric = served.fabric.as_ref().expect("it is named");
    assert!(!fabric.ends_with(":0"), "{fabric}");
    TcpStream::connect(fabric).unwrap();
    served.signal(Signal::TERM);
    served.ended_well();
    let served = serve(&directory.path().join("s"), &[]);
    assert_eq!(served.fabric, None, "nothing listens there");
    served.signal(Signal::TERM);
    served.ended_well();
}

#[test]
fn an_owned_server_ends_with_its_owner_and_takes_the_directory_along() {
    let above = tempfile::tempdir().unwrap();
    let directory = above.path().join("own");
    std::fs::create_dir(&directory).unwrap();
    let mut served = serve(&directory.join("s"), &["--owned-by-parent"]);
    drop(served.child.stdin.take());
    served.ended_well();
    assert!(!directory.exists());
}

#[test]
fn a_killed_server_can_be_started_again_in_its_place() {
    let directory = tempfile::tempdir().unwrap();
    let socket = directory.path().join("s");
    let mut first = serve(&socket, &[]);
    first.signal(Signal::KILL);
    first.child.wait().unwrap();
    assert!(socket.exists());
    let second = serve(&socket, &[]);
    let mut command = remora();
    command.args(["serve", "--port", "0", "--socket"]).arg(&socket);
    let third = run(&mut command);
    assert_eq!(third.code, Some(1), "two servers on one socket");
    second.signal(Signal::TERM);
    second.ended_well();
    wait_until("the socket is gone", || !socket.exists());
}

#[test]
fn another_address_than_loopback_is_loudly_warned_of() {
    let directory = tempfile::tempdir().unwrap();
    let served =
        serve(&directory.path().join("s"), &["--bind", "0.0.0.0", "--protected-mode=false"]);
    served.signal(Signal::TERM);
    let log = served.ended_well();
    assert!(log.contains("NO AUTHENTICATION"), "{log}");
}
