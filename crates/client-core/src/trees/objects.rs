//! Trees and their objects: making and loading trees, putting and getting objects.

use super::asked::TreeSearcher;
use super::found::TreeObject;
use super::view::OpenTree;
use crate::core::Core;
use crate::error::Error;
use remora_layout::limits::STAGE_OBJECTS;
use remora_layout::node::ENTRY_BYTES;
use remora_layout::object::Payload;
use remora_layout::rect::Predicate;
use remora_layout::rect::Rect;
use remora_protocol::message::Status;
use remora_protocol::tree::{
    Fields, HAS_DATA, HAS_GEOMETRY, ObjectId, Objects, PutObject, TreeCommand, TreeSettings,
};
use zerocopy::FromBytes;

impl TreeSearcher {
    /// Makes an empty tree. False if there is one of that name.
    pub(crate) fn create_tree(
        &mut self,
        core: &mut Core,
        name: &[u8],
        settings: &TreeSettings,
    ) -> Result<bool, Error> {
        let answer = self.ask_tree(core, name, TreeCommand::Create(*settings))?;
        Ok(answer.status == Status::Ok)
    }

    /// Removes a tree with all its objects. Whether it was there.
    pub(crate) fn drop_tree(&mut self, core: &mut Core, name: &[u8]) -> Result<bool, Error> {
        Ok(self.ask_tree(core, name, TreeCommand::Drop)?.number == 1)
    }

    /// A view of a tree, to search it; `None` if there is none of that name.
    pub(crate) fn open_tree(
        &mut self,
        core: &mut Core,
        name: &[u8],
    ) -> Result<Option<OpenTree>, Error> {
        let Some(info) = self.tree_info(core, name)? else { return Ok(None) };
        let root = self.root_of(core, name, &info)?;
        let (_, shard) = core.directory.locate(name)?;
        Ok(Some(OpenTree::new(name, shard, root)))
    }

    /// Builds an empty tree, which exists, of many objects at once. It sends them in parts;
    /// `progress` gets how many it has sent. Returns their number. The shard builds the tree in
    /// many short steps, between which it serves others; they all see it once the last step is
    /// done.
    ///
    /// # Errors
    /// See [`Error`]: the tree is not empty, two objects have one id, memory
    /// is full; nothing is loaded then.
    pub(crate) fn load_tree(
        &mut self,
        core: &mut Core,
        name: &[u8],
        objects: &mut dyn Iterator<Item = (u64, Rect)>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<u64, Error> {
        let mut list = Vec::with_capacity(STAGE_OBJECTS * ENTRY_BYTES);
        let mut sent = 0;
        // Unique: the connection's number, the session's, the request's.
        let session =
            core.asker.endpoint.connection.number << 32 | (core.asker.endpoint.number as u64) << 16;
        let load = session | core.asker.next_ticket & 0xffff;
        let mut first = true;
        loop {
            list.clear();
            for (id, rect) in (&mut *objects).take(STAGE_OBJECTS) {
                Objects::push(&mut list, id, &rect);
            }
            let part = Objects::parse(&list).expect("whole objects");
            if part.len() == 0 && !first {
                break;
            }
            self.ask_tree(core, name, TreeCommand::Stage { load, first, objects: part })?;
            first = false;
            sent += part.len() as u64;
            progress(sent);
        }
        // Bounded: each request does its part, and the server gives up a client that is silent for
        // long.
        loop {
            match self.ask_tree(core, name, TreeCommand::Build { load }) {
                Err(Error::Refused(Status::InPieces)) => {}
                built => return Ok(built?.number as u64),
            }
        }
    }

    /// Removes an object. Whether it was there.
    pub(crate) fn remove_place<'a>(
        &mut self,
        core: &mut Core,
        name: &[u8],
        id: impl Into<ObjectId<'a>>,
    ) -> Result<bool, Error> {
        Ok(self.ask_tree(core, name, TreeCommand::Remove { id: id.into() })?.number == 1)
    }

    /// How many objects a window has.
    pub(crate) fn count_places(
        &mut self,
        core: &mut Core,
        name: &[u8],
        window: Rect,
        predicate: Predicate,
    ) -> Result<u64, Error> {
        Ok(self.ask_tree(core, name, TreeCommand::Count { window, predicate })?.number as u64)
    }

    /// Adds an object, or changes the one with this id, at once for every reader. Unset parts stay
    /// as they are, except the geometry: without one the object is its rectangle. True if the
    /// object is new.
    pub(crate) fn put_object(
        &mut self,
        core: &mut Core,
        name: &[u8],
        object: &PutObject<'_>,
    ) -> Result<bool, Error> {
        Ok(self.ask_tree(core, name, TreeCommand::Put(*object))?.number == 1)
    }

    /// Sets fields of an object; the others stay. How many are new; `None` if the
    /// object is not there.
    ///
    /// # Errors
    /// See [`Error`]: it would have too many fields, or too long ones.
    pub(crate) fn set_fields<'a>(
        &mut self,
        core: &mut Core,
        name: &[u8],
        id: impl Into<ObjectId<'a>>,
        fields: Fields<'_>,
    ) -> Result<Option<u64>, Error> {
        let answer = self.ask_tree(core, name, TreeCommand::SetFields { id: id.into(), fields })?;
        Ok((answer.status == Status::Ok).then_some(answer.number as u64))
    }

    /// An object; `None` if it is not there.
    pub(crate) fn place<'s, 'a>(
        &mut self,
        core: &'s mut Core,
        name: &[u8],
        id: impl Into<ObjectId<'a>>,
    ) -> Result<Option<TreeObject<'s>>, Error> {
        let answer = self.ask_tree(core, name, TreeCommand::Get { id: id.into() })?;
        let Some((from, to)) = answer.value else { return Ok(None) };
        if place_in(core.in_reply((from, to)), answer.number).is_none() {
            return Err(core.asker.endpoint.end(Error::Protocol("an object that cannot be")));
        }
        Ok(place_in(core.in_reply((from, to)), answer.number))
    }
}

/// Decodes the object in a server's reply.
fn place_in(value: &[u8], flags: i64) -> Option<TreeObject<'_>> {
    let has = |flag: u8| flags & i64::from(flag) != 0;
    let (rect, rest) = Rect::read_from_prefix(value).ok()?;
    let (&at_ms, rest) = rest.split_first_chunk()?;
    let payload = Payload::parse(rest)?;
    Some(TreeObject {
        rect,
        data: has(HAS_DATA).then_some(payload.data),
        geometry: has(HAS_GEOMETRY).then_some(payload.geometry),
        fields: Fields::parse(payload.fields)?,
        expires_at_ms: Some(u64::from_le_bytes(at_ms)).filter(|at_ms| *at_ms != 0),
    })
}
