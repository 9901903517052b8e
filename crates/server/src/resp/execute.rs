//! Executes a request: answers it here, reads optimistically, or hands it to the shards that own
//! its keys.

use super::executor::{RespExecutor, Responder};
use super::host::Host;
use super::key_answers::request_part_key;
use super::trees::places::TreePlaces;
use crate::client_memory::HeldMemory;
use crate::plans::Asker;
use remora_frontend::{
    Each, Executor, KeyCommand, ManyKeys, News, OwnedReply, PARKED, PartRequest, Token, Wanted,
};
use remora_layout::hash::KeyHash;
use remora_protocol::sorted::SortedCommand;
use remora_protocol::{Command, Request as On};
use remora_resp::cluster::Standing;
use remora_resp::commands::{server, strings, wait};
use remora_resp::keys::Keys;
use remora_resp::request::Request;
use remora_resp::spec::{CommandSpec, Flag};
use remora_resp::wire::{Args, Made, RespVersion, Words};
use remora_resp::{CommandError, ReplyForm, Resp, RespClient, command, request};

/// Room for a record that is kept between requests.
const KEEP_RECORD_BYTES: usize = 256 << 10;

/// A connection whose requests have been refused for so long as another server's is ended. A client of
/// Sentinel that connected to a former primary asks again then; one of Redis Cluster has gone on elsewhere.
const REFUSED_CONNECTION_MS: u64 = 1000;

/// Whether a connection that is subscribed may send a command: over RESP2 its client could not tell
/// the reply from a message.
fn may_subscribed(client: &RespClient, spec: &CommandSpec) -> bool {
    client.version == RespVersion::Resp3
        || spec.flags.contains(&Flag::PubSub)
        || matches!(spec.name, "ping" | "quit")
}

/// The protocol error of a long request before login (in Redis's words).
const UNAUTHENTICATED: &str = "Protocol error: unauthenticated bulk length";

impl<H: Host> Executor for RespExecutor<H> {
    type Protocol = Resp;
    type Port = H;
    type Held = HeldMemory;

    #[inline]
    fn port(&self) -> &H {
        &self.host
    }

    #[inline]
    fn port_mut(&mut self) -> &mut H {
        &mut self.host
    }

    #[inline]
    fn fetch_ahead(&mut self, keys: &[(KeyHash, usize)]) {
        self.fetch(keys);
    }

    #[inline]
    fn request(
        &mut self,
        responder: &mut Responder,
        (args, bytes): (&Args, &[u8]),
        at: Option<(KeyHash, usize)>,
    ) {
        self.set_first_key(args.get(1, bytes), at);
        self.host.thread_counts().commands.add(1);
        self.begin(responder.database);
        if !self.may_all(responder) && self.is_refused(responder, (args, bytes)) {
            return self.forget_first_key();
        }
        if self.host.is_guarded()
            && let Some(refused) = self.refused(&mut responder.client, args, bytes)
        {
            responder.reply(|out, _| refused.write(out));
            let is_elsewhere =
                matches!(refused, CommandError::Moved { .. } | CommandError::NotServed);
            let since_ms = responder.client.refused_since_ms.unwrap_or(self.now_ms);
            if is_elsewhere && self.now_ms.saturating_sub(since_ms) >= REFUSED_CONNECTION_MS {
                responder.quit();
            }
        } else {
            let made = Made::default();
            self.execute(responder, request(args, bytes, &made, self.now_ms));
        }
        self.forget_first_key();
        if self.record.capacity() > KEEP_RECORD_BYTES {
            self.record = Vec::new();
        }
    }

    fn has_parked(&mut self, responder: &Responder) -> bool {
        let serial = responder.serial();
        let is_its = |of: &Token| of.serial == serial;
        let has_plan = self.host.plans().is_some_and(|plans| plans.long_ones().any(is_its));
        has_plan || self.host.with_waits(|waits| waits.has_parked(serial)) == Some(true)
    }

    fn forget(&mut self, responder: &Responder) {
        let serial = responder.serial();
        if let Some(plans) = self.host.plans()
            && !plans.is_empty()
        {
            let is_its = |of: &Token| of.serial == serial;
            plans.forget(|asker| matches!(asker, Asker::Connection(of) if is_its(of)));
        }
        if let Some(token) = self.host.with_waits(|waits| waits.forget(serial)).flatten() {
            self.key_answers.going_on.remove(&request_part_key(&token));
        }
    }

    fn news(&mut self) -> News {
        let version = self.host.users().map_or(0, |users| users.published().version());
        let reviews = std::mem::replace(&mut self.users_version, version) != version;
        let Some(facts) = self.host.cluster() else { return News { reviews, ..News::default() } };
        self.events = self.announcer.events(facts);
        let leads = facts.own_node().is_some_and(|node| node.is_primary);
        let led = std::mem::replace(&mut self.led, leads);
        News { has_pushes: !self.events.is_empty(), ends_others: led && !leads, reviews }
    }

    fn stays(&mut self, responder: &mut Responder) -> bool {
        let users = self.host.users();
        users.is_none_or(|users| responder.client.login.review(users.published()))
    }

    fn refuses_long(&mut self, responder: &mut Responder) -> Option<&'static str> {
        let users = self.host.users()?;
        let login = &mut responder.client.login;
        let is_in = login.review(users.published()) && login.is_logged_in();
        (!is_in).then_some(UNAUTHENTICATED)
    }

    fn hold(
        &mut self,
        responder: &Responder,
        held: &mut HeldMemory,
        bytes: usize,
    ) -> Result<(), &'static str> {
        let Some(users) = self.host.users() else { return Ok(()) };
        held.set(&users.memory, (responder.peer(), responder.client.login.user()), bytes)
    }

    fn push(&mut self, responder: &mut Responder) {
        let Some(of) = responder.client.subscriptions.take() else { return };
        for event in &self.events {
            responder.push(|out, version| of.write(out, version, event));
        }
        responder.client.subscriptions = Some(of);
    }

    fn go_on_with_keys(
        &mut self,
        responder: &mut Responder,
        many: ManyKeys<ReplyForm>,
        request: (&Args, &[u8]),
    ) {
        self.take_more_keys(responder, many, request);
    }

    fn take(&mut self, token: Token, reply: OwnedReply, is_there: bool) -> Option<OwnedReply> {
        if token.part == PARKED {
            self.host.with_waits(|waits| waits.parked(&token));
            return None;
        }
        if TreePlaces::have_asked(&token) {
            self.tree_places.learn(token.request, &reply);
            return None;
        }
        self.host.with_waits(|waits| waits.answered(&token));
        let reply = self.go_on(token, reply)?;
        self.go_on_with_key(token, reply, is_there)
    }
}

impl<H: Host> RespExecutor<H> {
    /// Why a replica, or a server of a cluster, refuses a request, if it does.
    #[inline(never)]
    fn refused(
        &mut self,
        client: &mut RespClient,
        args: &Args,
        bytes: &[u8],
    ) -> Option<CommandError> {
        let made = Made::default();
        let words = Words::new(args, bytes, &made);
        // What is no command at all is refused as everywhere.
        let spec = command(words).ok()?;
        let has = |flag| spec.flags.contains(&flag);
        if client.subscriptions.is_some() && !may_subscribed(client, spec) {
            return Some(CommandError::Subscribed(spec.name));
        }
        // DEBUG DIGEST and its like are for operators, who compare a replica with its primary.
        let reads = has(Flag::ReadOnly) && !has(Flag::Admin);
        let leads = !self.host.is_replica();
        let refusal = if reads { self.host.read_refusal() } else { None };
        let may_read = reads && client.reads_replicas && refusal.is_none();
        if (reads || has(Flag::Write))
            && let Some(facts) = self.host.cluster()
        {
            let standing = Standing { leads, may_read, changes: has(Flag::Write) };
            let elsewhere =
                spec.slot(words).map(|slot| slot.and_then(|slot| facts.refusal(slot, standing)));
            match elsewhere {
                Ok(None) => client.refused_since_ms = None,
                Ok(Some(error)) => {
                    client.refused_since_ms.get_or_insert(self.now_ms);
                    return Some(error);
                }
                Err(error) => return Some(error),
            }
        }
        match has(Flag::Write) {
            true if !leads => Some(CommandError::ReadOnly),
            // Clients of clusters ask again: nothing was done.
            true => self.host.change_refusal(),
            false => refusal,
        }
    }

    /// Executes a request, or writes the parser's error. Takes the `Result` by value: moving
    /// the request out first copies it.
    fn execute(&mut self, responder: &mut Responder, request: Result<Request<'_>, CommandError>) {
        let request = match request {
            Ok(request) => request,
            Err(error) => return responder.reply(|out, _| error.write(out)),
        };
        match request {
            Request::Key(command, form) => self.key_command(responder, &command, form),
            Request::Del(keys) => {
                self.change_each(responder, keys, |key| Command::Del { key });
            }
            Request::Touch(keys) => {
                self.change_each(responder, keys, |key| Command::Touch { key });
            }
            Request::Exists(keys) => {
                self.each_key(responder, keys, |key| Command::Exists { key }, ReplyForm::Sum);
            }
            Request::MGet(keys) => {
                let form = ReplyForm::Combined(&strings::VALUES);
                self.each_key(responder, keys, |key| Command::Get { key }, form);
            }
            Request::MSet(pairs) => self.multi_set(responder, pairs),
            Request::Digest => {
                let form = ReplyForm::Combined(&server::DIGEST);
                self.ask_all(responder, &Command::Digest { key: None }, form);
            }
            Request::DigestValues(keys) => {
                let of: KeyCommand = |key| Command::Digest { key: Some(key) };
                self.each_key(responder, keys, of, ReplyForm::Combined(&server::DIGEST_VALUES));
            }
            Request::WaitAof { wants_disk, replicas, until_ms } => {
                self.await_disks(responder, wants_disk, (replicas, until_ms));
            }
            Request::Wait { replicas, until_ms } => {
                let form = ReplyForm::Combined(&wait::STORED);
                self.await_all(responder, (Wanted::Replicas(replicas), until_ms), form);
            }
            Request::DbSize => self.ask_all(responder, &Command::Count, ReplyForm::Sum),
            Request::FlushDb => {
                self.ask_all(responder, &Command::Flush, ReplyForm::AllOk("flushdb"));
            }
            Request::Scan { cursor, count, filter } => {
                self.scan(responder, (cursor, count), filter);
            }
            Request::KeysOf(filter) => self.keys_of(responder, &filter),
            Request::RandomKey => self.random_key(responder),
            Request::Transfer(transfer) => self.transfer(responder, &transfer),
            Request::FlushAll => {
                self.ask_all(responder, &Command::FlushAll, ReplyForm::AllOk("flushall"));
            }
            Request::Object { key, request, form } => {
                self.object_command(responder, (key, request), form, None);
            }
            Request::Store { key, request, form, to } => {
                self.object_command(responder, (key, request), form, Some(to));
            }
            Request::Block(blocking) => self.block(responder, *blocking),
            Request::Unblock { serial, status } => self.unblock(responder, serial, status),
            Request::Sort(sort) => self.sort(responder, *sort),
            Request::Plan(plan, form) => self.plan(responder, *plan, form),
            Request::Steps { keys, steps, form } => self.steps(responder, keys, steps, form),
            Request::EachPart { key, parts, request, form } => {
                self.change_each_part(responder, key, (parts, request), form);
            }
            own => self.own_answer(responder, own),
        }
    }

    /// One operation on the object of a key: executed, read or asked. Its result may be stored at
    /// another key.
    fn object_command(
        &mut self,
        responder: &mut Responder,
        (key, request): (&[u8], On<'_>),
        form: ReplyForm,
        store_to: Option<&[u8]>,
    ) {
        match request {
            On::Sorted(SortedCommand::Search { query }) => {
                self.geo(responder, (key, query), form, store_to);
            }
            On::Tree(command) => self.tree(responder, (key, command), form),
            request => self.any_object(responder, (key, request), form),
        }
    }

    /// The same operation on each of several parts of an object; most requests name one.
    fn change_each_part(
        &mut self,
        responder: &mut Responder,
        key: &[u8],
        (parts, request): (Keys<'_>, PartRequest),
        form: ReplyForm,
    ) {
        match (parts.len(), parts.clone().next()) {
            (1, Some(part)) => self.object_command(responder, (key, request(part)), form, None),
            _ => self.each(responder, parts, Each::Part(key.into(), request), form),
        }
    }
}
