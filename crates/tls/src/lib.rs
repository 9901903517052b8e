//! TLS 1.2 and 1.3 on streams that never block, by `rustls`: settings from files that may change,
//! handshakes in steps, reads and writes for threads that wait for many sockets.
//!
//! A [`TlsSession`] has no socket: it is given one with each call. So a stream that several threads
//! use keeps it behind a lock of its own, and a stream of one thread ([`TlsStream`]) without one.
//!
//! ```
//! use remora_tls::{ClientTls, Progress, ServerTls, ServerTlsSettings, TlsStream};
//! use std::io::Read;
//! use std::net::{TcpListener, TcpStream};
//!
//! # let directory = tempfile::tempdir()?;
//! # let made = rcgen::generate_simple_self_signed(["localhost".to_owned()])?;
//! # std::fs::write(directory.path().join("cert.pem"), made.cert.pem())?;
//! # std::fs::write(directory.path().join("key.pem"), made.signing_key.serialize_pem())?;
//! # let at = |name: &str| directory.path().join(name);
//! let server = ServerTls::load(ServerTlsSettings::new(at("cert.pem"), at("key.pem")))?;
//! let client = ClientTls::load(&at("cert.pem"), None)?;
//!
//! let listener = TcpListener::bind("127.0.0.1:0")?;
//! let address = listener.local_addr()?;
//! let thread = std::thread::spawn(move || {
//!     let stream = TcpStream::connect(address)?;
//!     let mut session = client.begin("localhost").map_err(std::io::Error::other)?;
//!     // A socket that blocks is done with its handshake in one call.
//!     session.handshake(&mut &stream).map_err(std::io::Error::other)?;
//!     session.send(&mut &stream, b"hello")
//! });
//! let (stream, _) = listener.accept()?;
//! let mut session = server.begin()?;
//! while session.handshake(&mut &stream)? != Progress::Done {}
//! let mut bytes = [0; 5];
//! TlsStream::waiting(stream, session).read_exact(&mut bytes)?;
//! assert_eq!(&bytes, b"hello");
//! assert_eq!(thread.join().unwrap()?, 5);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

mod client;
mod error;
mod files;
mod server;
mod session;
mod stream;

pub use client::{ClientTls, ClientTlsSettings, is_server_name, use_own_cryptography};
pub use error::TlsError;
pub use server::{ClientCertificates, LeastVersion, ServerTls, ServerTlsSettings};
pub use session::{Progress, TlsSession};
pub use stream::TlsStream;
