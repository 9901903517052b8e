//! A client's stream of bytes: plain, or TLS.

use crate::address_limit::AddressPermit;
use remora_frontend::ByteStream;
use remora_tls::TlsStream;
use std::io::{Read, Result, Write};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};

/// A socket that never blocks, plain or encrypted. While it is there, it counts among the limit.
pub enum ClientStream {
    Plain(TcpStream, AddressPermit),
    Tls(Box<TlsStream>, AddressPermit),
}

impl Read for ClientStream {
    #[inline]
    fn read(&mut self, into: &mut [u8]) -> Result<usize> {
        match self {
            Self::Plain(socket, _) => socket.read(into),
            Self::Tls(stream, _) => stream.read(into),
        }
    }
}

impl ByteStream for ClientStream {
    #[inline]
    fn has_more(&self) -> bool {
        match self {
            Self::Plain(..) => false,
            Self::Tls(stream, _) => stream.session().has_more(),
        }
    }
}

impl Write for ClientStream {
    #[inline]
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        match self {
            Self::Plain(socket, _) => socket.write(bytes),
            Self::Tls(stream, _) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}

impl AsFd for ClientStream {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Plain(socket, _) => socket.as_fd(),
            Self::Tls(stream, _) => stream.as_fd(),
        }
    }
}
