//! A whole server within the test's own process, so that a tool that watches
//! one process, such as ThreadSanitizer, sees all of its threads.

use remora_client_core::{Path, Session, SetOptions};
use remora_server::{Config, Server, Wake};
use remora_tests::own_config;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

const ROUNDS: u32 = 150;

fn key(number: u32) -> Vec<u8> {
    format!("key-{}", number % 20).into_bytes()
}

fn over_rings(socket: &std::path::Path, path: Path) {
    let mut session = Session::connect(socket, &remora_tests::options()).unwrap();
    for round in 0..ROUNDS {
        let key = key(round);
        session.set(&key, &[round as u8; 40], SetOptions::default()).unwrap();
        // Other clients write too; whatever is there is whole.
        let got = session.get(&key, path).unwrap();
        let value = got.value.expect("nobody removes keys");
        assert!(value.iter().all(|byte| *byte == value[0]) && value.len() == 40);
    }
}

fn over_resp(address: SocketAddr) {
    let mut stream = TcpStream::connect(address).unwrap();
    for round in 0..ROUNDS {
        let key = String::from_utf8(key(round)).unwrap();
        let value = "r".repeat(40);
        stream.write_all(format!("SET {key} {value}\r\nGET {key}\r\n").as_bytes()).unwrap();
        let mut reply = [0u8; 5 + 5 + 42];
        stream.read_exact(&mut reply).unwrap();
        assert!(reply.starts_with(b"+OK\r\n$40\r\n"));
    }
}

#[test]
fn clients_of_every_kind_at_once() {
    let directory = tempfile::tempdir().unwrap();
    for wake in [Wake::Hybrid, Wake::Event] {
        let socket = directory.path().join("socket");
        let server = Server::start(Config { wake, ..own_config(&socket) }).unwrap();
        let address = server.resp_address();
        std::thread::scope(|scope| {
            for path in [Path::Ask, Path::Read, Path::Choose] {
                let socket = &socket;
                scope.spawn(move || over_rings(socket, path));
            }
            scope.spawn(move || over_resp(address));
        });
        server.shutdown();
    }
}
