//! GEO keys: asked of the shards that own them. What a search finds is stored
//! in two steps: its shard's reply becomes a command for the shard that owns
//! the other key, and that one's reply is the request's.

use super::connection::Connection;
use super::execute::Executor;
use super::host::Host;
use super::pending::Waiting;
use crate::jobs::{Job, OwnedReply, Token};
use remora_engine::command::{Command, GeoCommand, Places};
use remora_front::geo_reply;
use remora_front::request::{GeoForm, GeoRender, GeoRequest, Render};
use remora_layout::limits::STREAM_BYTES;
use remora_layout::message::Status;
use remora_layout::node::ENTRY_BYTES;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Members that a reply may bring without holding up the requests behind it.
const SMALL_REPLY: usize = STREAM_BYTES / ENTRY_BYTES;

/// Where the outcomes of searches under way are to be stored, and in what form,
/// by the requests that they answer.
pub(super) type Stores = BTreeMap<(usize, u64, u64), (Box<[u8]>, GeoForm)>;

impl<H: Host> Executor<H> {
    /// One command about a GEO key.
    pub(super) fn geo(&mut self, connection: &mut Connection, request: &GeoRequest<'_>) {
        let (_, shard) = self.host.route(request.key);
        if let Render::Geo(GeoRender::Found(form)) = request.render {
            if form.most > SMALL_REPLY || request.store_to.is_some() {
                connection.expect_large();
            }
            if let Some(key) = request.store_to {
                let asked = (connection.slot, connection.serial, connection.next_request());
                self.stores.insert(asked, (key.into(), form));
            }
        }
        let command = Command::Geo { key: request.key, command: request.command() };
        let asked = vec![self.submit(connection, shard, 0, &command)];
        connection.wait(Waiting::all(request.render, asked));
    }

    /// Goes on with what a shard has answered: the reply if that is all, none
    /// if something is asked of another shard first.
    pub(super) fn go_on(&mut self, token: Token, reply: OwnedReply) -> Option<OwnedReply> {
        if self.stores.is_empty() {
            return Some(reply);
        }
        let asked = (token.connection, token.serial, token.request);
        let Some((key, form)) = self.stores.remove(&asked) else { return Some(reply) };
        if !matches!(reply.status, Status::Ok | Status::NotFound) {
            return Some(reply);
        }
        let list = geo_reply::stored(&reply.value.unwrap_or_default(), &form);
        let places = Places::parse(&list).expect("members of a checked list");
        let mut command = Vec::new();
        Command::Geo { key: &key, command: GeoCommand::Store { places } }
            .encode_into(0, &mut command);
        let (_, shard) = self.host.route(&key);
        let reply_to = Arc::clone(&self.replies);
        self.host.hand(shard, Job { command, reply_to, token, most_objects: usize::MAX });
        None
    }
}
