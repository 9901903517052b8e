//! A load against a server that withholds its replies.

use super::*;
use std::collections::HashMap;
use std::io::{BufRead, BufReader, ErrorKind, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A connection that is silent for so long waits for its replies.
const SILENCE: Duration = Duration::from_millis(100);

/// What the server saw.
#[derive(Default)]
struct Seen {
    /// Writes of items that were answered.
    acknowledged: usize,
    /// The same when the root moved.
    at_move: Option<usize>,
    strings: HashMap<String, String>,
}

/// A server that answers writes of items only when nothing more comes.
struct SlowServer {
    address: String,
    seen: Arc<Mutex<Seen>>,
}

impl SlowServer {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let seen = Arc::default();
        let shared = Arc::clone(&seen);
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || serve(stream.unwrap(), &shared));
            }
        });
        Self { address, seen }
    }
}

fn serve(stream: TcpStream, seen: &Mutex<Seen>) {
    let mut out = stream.try_clone().unwrap();
    let mut input = BufReader::new(stream);
    let mut withheld = 0;
    loop {
        input.get_ref().set_read_timeout(Some(SILENCE)).unwrap();
        match input.fill_buf() {
            Ok([]) => return,
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                seen.lock().unwrap().acknowledged += withheld;
                out.write_all(":1\r\n".repeat(withheld).as_bytes()).unwrap();
                withheld = 0;
                continue;
            }
            Err(_) => return,
        }
        // The rest of a command comes, however late.
        input.get_ref().set_read_timeout(None).unwrap();
        let words = command(&mut input);
        if words[1].starts_with("s@1:") {
            withheld += 1;
            continue;
        }
        let reply = seen.lock().unwrap().reply(&words);
        out.write_all(reply.as_bytes()).unwrap();
    }
}

/// The words of a command.
fn command(input: &mut impl BufRead) -> Vec<String> {
    let count = length(input, "*");
    let mut word = || {
        let mut text = vec![0; length(input, "$") + 2];
        input.read_exact(&mut text).unwrap();
        text.truncate(text.len() - 2);
        String::from_utf8(text).unwrap()
    };
    (0..count).map(|_| word()).collect()
}

fn length(input: &mut impl BufRead, kind: &str) -> usize {
    let mut line = String::new();
    input.read_line(&mut line).unwrap();
    line.trim().strip_prefix(kind).unwrap().parse().unwrap()
}

impl Seen {
    fn reply(&mut self, words: &[String]) -> String {
        match words[0].as_str() {
            "INFO" => "$0\r\n\r\n".into(),
            "TYPE" => "+none\r\n".into(),
            "SET" => {
                self.strings.insert(words[1].clone(), words[2].clone());
                "+OK\r\n".into()
            }
            "GET" => match self.strings.get(&words[1]) {
                Some(value) => format!("${}\r\n{value}\r\n", value.len()),
                None => "$-1\r\n".into(),
            },
            "RENAME" => {
                self.at_move = Some(self.acknowledged);
                "+OK\r\n".into()
            }
            _ => ":1\r\n".into(),
        }
    }
}

#[test]
fn the_root_moves_when_all_writes_are_acknowledged() {
    const ROWS: usize = 300;
    let server = SlowServer::start();
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("rows.csv");
    let rows: String = (0..ROWS).map(|row| format!("{row},{}\n", row + 1)).collect();
    std::fs::write(&file, format!("id,next\n{rows}")).unwrap();
    let mapping = Mapping::parse(
        "name = \"s\"\n[[items]]\nkey = \"{id}\"\nfields = { id = \"id\" }\nlinks = { next = \"{next}\" }",
    )
    .unwrap();
    let job = Job {
        source: file.to_str().unwrap(),
        mapping: &mapping,
        server: &server.address,
        grace: Duration::ZERO,
        allow_empty: false,
    };
    let loaded = job.run().unwrap();
    assert_eq!((loaded.rows, loaded.counts.items, loaded.counts.links), (300, 300, 300));
    let at_move = server.seen.lock().unwrap().at_move;
    assert_eq!(at_move, Some(2 * ROWS), "the root moved before all writes were acknowledged");
}
