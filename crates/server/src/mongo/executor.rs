//! Executes the messages of the connections of one thread.
//!
//! Invariants: a connection has one command under way, and its next message waits; what a command does in
//! one turn of the thread is bounded; a reply leaves once what it tells is durable.

use crate::client_memory::HeldMemory;
use crate::resp::ShardHost;
use crate::users::UserTable;
use remora_acl::{DEFAULT_USER, User};
use remora_engine::moving::{self, How, KeyAt, Moving};
use remora_frontend::{
    Executor, Here, Job, ManyKeys, News, OwnedReply, Protocol, Question, Responder, ShardPort,
    Token, Waiting, What,
};
use remora_layout::database::Database;
use remora_layout::hash::KeyHash;
use remora_layout::limits::UNAUTHENTICATED_REQUEST_BYTES;
use remora_mongo::bson::cstr;
use remora_mongo::commands::{self, Right, Spec};
use remora_mongo::fields::Common;
use remora_mongo::frontend::{MessageBytes, Mongo, WholeReply};
use remora_mongo::hello::{HelloReply, HelloRequest};
use remora_mongo::running::{Begun, Context, MongoServer, Rights, Running, Step};
use remora_mongo::wire::{Body, Compressor, Message, Parsed, WireError, compress, parse};
use remora_mongo::{Command, CommandError, Envelope, ErrorCode};
use remora_protocol::message::Status;
use remora_protocol::{Command as Asked, Reply};
use remora_resp::table::asked;
use std::collections::HashMap;
use std::sync::Arc;

/// Questions that a command may ask its thread's own shard at once, before others have their turn.
const STEPS_AT_ONCE: usize = 4;

/// The commands of one thread that are under way, by the numbers of their connections.
#[derive(Default)]
pub(super) struct Commands {
    under_way: HashMap<u64, UnderWay>,
    /// Room for a message that was compressed.
    original: Vec<u8>,
    /// The users as the connections were looked at last.
    users_version: u64,
}

struct UnderWay {
    running: Box<dyn Running>,
    /// A key that gets another name. It runs to its end even if the connection is closed.
    moving: Option<Moving>,
    common: Common,
    replies: Replies,
    user: Option<Vec<u8>>,
}

/// How a command is replied to.
#[derive(Clone, Copy)]
struct Replies {
    /// None: the client wants no reply.
    envelope: Option<Envelope>,
    compressor: Option<Compressor>,
}

/// What becomes of a command in one turn.
enum Turn {
    /// The reply.
    Reply(Result<Vec<u8>, CommandError>),
    /// Its answer comes from this shard.
    Asked(Question),
}

/// See the module's text.
pub(super) struct MongoExecutor<'a> {
    host: &'a mut ShardHost,
    commands: &'a mut Commands,
}

impl<'a> MongoExecutor<'a> {
    pub(super) const fn new(host: &'a mut ShardHost, commands: &'a mut Commands) -> Self {
        Self { host, commands }
    }

    /// The server's users.
    pub(super) fn port_users(&self) -> &Arc<UserTable> {
        &self.host.shared.users
    }

    /// Unix ms of the present turn.
    pub(super) fn now_ms(&self) -> u64 {
        self.host.now_ms()
    }

    /// What commands know of the server.
    pub(super) fn server(&self) -> Arc<MongoServer> {
        let server = self.host.shared.mongo.as_ref();
        Arc::clone(server.expect("without it there are no such connections"))
    }

    /// A message that is whole.
    fn message(&mut self, responder: &mut Responder<Mongo>, bytes: &[u8]) {
        let message = match parse(bytes) {
            Ok(Parsed::Message { message, .. }) => message,
            // Its length was known before.
            Ok(Parsed::Incomplete { .. }) => return responder.quit(),
            Err(error) => return self.no_message(responder, &error),
        };
        let Body::Compressed(compressed) = message.body else {
            return self.plain(responder, &message, None);
        };
        let is_long = compressed.uncompressed_bytes() > UNAUTHENTICATED_REQUEST_BYTES;
        if is_long && let Some(text) = self.refuses_long(responder) {
            self.host.counts().protocol_errors.add(1);
            responder.reply(|out, ()| Mongo::write_error(out, text));
            return responder.quit();
        }
        let compressor = compressed.compressor();
        let mut original = std::mem::take(&mut self.commands.original);
        match compressed.decompress(&mut original) {
            Ok(message) => self.plain(responder, &message, Some(compressor)),
            Err(error) => self.no_message(responder, &error),
        }
        // Large ones are rare, and not kept.
        self.commands.original =
            if original.capacity() > KEPT_BYTES { Vec::new() } else { original };
    }

    fn no_message(&self, responder: &mut Responder<Mongo>, error: &WireError) {
        self.host.counts().protocol_errors.add(1);
        match error {
            WireError::Fatal(_) => responder.quit(),
            WireError::Refused(refused) if refused.wants_reply => {
                let number = responder.client.next_reply();
                let envelope = Envelope::to_refused(refused, number);
                responder.reply(|out, ()| envelope.write_error(out, &refused.into()));
            }
            WireError::Refused(_) => {}
        }
    }

    fn plain(
        &mut self,
        responder: &mut Responder<Mongo>,
        message: &Message<'_>,
        compressor: Option<Compressor>,
    ) {
        let number = responder.client.next_reply();
        let (command, wants_reply) = match &message.body {
            Body::Msg(msg) => (Command::of(msg), !msg.flags.more_to_come()),
            Body::Query(query) => (Command::of_query(query), true),
            Body::Compressed(_) => return responder.quit(),
        };
        let envelope = wants_reply.then(|| Envelope::to(message, number));
        let mut replies = Replies { envelope, compressor };
        let begun = match &command {
            Err(error) => Err(error.clone()),
            Ok(command) if HelloRequest::is_name(command.name()) => {
                replies.compressor = None;
                self.hello(responder, command).map(Turn::Reply)
            }
            Ok(command) if LOGIN_COMMANDS.contains(&command.name()) => {
                // Nothing of a login is compressed, as a reply's length would tell of it.
                replies.compressor = None;
                let reply = self.login(responder, command);
                reply.map(Turn::Reply).ok_or_else(|| commands::unknown(command.name()))
            }
            Ok(command) => self.begin(responder, command, replies),
        };
        match begun {
            Ok(Turn::Reply(reply)) => replies.write(responder, reply),
            Ok(Turn::Asked(asked)) => {
                // The next message of the connection waits for the answer.
                responder.expect_large();
                responder.ask(asked, self.host.shards());
                responder.wait(Waiting::all(WholeReply, [asked]));
            }
            Err(error) => replies.write(responder, Err(error)),
        }
    }

    fn hello(
        &mut self,
        responder: &mut Responder<Mongo>,
        command: &Command<'_>,
    ) -> Result<Result<Vec<u8>, CommandError>, CommandError> {
        let request = HelloRequest::of(command)?;
        let speculative = request.speculative.and_then(|of| self.speculative(responder, of));
        let reply = HelloReply {
            local_time_ms: self.host.now_ms() as i64,
            connection_id: (responder.serial() & 0x7fff_ffff) as i32,
            speculative: speculative.as_ref(),
        };
        let mut body = Vec::new();
        remora_mongo::writer::write_document(&mut body, |fields| {
            reply.write(&request, fields);
            fields.f64(cstr!("ok"), 1.0);
        });
        Ok(Ok(body))
    }

    fn begin(
        &mut self,
        responder: &mut Responder<Mongo>,
        command: &Command<'_>,
        replies: Replies,
    ) -> Result<Turn, CommandError> {
        let spec =
            commands::spec(command.name()).ok_or_else(|| commands::unknown(command.name()))?;
        self.check_right(responder, spec, command)?;
        let user = responder.client.login.user().map(|user| user.name().to_vec());
        let server = self.server();
        let mut context = self.context(&server, responder.serial(), user.clone());
        let (begun, common) = spec.begin(command, &mut context)?;
        let running = match begun {
            Begun::Reply(body) => return Ok(Turn::Reply(Ok(body))),
            Begun::Running(running) => running,
        };
        let mut under_way = UnderWay { running, moving: None, common, replies, user };
        let token = responder.token(self.host.home(), self.host.home(), 0);
        let is_quiet = responder.may_hold() && responder.is_quiet(self.host.home());
        let turn = self.go_on(&mut under_way, (None, token, is_quiet));
        if let Turn::Asked(_) = turn {
            self.commands.under_way.insert(responder.serial(), under_way);
        }
        Ok(turn)
    }

    fn context<'s>(
        &'s self,
        server: &'s Arc<MongoServer>,
        connection: u64,
        user: Option<Vec<u8>>,
    ) -> Context<'s> {
        let (now_ms, shards) = (self.host.now_ms(), self.host.shards());
        Context { server, now_ms, connection, shards, user, rights: Some(self) }
    }

    /// Whether the client may do this.
    fn check_right(
        &self,
        responder: &mut Responder<Mongo>,
        spec: &Spec,
        command: &Command<'_>,
    ) -> Result<(), CommandError> {
        let users = &self.host.shared.users;
        let login = &mut responder.client.login;
        if spec.right == Right::None || login.may_all(users.published()) {
            return Ok(());
        }
        let refuse = |text: String| Err(CommandError::new(ErrorCode::Unauthorized, text));
        if !login.review(users.published()) || !login.is_logged_in() {
            return refuse(format!("Command {} requires authentication", command.name()));
        }
        // What it asks of shards is looked at when it is asked.
        Ok(())
    }

    /// Why a user may not ask this; none if it may.
    fn denied(&self, user: Option<&[u8]>, question: &[u8]) -> Option<CommandError> {
        let users = self.host.shared.users.users();
        let user = users.get(user.unwrap_or(DEFAULT_USER));
        if user.is_some_and(|user| user.is_unrestricted()) {
            return None;
        }
        let (database, command, _) = Asked::decode_within(question).ok()?;
        let may = |user: &User| asked(database, &command).is_some_and(|of| of.check(user).is_ok());
        if user.is_some_and(|user| may(user)) {
            return None;
        }
        let key = command.key().map(String::from_utf8_lossy).unwrap_or_default();
        let name = command.command_name().unwrap_or("this");
        let text = format!("not authorized on {key} to execute command {name}");
        Some(CommandError::new(ErrorCode::Unauthorized, text))
    }

    /// Lets a command take an answer, and ask further.
    fn go_on(
        &mut self,
        of: &mut UnderWay,
        (mut answer, token, is_quiet): (Option<OwnedReply>, Token, bool),
    ) -> Turn {
        let server = self.server();
        for step in 0.. {
            if of.moving.is_some() {
                answer = match self.go_on_moving(of, answer.take(), token) {
                    Ok(reply) => Some(reply),
                    Err(asked) => return Turn::Asked(asked),
                };
            }
            if of.common.until_ms.is_some_and(|until_ms| self.host.now_ms() > until_ms) {
                let text = "operation exceeded time limit";
                return Turn::Reply(Err(CommandError::new(ErrorCode::MaxTimeMsExpired, text)));
            }
            let mut context = self.context(&server, token.serial, of.user.clone());
            let (shard, hash, question) = match of.running.next(answer.take(), &mut context) {
                Err(error) => return Turn::Reply(Err(error)),
                Ok(Step::Done(body)) => return Turn::Reply(Ok(body)),
                Ok(Step::Ask { key, question }) => {
                    let (hash, shard) = self.host.route(Database::ZERO, &key);
                    (shard, Some(hash), question)
                }
                // The command tells of keys by the user's rights to each of them.
                Ok(Step::Scan(shard, question)) => match self.refusal(&question) {
                    None => return Turn::Asked(self.hand(shard, question, token)),
                    Some(refusal) => {
                        answer = Some(OwnedReply::status(refusal));
                        continue;
                    }
                },
                Ok(Step::Move { from, to, replaces }) => {
                    match self.begin_move(of, (&from, &to, replaces), token) {
                        Ok(turn) => return turn,
                        Err(status) => answer = Some(OwnedReply::status(status)),
                    }
                    continue;
                }
                // A job of its own shard comes after those of others that wait. It is not the user's question,
                // so it needs no right.
                Ok(Step::Yield) => {
                    return Turn::Asked(self.hand(self.host.home(), nothing(), token));
                }
            };
            if let Some(error) = self.denied(of.user.as_deref(), &question) {
                return Turn::Reply(Err(error));
            }
            if let Some(refusal) = self.refusal(&question) {
                answer = Some(OwnedReply::status(refusal));
                continue;
            }
            let token = Token { shard, ..token };
            let is_here = shard == self.host.home() && is_quiet && step < STEPS_AT_ONCE;
            if let Some(hash) = hash.filter(|_| is_here)
                && self.host.is_free(&token)
            {
                match self.execute_here(&question, hash, token) {
                    Some(reply) => answer = Some(reply),
                    None => return Turn::Asked(asked_of(&question, shard)),
                }
                continue;
            }
            let asked = asked_of(&question, shard);
            self.host.hand(shard, Job { hash, ..Job::execute(question, token) });
            return Turn::Asked(asked);
        }
        unreachable!("the loop ends by itself")
    }

    /// Begins to give a key another name, unless the server does not do that now.
    fn begin_move(
        &mut self,
        of: &mut UnderWay,
        (from, to, replaces): (&[u8], &[u8], bool),
        token: Token,
    ) -> Result<Turn, Status> {
        let (database, keeps) = (Database::ZERO, false);
        // The user needs the right to the whole, and none to its steps.
        let mut whole = Vec::new();
        let transfer = Asked::Transfer { key: from, to, database, replaces, keeps };
        transfer.encode_within(database, 0, &mut whole);
        if let Some(error) = self.denied(of.user.as_deref(), &whole) {
            return Ok(Turn::Reply(Err(error)));
        }
        if let Some(status) = self.refusal(&whole) {
            return Err(status);
        }
        let place = |key: &[u8]| KeyAt {
            key: key.into(),
            database,
            shard: self.host.route(database, key).1,
        };
        let moving = Moving::new(place(from), place(to), How { replaces, keeps });
        let (shard, command) = moving.first();
        let mut question = Vec::new();
        command.encode_within(database, 0, &mut question);
        of.moving = Some(moving);
        Ok(Turn::Asked(self.hand(shard, question, token)))
    }

    /// The next step of such a move, or its answer.
    fn go_on_moving(
        &mut self,
        of: &mut UnderWay,
        answer: Option<OwnedReply>,
        token: Token,
    ) -> Result<OwnedReply, Question> {
        let answer = answer.unwrap_or(OwnedReply::status(Status::NotFound));
        let Some(moving) = &mut of.moving else { return Ok(answer) };
        let OwnedReply { status, number, ref value, .. } = answer;
        let reply = Reply { number, value: value.as_deref(), ..Reply::status(status) };
        match moving.next(&reply) {
            moving::Next::Ask(shard, question) => Err(self.hand(shard, question, token)),
            moving::Next::Done(status, number) => {
                of.moving = None;
                Ok(OwnedReply { number, ..OwnedReply::status(status) })
            }
        }
    }

    /// Gives a question to a shard, as a job of its own.
    fn hand(&mut self, shard: usize, question: Vec<u8>, token: Token) -> Question {
        let asked = asked_of(&question, shard);
        self.host.hand(shard, Job::execute(question, Token { shard, ..token }));
        asked
    }

    /// Why the server does not do this now, as a replica or as one that has lost its lease.
    fn refusal(&self, question: &[u8]) -> Option<Status> {
        let (_, command, _) = Asked::decode_within(question).ok()?;
        let is_elsewhere = |key| self.host.shared.cluster.published.is_elsewhere(key);
        if command.key().is_some_and(is_elsewhere) {
            return Some(Status::OtherGroup);
        }
        match command.is_write() {
            true if self.host.shared.view.is_replica() => Some(Status::ReadOnly),
            _ => self.host.shared.view.refusal(),
        }
    }

    /// Asks the thread's own shard. None if the answer comes later.
    fn execute_here(&mut self, question: &[u8], hash: KeyHash, token: Token) -> Option<OwnedReply> {
        let (_, command, _) = Asked::decode_within(question).expect("it was encoded here");
        self.host.handle().thread.executed_here.add(1);
        let reply = self.host.execute((&command, hash), (token, false), |here| match here {
            Here::Reply(reply) => Some(OwnedReply::from(reply)),
            Here::Held | Here::Large => None,
        });
        reply.flatten()
    }
}

/// The commands of `login`, which clients use before they have logged in.
const LOGIN_COMMANDS: [&str; 3] = ["saslStart", "saslContinue", "logout"];

/// A buffer for messages that were compressed is kept up to this size.
const KEPT_BYTES: usize = 256 << 10;

/// A question that asks for nothing.
fn nothing() -> Vec<u8> {
    let mut question = Vec::new();
    Asked::Exists { key: b"." }.encode_within(Database::ZERO, 0, &mut question);
    question
}

fn asked_of(question: &[u8], shard: usize) -> Question {
    let is_write = Asked::decode_within(question).is_ok_and(|(_, command, _)| command.is_write());
    let what = if is_write { What::Write } else { What::Other };
    Question { shard, what, bytes: question.len() }
}

impl Replies {
    /// The message that a reply is; empty if none is wanted.
    fn message(&self, reply: Result<Vec<u8>, CommandError>) -> Vec<u8> {
        let mut out = Vec::new();
        let Some(envelope) = self.envelope else { return out };
        match reply {
            Ok(body) => {
                if let Err(error) = envelope.write_body(&mut out, &body) {
                    let error = CommandError::new(ErrorCode::BsonObjectTooLarge, error.to_string());
                    envelope.write_error(&mut out, &error);
                }
            }
            Err(error) => envelope.write_error(&mut out, &error),
        }
        match self.compressor {
            None => out,
            Some(compressor) => {
                let mut compressed = Vec::new();
                match compress(&out, compressor, &mut compressed) {
                    Ok(()) => compressed,
                    // The client takes both.
                    Err(_) => out,
                }
            }
        }
    }

    fn write(&self, responder: &mut Responder<Mongo>, reply: Result<Vec<u8>, CommandError>) {
        let message = self.message(reply);
        responder.reply(|out, ()| out.extend_from_slice(&message));
    }
}

impl Rights for MongoExecutor<'_> {
    fn may_ask(&self, user: Option<&[u8]>, question: &[u8]) -> bool {
        Asked::decode_within(question).is_ok() && self.denied(user, question).is_none()
    }
}

impl Executor for MongoExecutor<'_> {
    type Protocol = Mongo;
    type Port = ShardHost;
    type Held = HeldMemory;

    fn port(&self) -> &ShardHost {
        self.host
    }

    fn port_mut(&mut self) -> &mut ShardHost {
        self.host
    }

    fn fetch_ahead(&mut self, _: &[(KeyHash, usize)]) {}

    fn request(
        &mut self,
        responder: &mut Responder<Mongo>,
        (_, bytes): (&MessageBytes, &[u8]),
        _: Option<(KeyHash, usize)>,
    ) {
        self.host.handle().thread.commands.add(1);
        self.message(responder, bytes);
    }

    fn go_on_with_keys(
        &mut self,
        _: &mut Responder<Mongo>,
        _: ManyKeys<WholeReply>,
        _: (&MessageBytes, &[u8]),
    ) {
    }

    fn take(&mut self, token: Token, reply: OwnedReply, is_there: bool) -> Option<OwnedReply> {
        let mut of = self.commands.under_way.remove(&token.serial)?;
        if !is_there && of.moving.is_none() {
            return None;
        }
        match self.go_on(&mut of, (Some(reply), token, false)) {
            Turn::Reply(reply) => {
                let value = Some(of.replies.message(reply));
                Some(OwnedReply { value, ..OwnedReply::status(Status::Ok) })
            }
            Turn::Asked(_) => {
                self.commands.under_way.insert(token.serial, of);
                None
            }
        }
    }

    fn forget(&mut self, responder: &Responder<Mongo>) {
        if self.commands.under_way.get(&responder.serial()).is_some_and(|of| of.moving.is_none()) {
            self.commands.under_way.remove(&responder.serial());
        }
    }

    fn news(&mut self) -> News {
        let version = self.host.shared.users.published().version();
        let reviews = std::mem::replace(&mut self.commands.users_version, version) != version;
        News { reviews, ..News::default() }
    }

    fn stays(&mut self, responder: &mut Responder<Mongo>) -> bool {
        responder.client.login.review(self.host.shared.users.published())
    }

    fn refuses_long(&mut self, responder: &mut Responder<Mongo>) -> Option<&'static str> {
        let login = &mut responder.client.login;
        let is_in = login.review(self.host.shared.users.published()) && login.is_logged_in();
        (!is_in).then_some(
            "a message that is longer than those of clients that have not logged in may be",
        )
    }

    fn hold(
        &mut self,
        responder: &Responder<Mongo>,
        held: &mut HeldMemory,
        bytes: usize,
    ) -> Result<(), &'static str> {
        let users = &self.host.shared.users;
        held.set(&users.memory, (responder.peer(), responder.client.login.user()), bytes)
    }
}
