//! Requests that a session answers itself.

use super::executor::{RespExecutor, Responder};
use super::host::{Host, Save};
use super::info;
use remora_frontend::{Question, Waiting, What};
use remora_layout::database::Database;
use remora_resp::commands::replication::RoleFacts;
use remora_resp::commands::{cluster, connection, replication, sentinel, server, subscribe};
use remora_resp::request::{ClientAttribute, Hello, Request, RoleRequest, SubscriptionChange};
use remora_resp::wire::{RespVersion, encode};
use remora_resp::{CommandError, ReplyForm, table};

impl<H: Host> RespExecutor<H> {
    /// Answers a request that concerns only the session.
    pub(super) fn own_answer(&mut self, responder: &mut Responder, request: Request<'_>) {
        match request {
            Request::Ping(text)
                if responder.client.subscriptions.is_some()
                    && responder.client.version == RespVersion::Resp2 =>
            {
                responder.reply(|out, _| subscribe::write_pong(out, text.unwrap_or_default()));
            }
            Request::Ping(None) => responder.reply(|out, _| encode::simple(out, "PONG")),
            Request::Ping(Some(text)) | Request::Echo(text) => {
                responder.reply(|out, _| encode::bulk(out, text));
            }
            Request::Hello(hello) => self.hello(responder, &hello),
            Request::Auth { user, password, command } => {
                self.auth(responder, command, (user, password));
            }
            Request::Acl(request) => self.acl(responder, &request),
            Request::Help(name) => responder.reply(|out, _| table::write_help(out, name)),
            Request::Info(sections) => {
                let text = self.host.info(&sections);
                responder.reply(|out, version| {
                    encode::verbatim(out, version, "txt", text.as_bytes());
                });
            }
            Request::BgSave => self.begin_save(responder),
            Request::ChangeRole(change) => self.change_role(responder, change),
            Request::Role => self.role(responder),
            Request::Deliver(message) => self.deliver(responder, message),
            Request::LastSave => self.last_save(responder),
            Request::ConfigGet(patterns) => {
                let parameters = self.host.parameters();
                let parameters: Vec<(&str, &str)> =
                    parameters.iter().map(|(name, value)| (*name, value.as_str())).collect();
                responder.reply(|out, version| {
                    server::write_config(out, version, &patterns, &parameters);
                });
            }
            Request::Command(query) => {
                responder.reply(|out, version| table::answer(out, version, &query));
            }
            Request::Quit => {
                responder.reply(|out, _| encode::ok(out));
                responder.quit();
            }
            Request::Select(database)
                if database != Database::ZERO && self.host.cluster().is_some() =>
            {
                responder.reply(|out, _| CommandError::OneDatabase("SELECT").write(out));
            }
            Request::Select(database) => {
                responder.database = database;
                responder.reply(|out, _| encode::ok(out));
            }
            Request::KeySlot(key) => {
                let slot = remora_layout::slot::slot_of(key);
                responder.reply(|out, _| encode::integer(out, slot.into()));
            }
            Request::Subscribe(change) => self.subscribe(responder, &change),
            other => self.client_answer(responder, other),
        }
    }

    /// The same, of requests about the connection's client, and about the cluster.
    fn client_answer(&mut self, responder: &mut Responder, request: Request<'_>) {
        match request {
            Request::ClientSetName(name) => {
                responder.client.name = name.to_vec();
                responder.reply(|out, _| encode::ok(out));
            }
            Request::ClientGetName => {
                let name = responder.client.name.clone();
                responder.reply(|out, version| {
                    encode::bulk_or_null(out, version, Some(&name[..]).filter(|n| !n.is_empty()));
                });
            }
            Request::ClientSetInfo { attribute, value } => {
                let at = match attribute {
                    ClientAttribute::LibraryName => 0,
                    ClientAttribute::LibraryVersion => 1,
                };
                responder.client.library[at] = value.to_vec();
                responder.reply(|out, _| encode::ok(out));
            }
            Request::ClientId => {
                let id = responder.serial() as i64;
                responder.reply(|out, _| encode::integer(out, id));
            }
            Request::ClientInfo => {
                let text = info::client(responder);
                responder.reply(|out, version| encode::verbatim(out, version, "txt", &text));
            }
            Request::Cluster(question) => {
                let facts = self.host.cluster().map(|facts| &**facts);
                responder.reply(|out, version| cluster::answer(out, version, facts, question));
            }
            Request::Sentinel(question) => {
                let facts = self.host.cluster().map(|facts| &**facts);
                responder.reply(|out, version| sentinel::answer(out, version, facts, question));
            }
            Request::ReplicaReads(reads) => match self.host.cluster() {
                None => responder.reply(|out, _| CommandError::NoCluster.write(out)),
                Some(_) => {
                    responder.client.reads_replicas = reads;
                    responder.reply(|out, _| encode::ok(out));
                }
            },
            // Data requests never come here.
            _ => responder.reply(|out, _| encode::ok(out)),
        }
    }

    /// A message of another server: who sends one can have this server lead, or follow.
    fn deliver(&self, responder: &mut Responder, message: &[u8]) {
        if self.host.users().is_some() && !responder.client.login.is_unrestricted() {
            let text = "messages of servers are taken from users that may do all".to_owned();
            return responder.reply(|out, _| CommandError::NoPermission(text).write(out));
        }
        let delivered = self.host.deliver(message);
        responder.reply(|out, _| match delivered {
            Ok(()) => encode::ok(out),
            Err(why) => encode::error(out, why),
        });
    }

    /// Changes what the connection is subscribed to.
    fn subscribe(&mut self, responder: &mut Responder, change: &SubscriptionChange<'_>) {
        if change.begins && self.host.cluster().is_none() {
            return responder.reply(|out, _| CommandError::NoChannels.write(out));
        }
        let mut of = responder.client.subscriptions.take().unwrap_or_default();
        responder.reply(|out, version| {
            if let Err(error) = of.change(out, version, change) {
                error.write(out);
            }
        });
        let has_some = of.count() > 0;
        responder.client.subscriptions = has_some.then_some(of);
        responder.take_pushes(has_some);
    }

    fn role(&self, responder: &mut Responder) {
        let facts = self.host.role();
        responder.reply(|out, _| replication::write_role(out, &facts));
    }

    fn last_save(&self, responder: &mut Responder) {
        let at_s = self.host.last_save_s() as i64;
        responder.reply(|out, _| encode::integer(out, at_s));
    }

    /// The reply comes once the role has changed. What the connection sends behind it is carried
    /// out in the new role.
    fn change_role(&mut self, responder: &mut Responder, change: RoleRequest<'_>) {
        let home = self.host.home();
        let token = self.token_of(responder, home, 0);
        if let Err(refusal) = self.host.change_role(change, token) {
            return responder.reply(|out, _| encode::error(out, &refusal));
        }
        let asked = Question { shard: home, what: What::Other, bytes: 0 };
        responder.expect_large();
        responder.ask(asked, self.host.shards());
        responder.wait(Waiting::all(ReplyForm::Combined(&replication::CHANGED), [asked]));
    }

    fn begin_save(&self, responder: &mut Responder) {
        let answer = self.host.begin_save();
        responder.reply(|out, _| match answer {
            Save::Begun => encode::simple(out, "Background saving started"),
            Save::UnderWay => encode::error(out, "ERR Background save already in progress"),
            Save::NothingKept => CommandError::NothingKept.write(out),
        });
    }

    fn hello(&mut self, responder: &mut Responder, hello: &Hello<'_>) {
        if let Err(error) = self.hello_user(responder, hello) {
            return responder.reply(|out, _| error.write(out));
        }
        if let Some(name) = hello.name {
            responder.client.name = name.to_vec();
        }
        if let Some(version) = hello.version {
            responder.client.version = version;
        }
        let facts = connection::ServerFacts {
            server: "remora",
            version: env!("CARGO_PKG_VERSION"),
            connection: responder.serial() as i64,
            mode: if self.host.cluster().is_some() { "cluster" } else { "standalone" },
            role: match self.host.role() {
                RoleFacts::Primary { .. } => "master",
                RoleFacts::Replica { .. } => "replica",
            },
        };
        responder.reply(|out, version| connection::write_hello(out, version, &facts));
    }
}
