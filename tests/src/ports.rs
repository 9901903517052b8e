//! Ports for servers that are started again at the same one.

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicU32, Ordering};

/// The first of the ports, and how many there are: below those that the kernel gives to connections by itself,
/// which another test could have by the time that a server listens.
const PORTS: (u32, u32) = (20_000, 12_000);

/// A free port of this host. It comes once in a process.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    loop {
        let number = std::process::id().wrapping_mul(97) + NEXT.fetch_add(1, Ordering::Relaxed);
        let port = (PORTS.0 + number % PORTS.1) as u16;
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}
