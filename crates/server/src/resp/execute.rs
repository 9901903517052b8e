//! Executes a request: answers it here, reads optimistically, or hands it to the shards that own
//! its keys.

use super::executor::{RespExecutor, Responder};
use super::host::Host;
use super::trees::places::TreePlaces;
use remora_frontend::{
    Each, Executor, KeyCommand, ManyKeys, OwnedReply, PartRequest, Token, Wanted,
};
use remora_layout::hash::KeyHash;
use remora_protocol::{Command, Request as On};
use remora_resp::commands::{server, strings, wait};
use remora_resp::keys::Keys;
use remora_resp::request::Request;
use remora_resp::spec::Flag;
use remora_resp::wire::{Args, Made, Words};
use remora_resp::{CommandError, ReplyForm, Resp, command, request};

/// Room for a record that is kept between requests.
const KEEP_RECORD_BYTES: usize = 256 << 10;

impl<H: Host> Executor for RespExecutor<H> {
    type Protocol = Resp;
    type Port = H;

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
        if self.host.is_replica()
            && let Some(refused) = self.refused(args, bytes)
        {
            responder.reply(|out, _| refused.write(out));
        } else {
            let made = Made::default();
            self.execute(responder, request(args, bytes, &made, self.now_ms));
        }
        self.forget_first_key();
        if self.record.capacity() > KEEP_RECORD_BYTES {
            self.record = Vec::new();
        }
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
        if TreePlaces::have_asked(&token) {
            self.tree_places.learn(token.request, &reply);
            return None;
        }
        let reply = self.go_on(token, reply)?;
        self.go_on_with_key(token, reply, is_there)
    }
}

impl<H: Host> RespExecutor<H> {
    /// Why a replica refuses a request, if it does.
    #[cold]
    fn refused(&self, args: &Args, bytes: &[u8]) -> Option<CommandError> {
        // What is no command at all is refused as everywhere.
        let spec = command(Words::new(args, bytes, &Made::default())).ok()?;
        let has = |flag| spec.flags.contains(&flag);
        if has(Flag::Write) {
            return Some(CommandError::ReadOnly);
        }
        // DEBUG DIGEST and its like are for operators, who compare a replica with its primary.
        let reads = has(Flag::ReadOnly) && !has(Flag::Admin);
        self.host.read_refusal().filter(|_| reads)
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
            On::Geo(command) => self.geo(responder, (key, command), form, store_to),
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
