//! What a client says when `auto` does not get shared memory. In a process of its own:
//! what has been said once in a process is not said again in it.

use remora_client_core::{Options, Session, Wanted};
use remora_tests::{ServerProcess, Value, in_own_process};
use std::io::Write;
use std::net::SocketAddr;
use std::sync::Mutex;

static LOG: Mutex<Vec<u8>> = Mutex::new(Vec::new());

/// Writes into [`LOG`].
struct Log;

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        LOG.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The lines that say that a session falls back.
fn said() -> Vec<String> {
    let log = String::from_utf8(LOG.lock().unwrap().clone()).unwrap();
    log.lines().filter(|line| line.contains("falling back to tcp")).map(str::to_owned).collect()
}

#[test]
fn the_fallback_of_auto_is_told_once_with_its_reason() {
    in_own_process(|| {
        tracing_subscriber::fmt().with_ansi(false).with_writer(|| Log).init();
        let server = ServerProcess::start(&[
            "--max-memory=32MiB",
            "--fabric-address=127.0.0.1:0",
            "--transport=tcp",
        ]);
        let told = server.resp().call("CONFIG GET fabric_address");
        let Value::Array(pair) = &told else { panic!("{told:?}") };
        let Some(Value::Bulk(address)) = pair.get(1) else { panic!("{told:?}") };
        let address: SocketAddr = String::from_utf8_lossy(address).parse().unwrap();
        let connect = |transport, by_socket| {
            let options = Options { transport, ..remora_tests::by_pointers() };
            let session = match by_socket {
                true => Session::connect(&server.socket(), &options),
                false => Session::connect(address, &options),
            };
            assert_eq!(session.unwrap().transport().name(), "tcp");
        };
        connect(Wanted::Tcp, false);
        connect(Wanted::Tcp, true);
        assert_eq!(said(), [""; 0], "it is what was asked for");
        // Several at once, and by both ways.
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let connect = &connect;
                scope.spawn(move || connect(Wanted::Auto, thread % 2 == 0));
            }
        });
        connect(Wanted::Auto, false);
        connect(Wanted::Auto, true);
        let said = said();
        assert_eq!(said.len(), 1, "{said:?}");
        assert!(said[0].contains("WARN") && said[0].contains("shared memory"), "{said:?}");
    });
}
