//! What a session answers itself.

use super::connection::Connection;
use super::execute::Executor;
use super::host::Host;
use super::info;
use remora_resp::commands::{connection, server};
use remora_resp::request::{ClientAttribute, Hello, Request};
use remora_resp::wire::encode;
use remora_resp::{CommandError, table};

impl<H: Host> Executor<H> {
    /// What the session answers itself.
    pub(super) fn own_answer(&mut self, connection: &mut Connection, request: Request<'_>) {
        match request {
            Request::Ping(None) => connection.reply(|out, _| encode::simple(out, "PONG")),
            Request::Ping(Some(text)) | Request::Echo(text) => {
                connection.reply(|out, _| encode::bulk(out, text));
            }
            Request::Hello(hello) => self.hello(connection, &hello),
            Request::ClientSetName(name) => {
                connection.name = name.to_vec();
                connection.reply(|out, _| encode::ok(out));
            }
            Request::ClientGetName => {
                let name = connection.name.clone();
                connection.reply(|out, protocol| {
                    encode::bulk_or_null(out, protocol, Some(&name[..]).filter(|n| !n.is_empty()));
                });
            }
            Request::ClientSetInfo { attribute, value } => {
                let at = match attribute {
                    ClientAttribute::LibraryName => 0,
                    ClientAttribute::LibraryVersion => 1,
                };
                connection.library[at] = value.to_vec();
                connection.reply(|out, _| encode::ok(out));
            }
            Request::ClientId => {
                let id = connection.serial as i64;
                connection.reply(|out, _| encode::integer(out, id));
            }
            Request::ClientInfo => {
                let text = info::client(connection);
                connection.reply(|out, protocol| encode::verbatim(out, protocol, "txt", &text));
            }
            Request::Help(name) => connection.reply(|out, _| table::write_help(out, name)),
            Request::Info(sections) => {
                let text = self.host.info(&sections);
                connection.reply(|out, protocol| {
                    encode::verbatim(out, protocol, "txt", text.as_bytes());
                });
            }
            Request::ConfigGet(patterns) => {
                let parameters = self.host.parameters();
                let parameters: Vec<(&str, &str)> =
                    parameters.iter().map(|(name, value)| (*name, value.as_str())).collect();
                connection.reply(|out, protocol| {
                    server::write_config(out, protocol, &patterns, &parameters);
                });
            }
            Request::Command(query) => {
                connection.reply(|out, protocol| table::answer(out, protocol, &query));
            }
            Request::Quit => {
                connection.reply(|out, _| encode::ok(out));
                connection.quit();
            }
            Request::Select(database) => {
                connection.database = database;
                connection.reply(|out, _| encode::ok(out));
            }
            Request::KeySlot(key) => {
                let slot = remora_layout::slot::slot_of(key);
                connection.reply(|out, _| encode::integer(out, slot.into()));
            }
            // Data requests never come here.
            _ => connection.reply(|out, _| encode::ok(out)),
        }
    }

    fn hello(&self, connection: &mut Connection, hello: &Hello<'_>) {
        // There are no users: the default one has no password, and any other
        // is refused rather than believed.
        if hello.auth.is_some_and(|(user, _)| user != b"default") {
            return connection.reply(|out, _| CommandError::WrongPassword.write(out));
        }
        if let Some(name) = hello.name {
            connection.name = name.to_vec();
        }
        if let Some(protocol) = hello.protocol {
            connection.protocol = protocol;
        }
        let facts = connection::ServerFacts {
            server: "remora",
            version: env!("CARGO_PKG_VERSION"),
            connection: connection.serial as i64,
            mode: "standalone",
            role: "master",
        };
        connection.reply(|out, protocol| connection::write_hello(out, protocol, &facts));
    }
}
