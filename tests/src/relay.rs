//! A relay of TCP connections between two servers, which can hold back what one of them sends.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{sleep, spawn};
use std::time::Duration;

/// How often a held connection looks whether it goes on.
const LOOK: Duration = Duration::from_millis(1);

/// See the module's text. Its threads end with the connections.
pub struct Relay {
    address: SocketAddr,
    holds: Arc<AtomicBool>,
}

impl Relay {
    /// Takes connections for the server at this address.
    pub fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let (address, holds) = (listener.local_addr().unwrap(), Arc::new(AtomicBool::new(false)));
        let held = Arc::clone(&holds);
        spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(to) = TcpStream::connect(server) else { continue };
                let back = (to.try_clone().unwrap(), client.try_clone().unwrap());
                spawn(move || copy(client, to, None));
                let held = Arc::clone(&held);
                spawn(move || copy(back.0, back.1, Some(&held)));
            }
        });
        Self { address, holds }
    }

    /// Where it takes connections.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Holds back what the server sends, or lets it go.
    pub fn hold(&self, holds: bool) {
        self.holds.store(holds, Ordering::SeqCst);
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream, held: Option<&AtomicBool>) {
    let mut bytes = vec![0; 64 << 10];
    let _ = to.set_nodelay(true);
    while let Ok(taken @ 1..) = from.read(&mut bytes) {
        while held.is_some_and(|held| held.load(Ordering::SeqCst)) {
            sleep(LOOK);
        }
        if to.write_all(&bytes[..taken]).is_err() {
            break;
        }
    }
    let _ = (from.shutdown(Shutdown::Both), to.shutdown(Shutdown::Both));
}
