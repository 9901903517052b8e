//! A block's elements, decoded one after the other from its bytes.

use crate::wire::{Deltas, Fields, Packed, signed};
use crate::{Broken, Stop};
use std::ops::Range;

/// Most tags of one element: OpenStreetMap's own have some hundreds.
pub const MAX_TAGS: usize = 10_000;
/// Longest texts of one element's tags together. Tags name texts by number, so
/// that many of them can be one long text.
pub const MAX_TAG_BYTES: usize = 1 << 20;
/// Most members of one relation: OpenStreetMap's own have 32,000.
pub const MAX_MEMBERS: usize = 1 << 20;
/// Longest roles of one relation's members together: three times those that
/// OpenStreetMap gives to so many.
const MAX_ROLE_BYTES: usize = 16 * MAX_MEMBERS;
/// Degrees are told in this part of one, or in a multiple of it.
const NANO: i64 = 100;

/// An element. Its lists are decoded as they are taken.
pub enum Element<'a> {
    /// A node: id, and longitude and latitude in units of 1e-7 degrees.
    Node(i64, [i64; 2], &'a [(&'a str, &'a str)]),
    /// A way: id, its nodes, its tags.
    Way(i64, Deltas<'a>, &'a [(&'a str, &'a str)]),
    /// A relation: id, its members, its tags.
    Relation(i64, Members<'a>, &'a [(&'a str, &'a str)]),
}

/// What is given elements.
pub type Each<'e> = dyn FnMut(Element<'_>) -> Result<(), Stop> + 'e;

/// What a block has, or what of it is wanted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Kinds {
    /// Nodes.
    pub nodes: bool,
    /// Ways.
    pub ways: bool,
    /// Relations.
    pub relations: bool,
}

impl Kinds {
    /// Whether both have one kind.
    pub fn meet(self, other: Self) -> bool {
        self.nodes & other.nodes | self.ways & other.ways | self.relations & other.relations
    }
}

/// A block's texts, and how its coordinates are meant.
struct Block<'a> {
    bytes: &'a [u8],
    /// Where each text stands in `bytes`.
    texts: Vec<Range<u32>>,
    granularity: i64,
    offset: [i64; 2],
}

/// Gives `each` the elements of a block that are wanted, and tells which kinds
/// it has.
pub fn elements(bytes: &[u8], wanted: Kinds, each: &mut Each<'_>) -> Result<Kinds, Stop> {
    let block = Block::parse(bytes)?;
    let mut has = Kinds::default();
    for field in Fields(bytes) {
        let (2, group) = field? else { continue };
        for field in Fields(group.bytes()?) {
            let (number, element) = field?;
            match number {
                1 | 2 => has.nodes = true,
                3 => has.ways = true,
                4 => has.relations = true,
                _ => {}
            }
            match number {
                1 if wanted.nodes => block.node(element.bytes()?, each)?,
                2 if wanted.nodes => block.dense(element.bytes()?, each)?,
                3 if wanted.ways => block.way(element.bytes()?, each)?,
                4 if wanted.relations => block.relation(element.bytes()?, each)?,
                _ => {}
            }
        }
    }
    Ok(has)
}

impl<'a> Block<'a> {
    fn parse(bytes: &'a [u8]) -> Result<Self, Broken> {
        let mut block = Self { bytes, texts: Vec::new(), granularity: NANO, offset: [0, 0] };
        for field in Fields(bytes) {
            match field? {
                (1, table) => {
                    for text in Fields(table.bytes()?) {
                        if let (1, text) = text? {
                            let text = text.bytes()?;
                            // The texts lie in the block, which is shorter than 4 GiB.
                            let from = (text.as_ptr() as usize - bytes.as_ptr() as usize) as u32;
                            block.texts.push(from..from + text.len() as u32);
                        }
                    }
                }
                (17, number) => block.granularity = number.number()? as i64,
                (19, number) => block.offset[1] = number.number()? as i64,
                (20, number) => block.offset[0] = number.number()? as i64,
                _ => {}
            }
        }
        Ok(block)
    }

    /// A text, whose bytes are taken off those that are left to its element.
    fn text(&self, number: u64, left: &mut usize) -> Result<&'a str, Broken> {
        let range = usize::try_from(number).ok().and_then(|number| self.texts.get(number));
        let Range { start, end } = range.ok_or(Broken::Text)?.clone();
        *left = left.checked_sub((end - start) as usize).ok_or(Broken::LongTexts)?;
        std::str::from_utf8(&self.bytes[start as usize..end as usize]).map_err(|_| Broken::Text)
    }

    /// A place in units of 1e-7 degrees; longitude first.
    fn place(&self, longitude: i64, latitude: i64) -> Result<[i64; 2], Broken> {
        let unit = |number: i64, offset: i64| {
            let nano = number.checked_mul(self.granularity)?.checked_add(offset)?;
            Some(nano.div_euclid(NANO))
        };
        let place = unit(longitude, self.offset[0]).zip(unit(latitude, self.offset[1]));
        place.map(|(x, y)| [x, y]).ok_or(Broken::Overflow)
    }

    fn tags(
        &self,
        mut keys: Packed<'a>,
        mut values: Packed<'a>,
    ) -> Result<Vec<(&'a str, &'a str)>, Broken> {
        let (mut tags, mut left) = (Vec::new(), MAX_TAG_BYTES);
        while let Some(key) = keys.next()? {
            self.tag(&mut tags, key, values.expect()?, &mut left)?;
        }
        values.end()?;
        Ok(tags)
    }

    fn tag(
        &self,
        tags: &mut Vec<(&'a str, &'a str)>,
        key: u64,
        value: u64,
        left: &mut usize,
    ) -> Result<(), Broken> {
        if tags.len() == MAX_TAGS {
            return Err(Broken::Tags);
        }
        tags.push((self.text(key, left)?, self.text(value, left)?));
        Ok(())
    }

    fn node(&self, bytes: &'a [u8], each: &mut Each<'_>) -> Result<(), Stop> {
        let (mut id, mut at) = (0, [0, 0]);
        let (mut keys, mut values) = (Packed::default(), Packed::default());
        for field in Fields(bytes) {
            match field? {
                (1, number) => id = signed(number.number()?),
                (2, list) => keys.set(list)?,
                (3, list) => values.set(list)?,
                (8, number) => at[1] = signed(number.number()?),
                (9, number) => at[0] = signed(number.number()?),
                _ => {}
            }
        }
        let place = self.place(at[0], at[1])?;
        each(Element::Node(id, place, &self.tags(keys, values)?))
    }

    fn dense(&self, bytes: &'a [u8], each: &mut Each<'_>) -> Result<(), Stop> {
        let [mut ids, mut latitudes, mut longitudes] = [Deltas::default(); 3];
        let mut pairs = Packed::default();
        for field in Fields(bytes) {
            match field? {
                (1, list) => ids.list.set(list)?,
                (8, list) => latitudes.list.set(list)?,
                (9, list) => longitudes.list.set(list)?,
                (10, list) => pairs.set(list)?,
                _ => {}
            }
        }
        // Without any tags there is no list of them at all.
        let has_tags = !pairs.is_empty();
        let mut tags = Vec::new();
        while let Some(id) = ids.next()? {
            let place = self.place(longitudes.expect()?, latitudes.expect()?)?;
            tags.clear();
            let mut left = MAX_TAG_BYTES;
            loop {
                match if has_tags { pairs.expect()? } else { 0 } {
                    0 => break,
                    key => self.tag(&mut tags, key, pairs.expect()?, &mut left)?,
                }
            }
            each(Element::Node(id, place, &tags))?;
        }
        latitudes.list.end()?;
        longitudes.list.end()?;
        Ok(())
    }

    fn way(&self, bytes: &'a [u8], each: &mut Each<'_>) -> Result<(), Stop> {
        let (mut id, mut nodes) = (0, Deltas::default());
        let (mut keys, mut values) = (Packed::default(), Packed::default());
        for field in Fields(bytes) {
            match field? {
                (1, number) => id = number.number()? as i64,
                (2, list) => keys.set(list)?,
                (3, list) => values.set(list)?,
                (8, list) => nodes.list.set(list)?,
                _ => {}
            }
        }
        each(Element::Way(id, nodes, &self.tags(keys, values)?))
    }

    fn relation(&self, bytes: &'a [u8], each: &mut Each<'_>) -> Result<(), Stop> {
        let mut id = 0;
        let (mut keys, mut values) = (Packed::default(), Packed::default());
        let (mut roles, mut ids, mut kinds) =
            (Packed::default(), Deltas::default(), Packed::default());
        for field in Fields(bytes) {
            match field? {
                (1, number) => id = number.number()? as i64,
                (2, list) => keys.set(list)?,
                (3, list) => values.set(list)?,
                (8, list) => roles.set(list)?,
                (9, list) => ids.list.set(list)?,
                (10, list) => kinds.set(list)?,
                _ => {}
            }
        }
        let tags = self.tags(keys, values)?;
        let (mut members, mut left) = (Vec::new(), MAX_ROLE_BYTES);
        while let Some(id) = ids.next()? {
            let role = self.text(roles.expect()?, &mut left)?;
            match kinds.expect()? {
                1 if members.len() == MAX_MEMBERS => return Err(Broken::Members.into()),
                1 => members.push((id, role)),
                0 | 2 => {}
                _ => return Err(Broken::Member.into()),
            }
        }
        roles.end()?;
        kinds.end()?;
        each(Element::Relation(id, &members, &tags))
    }
}

/// The ways among a relation's members, with their roles.
pub type Members<'a> = &'a [(i64, &'a str)];
