//! Builds a tree of sorted entries: level by level from the leaves up, with nodes that ascending
//! insertions would leave. No path leads to a node before the header names the new root.

use super::image::{Entry, Image, Owned};
use super::plan::{ASCENDING, store_header, store_new};
use super::tree::{Tree, TreeError};
use crate::pool::Arena;
use remora_arena::{ArenaFull, Journal};
use remora_layout::btree::{OrderedHeader, Value};
use remora_layout::limits::MAX_TREE_HEIGHT;
use remora_layout::node::NodeRef;

/// The nodes of one level while they are written.
struct Level {
    /// The place of the node to be written next.
    at: NodeRef,
    /// Its entries, and those behind it that came already.
    rest: Image,
    /// Entries for the level above.
    above: Vec<Entry>,
}

impl Tree {
    /// Fills an empty tree. The entries are sorted by key, each key once.
    ///
    /// # Errors
    /// The tree is not empty, an entry is out of order or does not fit, or there is no memory; the
    /// tree stays empty.
    pub fn load<'e, J: Journal>(
        &mut self,
        arena: &mut Arena<'_, J>,
        entries: impl Iterator<Item = (&'e [u8], Value<'e>)>,
    ) -> Result<(), TreeError> {
        let is_one_node = self.header.height == 1 && !self.mending.is_deep(self.header.root);
        if self.keys != 0 || !is_one_node || self.pins.holds(self.header.root) {
            return Err(TreeError::NotLoadable);
        }
        let mut made = Vec::new();
        let loaded = self.build(arena, entries, &mut made);
        let before = self.header.root;
        match loaded {
            Ok((keys, root, height)) => {
                self.keys = keys;
                self.header = OrderedHeader { root, height, ..self.header };
                store_header(arena.owner, self.home, self.at, &self.header, false);
                self.shapes = self.count_shapes(arena.owner);
                self.pool.give(arena, before);
                Ok(())
            }
            Err(error) => {
                for at in made {
                    self.pool.give(arena, at);
                }
                Err(error)
            }
        }
    }

    fn build<'e, J: Journal>(
        &mut self,
        arena: &mut Arena<'_, J>,
        entries: impl Iterator<Item = (&'e [u8], Value<'e>)>,
        made: &mut Vec<NodeRef>,
    ) -> Result<(u64, NodeRef, u8), TreeError> {
        let (options, mut keys) = (self.options, 0);
        let mut last: Option<&[u8]> = None;
        let mut wrong = None;
        let sorted = entries.map_while(|(key, value)| {
            let is_behind = last.is_none_or(|last| last < key);
            wrong = match options.check_key(key) {
                Err(error) => Some(error),
                Ok(()) => match options.check_value(value) {
                    Ok(()) => (!is_behind).then_some(TreeError::NotLoadable),
                    Err(error) => Some(error),
                },
            };
            last = Some(key);
            keys += 1;
            wrong.is_none().then(|| Entry::of_value(key, value))
        });
        let mut level = self.pack(arena, 0, sorted, made)?;
        if let Some(wrong) = wrong {
            return Err(wrong);
        }
        for height in 1..MAX_TREE_HEIGHT {
            if let [Entry { payload: Owned::Child(root, _), .. }] = level[..] {
                return Ok((keys, root, height));
            }
            level = self.pack(arena, height, level.into_iter(), made)?;
        }
        unreachable!("each level has fewer nodes than the one below")
    }

    /// Writes the nodes of a level; gives the entries of the level above.
    fn pack<J: Journal>(
        &mut self,
        arena: &mut Arena<'_, J>,
        level: u8,
        entries: impl Iterator<Item = Entry>,
        made: &mut Vec<NodeRef>,
    ) -> Result<Vec<Entry>, ArenaFull> {
        let most = (self.options.fan_out * ASCENDING).div_ceil(100);
        let at = self.pool.take(arena)?;
        made.push(at);
        let rest = Image { level, ..Image::default() };
        let mut packed = Level { at, rest, above: Vec::new() };
        for entry in entries {
            packed.rest.entries.push(entry);
            if packed.rest.entries.len() > most {
                self.write_first(arena, &mut packed, most, made)?;
            }
        }
        while !packed.rest.fits(&self.room()) {
            self.write_first(arena, &mut packed, most, made)?;
        }
        let Level { at, rest, mut above } = packed;
        store_new(self, arena, at, &rest);
        above.push(Entry { payload: Owned::Child(at, rest.count()), key: rest.low });
        Ok(above)
    }

    /// Writes the first node of what came, with as many entries as it may have.
    fn write_first<J: Journal>(
        &mut self,
        arena: &mut Arena<'_, J>,
        level: &mut Level,
        most: usize,
        made: &mut Vec<NodeRef>,
    ) -> Result<(), ArenaFull> {
        let right = self.pool.take(arena)?;
        made.push(right);
        let room = self.room();
        let index = level.rest.fitting(&room, most);
        let (left, behind) = std::mem::take(&mut level.rest).into_divided_at(&room, index, right);
        store_new(self, arena, level.at, &left);
        level.above.push(Entry { payload: Owned::Child(level.at, left.count()), key: left.low });
        (level.at, level.rest) = (right, behind);
        Ok(())
    }
}
