//! What a session does with ordered trees.

use super::value::OrderedValue;
use super::view::{OpenOrdered, OrderedFound, OrderedGot, entries_of};
use crate::error::Error;
use crate::path::Path;
use crate::session::Session;
use remora_layout::btree::{
    InnerNode, LEVEL_INFO_WORDS, LevelInfo, NodeInfo, ORDERED_INFO_WORDS, OrderedInfo,
};
use remora_layout::limits::WORD_BYTES;
use remora_layout::packed::Field;
use remora_protocol::message::Status;
use remora_protocol::ordered::{
    OrderedCommand, OrderedHold, OrderedRange, OrderedSettings, inner_nodes_of, node_infos_of,
};
use zerocopy::FromBytes;

impl Session {
    /// A view of the ordered tree that a key holds, or will hold. Nothing is asked.
    ///
    /// # Errors
    /// The key is too long.
    pub fn open_ordered(&self, key: &[u8]) -> Result<OpenOrdered, Error> {
        OpenOrdered::new(&self.core.directory, key)
    }

    /// Makes an empty ordered tree. False if there is one.
    ///
    /// # Errors
    /// See [`Error`]. Settings beyond the limits are refused.
    pub fn ordered_create(
        &mut self,
        open: &OpenOrdered,
        settings: OrderedSettings,
    ) -> Result<bool, Error> {
        let command = OrderedCommand::Create(settings);
        Ok(open.ask(&mut self.core, &command)?.status == Status::Ok)
    }

    /// Gives a key of a tree a value, or a link; true if the key is new.
    pub fn ordered_set(
        &mut self,
        open: &OpenOrdered,
        key: &[u8],
        (value, is_link): (&[u8], bool),
    ) -> Result<bool, Error> {
        let command = OrderedCommand::Set { key, value: Field { value, is_link } };
        Ok(open.ask(&mut self.core, &command)?.number == 1)
    }

    /// Removes a key of a tree; true if it was there.
    pub fn ordered_remove(&mut self, open: &OpenOrdered, key: &[u8]) -> Result<bool, Error> {
        Ok(open.ask(&mut self.core, &OrderedCommand::Delete { key })?.number == 1)
    }

    /// The value of a key of a tree.
    pub fn ordered_get(
        &mut self,
        open: &mut OpenOrdered,
        key: &[u8],
        path: Path,
    ) -> Result<OrderedGot, Error> {
        let path = self.core.router.path(path);
        open.get(&mut self.core, key, path)
    }

    /// The entries of a range, in order or against it, so many at most. By READs each leaf is of one
    /// moment, and different leaves may be of different ones.
    pub fn ordered_range(
        &mut self,
        open: &mut OpenOrdered,
        range: OrderedRange<'_>,
        of: (bool, u64),
        path: Path,
    ) -> Result<OrderedFound, Error> {
        let path = self.core.router.path(path);
        open.range(&mut self.core, range, of, path)
    }

    /// How many keys a range has.
    pub fn ordered_count(
        &mut self,
        open: &OpenOrdered,
        range: OrderedRange<'_>,
    ) -> Result<u64, Error> {
        self.core.begin()?;
        Ok(open.ask(&mut self.core, &OrderedCommand::Count { range })?.number as u64)
    }

    /// How many keys stand before this one; `None` if it is not there.
    pub fn ordered_rank(&mut self, open: &OpenOrdered, key: &[u8]) -> Result<Option<u64>, Error> {
        self.core.begin()?;
        let answer = open.ask(&mut self.core, &OrderedCommand::Rank { key })?;
        Ok((answer.status == Status::Ok).then_some(answer.number as u64))
    }

    /// The key with so many before it, and its value; below 0 from the end.
    pub fn ordered_select(
        &mut self,
        open: &OpenOrdered,
        rank: i64,
    ) -> Result<Option<(Vec<u8>, OrderedValue)>, Error> {
        self.core.begin()?;
        let core = &mut self.core;
        let answer = open.ask(core, &OrderedCommand::Select { rank })?;
        let range = answer.value.filter(|_| answer.status == Status::Ok);
        Ok(range.and_then(|range| entries_of(core.in_reply(range)).pop()))
    }

    /// What a tree is; `None` if there is none.
    pub fn ordered_info(&mut self, open: &OpenOrdered) -> Result<Option<OrderedInfo>, Error> {
        self.core.begin()?;
        let core = &mut self.core;
        let answer = open.ask(core, &OrderedCommand::Info)?;
        let Some(range) = answer.value.filter(|_| answer.status == Status::Ok) else {
            return Ok(None);
        };
        let words = <[u64; ORDERED_INFO_WORDS]>::read_from_bytes(core.in_reply(range));
        match words.ok().and_then(|words| OrderedInfo::from_words(&words)) {
            Some(info) => Ok(Some(info)),
            None => Err(core.asker.endpoint.end(Error::Protocol("a tree that cannot be"))),
        }
    }

    /// The levels of a tree, from the root down; none if there is no tree.
    pub fn ordered_levels(&mut self, open: &OpenOrdered) -> Result<Vec<LevelInfo>, Error> {
        self.core.begin()?;
        let core = &mut self.core;
        let answer = open.ask(core, &OrderedCommand::Levels)?;
        let Some(range) = answer.value.filter(|_| answer.status == Status::Ok) else {
            return Ok(Vec::new());
        };
        let levels = core.in_reply(range).chunks_exact(LEVEL_INFO_WORDS * WORD_BYTES);
        let words = levels.map(<[u64; LEVEL_INFO_WORDS]>::read_from_bytes);
        Ok(words.flatten().map(|words| LevelInfo::from_words(&words)).collect())
    }

    /// The nodes of a level, 0 that of the leaves, in the order of their keys, so many at most; none if
    /// there is no tree.
    pub fn ordered_nodes(
        &mut self,
        open: &OpenOrdered,
        level: u8,
        limit: u64,
    ) -> Result<Vec<NodeInfo>, Error> {
        self.core.begin()?;
        let core = &mut self.core;
        let answer = open.ask(core, &OrderedCommand::Nodes { level, limit })?;
        let Some(range) = answer.value.filter(|_| answer.status == Status::Ok) else {
            return Ok(Vec::new());
        };
        Ok(node_infos_of(core.in_reply(range)).collect())
    }

    /// Inner nodes of a tree, from the top, whose children's addresses are held from then on. `None` if
    /// there is no tree, or the epoch does not hold the address at which they are to begin.
    ///
    /// # Errors
    /// See [`Error`]. More would be held than may be: that is refused as too large.
    pub fn ordered_hold(
        &mut self,
        open: &OpenOrdered,
        hold: OrderedHold,
    ) -> Result<Option<Vec<InnerNode>>, Error> {
        self.core.begin()?;
        let core = &mut self.core;
        let answer = open.ask(core, &OrderedCommand::Hold(hold))?;
        let Some(range) = answer.value.filter(|_| answer.status == Status::Ok) else {
            return Ok(None);
        };
        match inner_nodes_of(core.in_reply(range)) {
            Some(nodes) => Ok(Some(nodes)),
            None => Err(core.asker.endpoint.end(Error::Protocol("nodes that cannot be"))),
        }
    }

    /// Ends an epoch that holds addresses; true if it held some.
    pub fn ordered_release(&mut self, open: &OpenOrdered, epoch: u64) -> Result<bool, Error> {
        self.core.begin()?;
        Ok(open.ask(&mut self.core, &OrderedCommand::Release { epoch })?.number == 1)
    }
}
