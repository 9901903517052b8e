//! The clients of MongoDB's protocol as their accept loop hands them over.

use crate::client_stream::ClientStream;
use crate::clients::Served;
use crate::inbox::{HandedMongo, Message};
use remora_acl::Login;
use remora_frontend::Connection;
use remora_mongo::frontend::MongoClient;
use std::net::SocketAddr;

/// Clients that speak MongoDB's protocol. One that is too many is closed: an error would answer no message
/// of it.
pub struct MongoClients;

impl Served for MongoClients {
    const NAME: &'static str = "the acceptor of MongoDB's protocol";
    /// Numbers differ from those of RESP's connections.
    const FIRST_SERIAL: u64 = (1 << 48) + 1;
    const TOO_MANY: &'static [u8] = b"";
    const TOO_MANY_OF_ADDRESS: &'static [u8] = b"";
    const TOO_MANY_OF_USER: &'static [u8] = b"";
    const NO_DESCRIPTOR: &'static [u8] = b"";

    fn message(stream: ClientStream, (peer, serial): (SocketAddr, u64), login: Login) -> Message {
        let client = MongoClient { login, ..MongoClient::default() };
        let connection = Connection::new(peer, serial).of_client(client);
        Message::ServeMongo(Box::new(HandedMongo { stream, connection }))
    }
}
