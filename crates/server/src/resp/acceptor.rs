//! RESP's clients as the accept loop hands them over.

use crate::client_stream::ClientStream;
use crate::clients::Served;
use crate::inbox::{Handed, Message};
use remora_acl::Login;
use remora_frontend::Connection;
use remora_resp::RespClient;
use std::net::SocketAddr;

/// Clients that speak RESP.
pub struct RespClients;

impl Served for RespClients {
    const NAME: &'static str = "the acceptor";
    const FIRST_SERIAL: u64 = 1;
    /// In Redis's words.
    const TOO_MANY: &'static [u8] = b"-ERR max number of clients reached\r\n";
    const TOO_MANY_OF_ADDRESS: &'static [u8] =
        b"-ERR max number of clients of this address reached\r\n";
    const TOO_MANY_OF_USER: &'static [u8] = b"-ERR max number of logins of this user reached\r\n";
    const NO_DESCRIPTOR: &'static [u8] =
        b"-ERR the server has no file descriptor left for another client: \
close some, or raise its limit of open files (ulimit -n)\r\n";

    fn message(stream: ClientStream, (peer, serial): (SocketAddr, u64), login: Login) -> Message {
        let client = RespClient { login, ..RespClient::default() };
        let connection = Connection::new(peer, serial).of_client(client);
        Message::Serve(Box::new(Handed { stream, connection }))
    }
}
