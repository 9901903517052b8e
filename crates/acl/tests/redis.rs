//! A real redis-server, and its replies.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// A redis-server on a Unix socket, in a directory of its own; it is killed when this is dropped.
pub struct Redis {
    child: Child,
    directory: PathBuf,
}

impl Redis {
    /// Starts one; `None` if `REMORA_SKIP` says that it is missing.
    pub fn start(name: &str) -> Option<Self> {
        let skip = std::env::var("REMORA_SKIP").unwrap_or_default();
        if skip.split(',').any(|tool| tool.trim() == "redis-server") {
            println!("not run: redis-server is missing, as REMORA_SKIP says");
            return None;
        }
        let name = format!("remora-acl-{}-{name}", std::process::id());
        let directory = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("users"), "user default on nopass ~* &* +@all\n").unwrap();
        let mut command = Command::new("redis-server");
        command.args(["--port", "0", "--save", "", "--appendonly", "no"]);
        command.args(["--unixsocket", "socket", "--aclfile", "users"]).current_dir(&directory);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect("redis-server is installed");
        Some(Self { child, directory })
    }

    /// A connection.
    pub fn connect(&self) -> Connection {
        for _ in 0..1_000 {
            match UnixStream::connect(self.directory.join("socket")) {
                Ok(stream) => return Connection(BufReader::new(stream)),
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
        panic!("redis-server does not listen");
    }

    /// The path of the users' file.
    pub fn users_file(&self) -> PathBuf {
        self.directory.join("users")
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// A reply in RESP2.
#[derive(Clone, PartialEq, Debug)]
pub enum Reply {
    Text(Vec<u8>),
    Error(String),
    Integer(i64),
    List(Vec<Reply>),
    Nil,
}

impl Reply {
    /// The text of a string or an error.
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) => String::from_utf8_lossy(text).into_owned(),
            Self::Error(text) => text.clone(),
            other => panic!("no text: {other:?}"),
        }
    }

    /// The elements of a list.
    pub fn list(&self) -> &[Reply] {
        match self {
            Self::List(list) => list,
            other => panic!("no list: {other:?}"),
        }
    }

    /// The field of a map, which is a list in RESP2.
    pub fn field(&self, name: &str) -> &Reply {
        let list = self.list();
        let at = list.chunks(2).position(|pair| pair[0].text() == name);
        &list[2 * at.expect("the field") + 1]
    }
}

/// A connection to a redis-server.
pub struct Connection(BufReader<UnixStream>);

impl Connection {
    /// Sends a request and reads its reply.
    pub fn call<W: AsRef<[u8]>>(&mut self, words: &[W]) -> Reply {
        let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
        for word in words.iter().map(AsRef::as_ref) {
            bytes.extend(format!("${}\r\n", word.len()).bytes());
            bytes.extend_from_slice(word);
            bytes.extend_from_slice(b"\r\n");
        }
        self.0.get_mut().write_all(&bytes).unwrap();
        self.read()
    }

    fn read(&mut self) -> Reply {
        let mut line = Vec::new();
        self.0.read_until(b'\n', &mut line).unwrap();
        assert!(line.ends_with(b"\r\n"), "redis-server has closed the connection");
        line.truncate(line.len() - 2);
        let text = String::from_utf8_lossy(&line[1..]).into_owned();
        let number = || text.parse::<i64>().unwrap();
        match line[0] {
            b'+' => Reply::Text(line[1..].to_vec()),
            b'-' => Reply::Error(text),
            b':' => Reply::Integer(number()),
            b'$' if number() >= 0 => {
                let mut bytes = vec![0; number() as usize + 2];
                self.0.read_exact(&mut bytes).unwrap();
                bytes.truncate(bytes.len() - 2);
                Reply::Text(bytes)
            }
            b'*' if number() >= 0 => Reply::List((0..number()).map(|_| self.read()).collect()),
            _ => Reply::Nil,
        }
    }
}
