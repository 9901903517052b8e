//! Replies about trees of places, from the bytes that shards answer with.

use crate::request::{ObjectForm, ObjectParts, kind_name};
use crate::wire::{Protocol, encode};
use remora_geometry::Shape;
use remora_layout::node::Entry;
use remora_layout::object::Carried;
use remora_layout::rect::Rect;
use remora_layout::tree::{TREE_INFO_WORDS, TreeInfo};
use remora_protocol::tree::{Fields, FoundObjects, HAS_DATA, HAS_EXPIRY, HAS_GEOMETRY, ObjectId};
use zerocopy::FromBytes;

/// Objects that are written in one piece.
const PIECE_OBJECTS: usize = 512;

fn rect_items(out: &mut Vec<u8>, protocol: Protocol, rect: &Rect) {
    for number in [rect.min_x, rect.min_y, rect.max_x, rect.max_y] {
        encode::double(out, protocol, number);
    }
}

/// An id; as a string if it is no integer.
fn id_item(out: &mut Vec<u8>, id: ObjectId<'_>) {
    match id {
        ObjectId::Number(number) => encode::integer(out, number as i64),
        ObjectId::Name(name) => encode::bulk(out, name),
    }
}

/// An array of objects, written piece by piece: as text it can be many times
/// as long as the bytes that it is made of.
#[derive(Debug)]
pub struct ObjectsReply {
    objects: Vec<u8>,
    form: ObjectForm,
    /// Bytes of those objects that are written.
    written: usize,
    is_open: bool,
}

impl ObjectsReply {
    /// The reply that tells of these objects ([`FoundObjects`]).
    pub const fn new(objects: Vec<u8>, form: ObjectForm) -> Self {
        Self { objects, form, written: 0, is_open: false }
    }

    /// Bytes of the objects.
    pub fn bytes(&self) -> usize {
        self.objects.len()
    }

    /// Appends the next piece. Whether it was the last one.
    pub fn write_piece(&mut self, out: &mut Vec<u8>, protocol: Protocol) -> bool {
        if !self.is_open {
            encode::array(out, FoundObjects::of(&self.objects).iter().count());
            self.is_open = true;
        }
        let mut rest = FoundObjects::of(&self.objects[self.written..]);
        for _ in 0..PIECE_OBJECTS {
            let Some(((object, id), after)) = rest.split() else { return true };
            self.form.write(out, protocol, id, &object.rect);
            rest = after;
        }
        self.written = self.objects.len() - rest.bytes().len();
        rest.bytes().is_empty()
    }
}

/// Appends an array of these objects, whose words are their ids, in one piece.
pub fn objects(out: &mut Vec<u8>, protocol: Protocol, objects: &[Entry], form: &ObjectForm) {
    encode::array(out, objects.len());
    for Entry { rect, word } in objects {
        form.write(out, protocol, ObjectId::Number(*word), rect);
    }
}

impl ObjectForm {
    fn write(&self, out: &mut Vec<u8>, protocol: Protocol, id: ObjectId<'_>, rect: &Rect) {
        let items = 4 * usize::from(self.rect) + usize::from(self.distance_from.is_some());
        if items > 0 {
            encode::array(out, 1 + items);
        }
        id_item(out, id);
        if let Some((x, y)) = self.distance_from {
            encode::double(out, protocol, rect.distance_squared(x, y).sqrt());
        }
        if self.rect {
            rect_items(out, protocol, rect);
        }
    }
}

/// RTREE.GET: a rectangle and data, as `flags` say, and the parts that were asked
/// for: the geometry, as WKT, the fields, and the expiry. Null without a value.
pub fn object(
    out: &mut Vec<u8>,
    protocol: Protocol,
    value: Option<&[u8]>,
    flags: i64,
    parts: ObjectParts,
) {
    let parsed = value.and_then(|value| {
        let (rect, rest) = Rect::read_from_prefix(value).ok()?;
        let (&at_ms, rest) = rest.split_first_chunk()?;
        Some((rect, u64::from_le_bytes(at_ms), Carried::parse(rest)?))
    });
    let Some((rect, expires_at_ms, carried)) = parsed else {
        return encode::null(out, protocol);
    };
    let has = |flag: u8| flags & i64::from(flag) != 0;
    let asked = [parts.geometry, parts.fields, parts.expiry];
    encode::array(out, 5 + asked.into_iter().filter(|is_asked| *is_asked).count());
    rect_items(out, protocol, &rect);
    encode::bulk_or_null(out, protocol, has(HAS_DATA).then_some(carried.data));
    if parts.geometry {
        let shape = Shape::from_wkb(carried.geometry).ok().filter(|_| has(HAS_GEOMETRY));
        let wkt = shape.map(|shape| shape.to_wkt());
        encode::bulk_or_null(out, protocol, wkt.as_deref().map(str::as_bytes));
    }
    if parts.fields {
        let fields = Fields::parse(carried.fields).unwrap_or_default();
        encode::map(out, protocol, fields.iter().count());
        for (name, value) in fields.iter() {
            encode::bulk(out, name);
            encode::bulk(out, value);
        }
    }
    if parts.expiry {
        encode::integer(out, if has(HAS_EXPIRY) { expires_at_ms as i64 } else { -1 });
    }
}

/// RTREE.INFO, from the words of a [`TreeInfo`]. Null if they are none.
pub fn info(out: &mut Vec<u8>, protocol: Protocol, value: Option<&[u8]>) {
    let words = value.and_then(|value| <[u64; TREE_INFO_WORDS]>::read_from_bytes(value).ok());
    let Some(info) = words.and_then(|words| TreeInfo::from_words(&words)) else {
        return encode::null(out, protocol);
    };
    let numbers = [
        ("capacity", info.capacity.into()),
        ("height", info.height.into()),
        ("objects", info.objects),
        ("nodes", info.nodes),
        ("node_bytes", info.node_bytes),
        ("index_bytes", info.index_bytes),
        ("with_data", info.with_data),
        ("with_geometry", info.with_geometry),
        ("with_fields", info.with_fields),
        ("with_expiry", info.with_expiry),
        ("with_surrogate", info.with_surrogate),
    ];
    encode::map(out, protocol, 1 + numbers.len());
    encode::bulk(out, b"kind");
    encode::bulk(out, kind_name(info.kind).as_bytes());
    for (name, number) in numbers {
        encode::bulk(out, name.as_bytes());
        encode::integer(out, number as i64);
    }
}
