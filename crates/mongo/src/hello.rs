//! The handshake: `hello`, and its older names `isMaster` and `ismaster`.
//!
//! The server shows itself as a standalone server that takes writes. The reply has no
//! `topologyVersion`, so that drivers poll for changes, and no `setName`.
//!
//! Source: "MongoDB Handshake" and "Server Discovery and Monitoring" of the drivers'
//! specifications.

use crate::command::Command;
use crate::limits::{MAX_DOCUMENT_BYTES, MAX_MESSAGE_BYTES, MAX_WRITE_BATCH};
use crate::reply::CommandError;
use crate::scram::{MECHANISM, SaslReply};
use crate::wire::Compressor;
use crate::writer::DocumentWriter;
use bson::{RawDocument, cstr};

/// The oldest version of the protocol that the server speaks.
pub const MIN_WIRE_VERSION: i32 = 0;
/// The newest version of the protocol that the server speaks: that of MongoDB 7.0.
///
/// A driver refuses a server whose newest version is below the driver's oldest. PyMongo 4.14 and
/// the Node driver want 8 at least (MongoDB 4.2). Drivers raise this every few years, so that 8
/// would lock out the next ones. 25 (MongoDB 8.0) would make drivers send the command `bulkWrite`. All
/// that 9 to 21 add for a standalone server are options of commands.
pub const MAX_WIRE_VERSION: i32 = 21;
/// Minutes after which a session without commands ends.
pub const SESSION_TIMEOUT_MINUTES: i32 = 30;

/// What a client says in its handshake.
#[derive(Clone, Copy, Debug)]
pub struct HelloRequest<'a> {
    /// Whether the command was `hello`: the reply to its older names has `ismaster`.
    pub is_hello: bool,
    /// The client's own description, in the first handshake of a connection.
    pub client: Option<&'a RawDocument>,
    /// The user whose mechanisms the client asks for, as `database.user`.
    pub mechanisms_of: Option<&'a str>,
    /// The first step of a login, to be done at once.
    pub speculative: Option<&'a RawDocument>,
    /// Whether the client knows the command `hello`.
    pub hello_ok: bool,
    /// What server and client both have, in the client's order. A client uses the first.
    pub compressors: [Option<Compressor>; Compressor::OFFERED.len()],
}

impl<'a> HelloRequest<'a> {
    /// Whether a command is a handshake.
    pub fn is_name(name: &str) -> bool {
        matches!(name, "hello" | "isMaster" | "ismaster")
    }

    /// Reads a handshake.
    ///
    /// # Errors
    /// A field has the wrong type.
    pub fn of(command: &Command<'a>) -> Result<Self, CommandError> {
        let mut compressors = [None; Compressor::OFFERED.len()];
        if let Some(names) = command.array("compression")? {
            let names = names.into_iter().filter_map(Result::ok).filter_map(|name| name.as_str());
            for name in names {
                let offered = Compressor::OFFERED.into_iter().find(|known| known.name() == name);
                let Some(both) = offered.filter(|both| !compressors.contains(&Some(*both))) else {
                    continue;
                };
                // There are as many slots as different compressors.
                if let Some(slot) = compressors.iter_mut().find(|slot| slot.is_none()) {
                    *slot = Some(both);
                }
            }
        }
        Ok(Self {
            is_hello: command.name() == "hello",
            client: command.document("client")?,
            mechanisms_of: command.str("saslSupportedMechs")?,
            speculative: command.document("speculativeAuthenticate")?,
            hello_ok: command.bool("helloOk")?.unwrap_or(false),
            compressors,
        })
    }
}

/// What the server adds to the reply.
#[derive(Clone, Copy, Debug)]
pub struct HelloReply<'a> {
    /// The server's time, in milliseconds since 1970.
    pub local_time_ms: i64,
    /// The number of the connection, from 1.
    pub connection_id: i32,
    /// The reply to the first step of a login; `None` if there was none or it failed. The client
    /// then logs in by commands of its own.
    pub speculative: Option<&'a SaslReply>,
}

impl HelloReply<'_> {
    /// Writes the fields of the reply to `request`, but `ok`.
    ///
    /// If the client asks for the mechanisms of a user, the answer is the same for every name, so
    /// that it does not show which users exist.
    pub fn write(&self, request: &HelloRequest<'_>, reply: &mut DocumentWriter<'_>) {
        if request.hello_ok {
            reply.bool(cstr!("helloOk"), true);
        }
        let primary = if request.is_hello { cstr!("isWritablePrimary") } else { cstr!("ismaster") };
        reply.bool(primary, true);
        reply.i32(cstr!("maxBsonObjectSize"), MAX_DOCUMENT_BYTES as i32);
        reply.i32(cstr!("maxMessageSizeBytes"), MAX_MESSAGE_BYTES as i32);
        reply.i32(cstr!("maxWriteBatchSize"), MAX_WRITE_BATCH as i32);
        reply.datetime_ms(cstr!("localTime"), self.local_time_ms);
        reply.i32(cstr!("logicalSessionTimeoutMinutes"), SESSION_TIMEOUT_MINUTES);
        reply.i32(cstr!("connectionId"), self.connection_id);
        reply.i32(cstr!("minWireVersion"), MIN_WIRE_VERSION);
        reply.i32(cstr!("maxWireVersion"), MAX_WIRE_VERSION);
        reply.bool(cstr!("readOnly"), false);
        if request.compressors[0].is_some() {
            reply.array(cstr!("compression"), |names| {
                request.compressors.iter().flatten().for_each(|both| names.str(both.name()));
            });
        }
        if request.mechanisms_of.is_some() {
            reply.array(cstr!("saslSupportedMechs"), |names| names.str(MECHANISM));
        }
        if let Some(first) = self.speculative {
            reply.document(cstr!("speculativeAuthenticate"), |fields| first.write(fields));
        }
    }
}
