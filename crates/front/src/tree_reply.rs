//! Replies about trees of places, from the bytes that shards answer with.

use crate::request::{ObjectForm, kind_name};
use crate::resp::{Protocol, encode};
use remora_engine::command::{HAS_DATA, HAS_GEOMETRY, Objects};
use remora_geometry::Shape;
use remora_layout::node::{ENTRY_BYTES, Entry};
use remora_layout::object::Carried;
use remora_layout::rect::Rect;
use remora_layout::tree::{TREE_INFO_WORDS, TreeInfo};
use zerocopy::FromBytes;

/// Objects that are written in one piece.
const PIECE_OBJECTS: usize = 512;

fn rect_items(out: &mut Vec<u8>, protocol: Protocol, rect: &Rect) {
    for number in [rect.min_x, rect.min_y, rect.max_x, rect.max_y] {
        encode::double(out, protocol, number);
    }
}

/// An id; as a string if it is greater than any RESP integer.
fn id_item(out: &mut Vec<u8>, id: u64) {
    match i64::try_from(id) {
        Ok(id) => encode::integer(out, id),
        Err(_) => encode::bulk(out, id.to_string().as_bytes()),
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
    /// The reply that tells of these objects (as [`Objects`] encodes them).
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
            encode::array(out, self.objects.len() / ENTRY_BYTES);
            self.is_open = true;
        }
        let piece = &self.objects[self.written..];
        let piece = &piece[..piece.len().min(PIECE_OBJECTS * ENTRY_BYTES)];
        for (id, rect) in Objects::parse(piece).into_iter().flat_map(Objects::iter) {
            self.form.write(out, protocol, id, &rect);
        }
        self.written += piece.len();
        self.written == self.objects.len()
    }
}

/// Appends an array of these objects in one piece.
pub fn objects(out: &mut Vec<u8>, protocol: Protocol, objects: &[Entry], form: &ObjectForm) {
    encode::array(out, objects.len());
    for Entry { rect, word } in objects {
        form.write(out, protocol, *word, rect);
    }
}

impl ObjectForm {
    fn write(&self, out: &mut Vec<u8>, protocol: Protocol, id: u64, rect: &Rect) {
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

/// RTREE.GET: a rectangle and what the object carries behind it, as `flags`
/// say; its geometry, as WKT, if that was asked for. Null without a value.
pub fn object(
    out: &mut Vec<u8>,
    protocol: Protocol,
    value: Option<&[u8]>,
    flags: i64,
    with_geometry: bool,
) {
    let Some((rect, rest)) = value.and_then(|value| Rect::read_from_prefix(value).ok()) else {
        return encode::null(out, protocol);
    };
    let has = |flag: u8| flags & i64::from(flag) != 0;
    let data_alone = Carried { geometry: &[], data: rest };
    let carried = if has(HAS_GEOMETRY) { Carried::parse(rest) } else { Some(data_alone) };
    let Carried { geometry, data } = carried.unwrap_or_default();
    encode::array(out, 5 + usize::from(with_geometry));
    rect_items(out, protocol, &rect);
    encode::bulk_or_null(out, protocol, has(HAS_DATA).then_some(data));
    if with_geometry {
        let wkt = Shape::from_wkb(geometry).ok().map(|shape| shape.to_wkt());
        encode::bulk_or_null(out, protocol, wkt.as_deref().map(str::as_bytes));
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
    ];
    encode::map(out, protocol, 1 + numbers.len());
    encode::bulk(out, b"kind");
    encode::bulk(out, kind_name(info.kind).as_bytes());
    for (name, number) in numbers {
        encode::bulk(out, name.as_bytes());
        encode::integer(out, number as i64);
    }
}
