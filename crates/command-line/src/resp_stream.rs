//! The stream of a RESP client: plain, or TLS.

use anyhow::{Context, anyhow};
use remora_tls::{ClientTls, Progress, TlsError, TlsStream};
use std::io::{Error, Read, Result, Write};
use std::net::{Shutdown, TcpStream};

/// A socket that blocks, plain or encrypted.
#[derive(Debug)]
pub enum RespStream {
    Plain(TcpStream),
    Tls(Box<TlsStream>),
}

impl RespStream {
    /// The same connection, with TLS if there are settings for that. The certificate has to hold the name
    /// that was dialled.
    pub fn over(
        socket: TcpStream,
        (address, tls): (&str, Option<&ClientTls>),
    ) -> anyhow::Result<Self> {
        let Some(tls) = tls else { return Ok(Self::Plain(socket)) };
        let name = address.rsplit_once(':').map_or(address, |(name, _)| name);
        let mut session = tls.begin(name.trim_matches(['[', ']']))?;
        let shaken = session.handshake(&mut &socket).map_err(|error| anyhow!(error.with_advice()));
        match shaken.with_context(|| format!("TLS with {address}"))? {
            Progress::Done => Ok(Self::Tls(Box::new(TlsStream::waiting(socket, session)))),
            // The socket blocks: its time is over.
            Progress::WantsRead | Progress::WantsWrite => {
                Err(anyhow!("TLS with {address}: the server does not answer"))
            }
        }
    }

    /// The socket.
    pub fn socket(&self) -> &TcpStream {
        match self {
            Self::Plain(socket) => socket,
            Self::Tls(stream) => stream.socket(),
        }
    }

    /// Sends nothing more; it may still read.
    pub fn end_sending(&mut self) -> Result<()> {
        match self {
            Self::Plain(socket) => socket.shutdown(Shutdown::Write),
            Self::Tls(stream) => {
                stream.end_sending();
                Ok(())
            }
        }
    }
}

impl Read for RespStream {
    fn read(&mut self, into: &mut [u8]) -> Result<usize> {
        match self {
            Self::Plain(socket) => socket.read(into),
            // The first read tells that the server refuses the client's certificate.
            Self::Tls(stream) => stream.read(into).map_err(|error| match TlsError::of(&error) {
                Some(why) => Error::new(error.kind(), why.with_advice()),
                None => error,
            }),
        }
    }
}

impl Write for RespStream {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        match self {
            Self::Plain(socket) => socket.write(bytes),
            Self::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> Result<()> {
        Ok(())
    }
}
