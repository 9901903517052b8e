//! What stands between a member and its server: it passes bytes on, or holds them in one direction or in
//! both, as a network does that is cut, or ends the connections.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// How often a thread looks whether the link is cut, or the proxy is gone.
const LOOK: Duration = Duration::from_millis(5);

#[derive(Default)]
struct State {
    is_to_cut: AtomicBool,
    is_from_cut: AtomicBool,
    is_gone: AtomicBool,
    /// Connections that were passed on to the server.
    accepted: AtomicU64,
    /// Those up to this one are to end.
    ended: AtomicU64,
}

/// One member's way to the server. Its threads end when it is dropped.
pub struct Proxy {
    pub port: u16,
    state: Arc<State>,
}

impl Proxy {
    pub fn to(server: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        listener.set_nonblocking(true).expect("a listener");
        let port = listener.local_addr().expect("bound").port();
        let state = Arc::new(State::default());
        let shared = Arc::clone(&state);
        std::thread::spawn(move || accept(&listener, server, &shared));
        Self { port, state }
    }

    /// Holds what comes from the member (`to`), and what comes from the server (`from`).
    pub fn cut(&self, to: bool, from: bool) {
        self.state.is_to_cut.store(to, Ordering::Relaxed);
        self.state.is_from_cut.store(from, Ordering::Relaxed);
    }

    /// Connections that were passed on to the server so far.
    pub fn accepted(&self) -> u64 {
        self.state.accepted.load(Ordering::Relaxed)
    }

    /// Ends the connections that there are.
    pub fn end(&self) {
        self.state.ended.store(self.accepted(), Ordering::Relaxed);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.state.is_gone.store(true, Ordering::Relaxed);
    }
}

fn accept(listener: &TcpListener, server: u16, state: &Arc<State>) {
    while !state.is_gone.load(Ordering::Relaxed) {
        let Ok((member, _)) = listener.accept() else {
            std::thread::sleep(LOOK);
            continue;
        };
        // While the server is down the member's connection ends.
        let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else { continue };
        let number = state.accepted.fetch_add(1, Ordering::Relaxed) + 1;
        for (from, to, is_to) in [(&member, &server, true), (&server, &member, false)] {
            let (from, to) =
                (from.try_clone().expect("a socket"), to.try_clone().expect("a socket"));
            let state = Arc::clone(state);
            std::thread::spawn(move || pass(from, to, (is_to, number), &state));
        }
    }
}

fn pass(mut from: TcpStream, mut to: TcpStream, (is_to, number): (bool, u64), state: &State) {
    let is_over =
        || state.is_gone.load(Ordering::Relaxed) || state.ended.load(Ordering::Relaxed) >= number;
    let is_cut = if is_to { &state.is_to_cut } else { &state.is_from_cut };
    from.set_nonblocking(false).and_then(|()| from.set_read_timeout(Some(LOOK))).expect("a socket");
    let mut bytes = [0; 4096];
    while !is_over() {
        if is_cut.load(Ordering::Relaxed) {
            std::thread::sleep(LOOK);
            continue;
        }
        match from.read(&mut bytes) {
            Ok(0) => break,
            Ok(count) => {
                // The cut may have come while this waited: what it took waits, too.
                while is_cut.load(Ordering::Relaxed) && !is_over() {
                    std::thread::sleep(LOOK);
                }
                if to.write_all(&bytes[..count]).is_err() {
                    break;
                }
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
            Err(_) => break,
        }
    }
    let _ = to.shutdown(Shutdown::Write);
    if is_over() {
        let _ = from.shutdown(Shutdown::Both);
    }
}
