//! The descriptor of a connection, for an agent that watches it. The library's own
//! tests have sockets without one.

use super::connection::Connection;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for Connection {
    fn as_raw_fd(&self) -> RawFd {
        self.as_fd().as_raw_fd()
    }
}
