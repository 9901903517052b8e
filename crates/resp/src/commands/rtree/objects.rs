//! Trees of places and their objects: they are made, looked at, changed and removed.

use super::words::{
    GEOMETRY, MAX_X, MAX_Y, MIN_X, MIN_Y, ONE_TREE, READ, TREE, TREE_NAME, X, Y, answered, point,
    rect, shape, whole, write_rect,
};
use crate::arguments::{EXPIRATIONS, ExpiryForm, VALUE};
use crate::error::CommandError;
use crate::form::{ListForm, ObjectReply, ReplyForm, Shape};
use crate::keys::{Keys, key};
use crate::request::Request;
use crate::spec::{Argument, CommandSpec, Flag, KeyPlaces, Kind, ParseResult};
use crate::wire::{RespVersion, Words, encode};
use remora_frontend::ShardAnswer;
use remora_geometry::{self as geometry, Wkb};
use remora_layout::limits::{MAX_FIELDS, MAX_NODE_ENTRIES, MAX_OBJECT_BYTES, MIN_NODE_ENTRIES};
use remora_layout::object::Payload;
use remora_layout::rect::Rect;
use remora_layout::tree::{TREE_INFO_WORDS, TreeInfo, TreeKind};
use remora_protocol::message::Status;
use remora_protocol::tree::{
    Fields, HAS_DATA, HAS_EXPIRY, HAS_GEOMETRY, ObjectId, PutObject, TreeCommand, TreeSettings,
};
use remora_protocol::{self as protocol, Expiry, Items, integer};
use zerocopy::FromBytes;

const ID: Argument = Argument::new("id", Kind::String);
const DATA: Argument = Argument::new("data", Kind::String).after("DATA").optional();
const FIELD: Argument = Argument::of("data", Kind::Block, &[FIELD_NAME, VALUE]).multiple();
const FIELD_NAME: Argument = Argument::new("field", Kind::String);

const FIELDS: Argument =
    Argument::of("fields", Kind::Block, &[Argument::new("count", Kind::Integer), FIELD.optional()])
        .after("FIELDS")
        .optional();

const EXPIRATION: Argument = Argument::of("expiration", Kind::OneOf, EXPIRATIONS).optional();
const WINDOW: Argument = Argument::of("window", Kind::Block, &[MIN_X, MIN_Y, MAX_X, MAX_Y]);

const CREATE: CommandSpec = CommandSpec {
    name: "rtree.create",
    arity: -2,
    flags: &[Flag::Write, Flag::DenyOom, Flag::Fast],
    keys: KeyPlaces::one(&["OW", "insert"]),
    summary: "Makes an empty tree of places.",
    complexity: "O(1)",
    notes: "KIND says how it is written: as R*-tree (rstar, without KIND), as Guttman's R-tree, or \
as Hilbert R-tree. All are searched alike. CAPACITY is the number of entries of a node, 4 to 1024, \
30 without it. BOUNDS says where most objects will lie; only a Hilbert R-tree uses it, and without \
it takes the unit square. If there is a tree of that name the reply is an error.",
    arguments: &[
        TREE_NAME,
        Argument::of(
            "kind",
            Kind::OneOf,
            &[
                Argument::word("rstar", "rstar"),
                Argument::word("guttman", "guttman"),
                Argument::word("hilbert", "hilbert"),
            ],
        )
        .after("KIND")
        .optional(),
        Argument::new("entries", Kind::Integer).after("CAPACITY").optional(),
        Argument::of("bounds", Kind::Block, &[MIN_X, MIN_Y, MAX_X, MAX_Y])
            .after("BOUNDS")
            .optional(),
    ],
    parse: rtree_create,
    ..TREE
};

static MADE: ObjectReply = ObjectReply {
    command: "rtree.create",
    shape: Shape::Ok,
    errors: &[(Status::NotDone, "ERR a tree of that name exists")],
};

fn rtree_create(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    let (mut kind, mut capacity, mut bounds) = (None, None, None);
    let mut at = 2;
    while at < words.len() {
        let left = words.len() - at - 1;
        if words.is(at, "kind") && kind.is_none() && left >= 1 {
            let kinds = [TreeKind::RStar, TreeKind::Guttman, TreeKind::Hilbert];
            let named = kinds.into_iter().find(|kind| words.is(at + 1, kind_name(*kind)));
            kind = Some(
                named
                    .ok_or(CommandError::Own("ERR KIND is not rstar, guttman or hilbert".into()))?,
            );
            at += 2;
        } else if words.is(at, "capacity") && capacity.is_none() && left >= 1 {
            let (from, to) = (MIN_NODE_ENTRIES as i64, MAX_NODE_ENTRIES as i64);
            capacity = Some(whole(words.get(at + 1), "CAPACITY", from, to)? as usize);
            at += 2;
        } else if words.is(at, "bounds") && bounds.is_none() && left >= 4 {
            bounds = Some(rect(words, at + 1)?);
            at += 5;
        } else {
            return Err(CommandError::Syntax);
        }
    }
    let plain = TreeSettings::default();
    let settings = TreeSettings {
        kind: kind.unwrap_or(plain.kind),
        capacity: capacity.unwrap_or(plain.capacity),
        bounds: bounds.unwrap_or(plain.bounds),
    };
    answered(words, TreeCommand::Create(settings), &MADE)
}

/// A tree's kind as its users call it.
const fn kind_name(kind: TreeKind) -> &'static str {
    match kind {
        TreeKind::RStar => "rstar",
        TreeKind::Guttman => "guttman",
        TreeKind::Hilbert => "hilbert",
    }
}

const DROP: CommandSpec = CommandSpec {
    name: "rtree.drop",
    arity: 2,
    flags: &[Flag::Write],
    keys: KeyPlaces::one(&["RM", "delete"]),
    summary: "Removes a tree with all its objects; returns 1 if there was one, else 0.",
    complexity: "O(N) where N is the number of objects",
    notes: "A search that is under way ends with an error.",
    arguments: ONE_TREE,
    parse: rtree_drop,
    ..TREE
};

static DROPPED: ObjectReply = ObjectReply::new("rtree.drop", Shape::Number);

fn rtree_drop(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    answered(words, TreeCommand::Drop, &DROPPED)
}

const INFO: CommandSpec = CommandSpec {
    name: "rtree.info",
    arity: 2,
    flags: &[Flag::ReadOnly, Flag::Fast],
    summary: "Returns a tree's kind and sizes.",
    complexity: "O(1)",
    notes: "The reply is a map (an array in RESP2): kind; capacity, the entries that a node has \
room for; height in levels; objects; nodes; node_bytes, what the nodes take of the arena; \
index_bytes, what finding objects by their ids takes beside it; with_data, the objects that have \
data; with_geometry, with_fields and with_expiry likewise; with_surrogate, those whose id is no integer \
or that had an expiry. A tree that is not there is an error.",
    arguments: ONE_TREE,
    parse: rtree_info,
    ..READ
};

static FACTS: ObjectReply = ObjectReply::new("rtree.info", Shape::Own(write_info));

fn rtree_info(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    answered(words, TreeCommand::Info, &FACTS)
}

/// Writes the words of a [`TreeInfo`]. Null if they are none.
fn write_info(out: &mut Vec<u8>, version: RespVersion, answer: ShardAnswer<'_>) {
    let words =
        answer.value.and_then(|value| <[u64; TREE_INFO_WORDS]>::read_from_bytes(value).ok());
    let Some(info) = words.and_then(|words| TreeInfo::from_words(&words)) else {
        return encode::null(out, version);
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
    encode::map(out, version, 1 + numbers.len());
    encode::bulk(out, b"kind");
    encode::bulk(out, kind_name(info.kind).as_bytes());
    for (name, number) in numbers {
        encode::bulk(out, name.as_bytes());
        encode::integer(out, number as i64);
    }
}

const ADD: CommandSpec = CommandSpec {
    name: "rtree.add",
    arity: -5,
    flags: &[Flag::Write, Flag::DenyOom],
    keys: KeyPlaces::one(&["RW", "update"]),
    summary: "Adds an object to a tree, or moves it; returns 1 if it is new, else 0.",
    notes: "A tree that is not there is made as RTREE.CREATE makes it without options. An id is an \
integer from 0 to 9223372036854775807, which costs least, or any other 1 to 512 bytes. An object \
may have up to 16384 bytes of DATA; up to 64 FIELDS, pairs of a name and a value, 8192 bytes in all; \
and a time at which it expires: EX, PX, EXAT, PXAT as in SET. What is not named stays as it is; empty \
DATA is none, FIELDS 0 are none, and PERSIST takes the expiry away. An object that has expired is \
given by no command, and removed soon. GEOMETRY takes WKT or GeoJSON: points, lines, \
polygons, several of a kind, or collections of them, up to 65536 bytes of WKB; the object's \
rectangle is the geometry's bounds. An object that is added without GEOMETRY is its rectangle, \
whatever it was before.",
    arguments: &[
        TREE_NAME,
        ID,
        Argument::of("place", Kind::OneOf, &[WINDOW, GEOMETRY.after("GEOMETRY")]),
        DATA,
        FIELDS,
        EXPIRATION,
    ],
    parse: rtree_add,
    ..TREE
};

static ADDED: ObjectReply = ObjectReply::new("rtree.add", Shape::Number);

fn rtree_add(words: Words<'_>, now: u64) -> ParseResult<'_> {
    let now = (now, "rtree.add");
    if words.is(3, "geometry") {
        let shape = shape(words.get(4))?;
        let geometry = Wkb::known(words.keep(shape.to_wkb()), shape.bounds());
        return put(words, (shape.bounds(), Some(geometry)), 5, now);
    }
    if words.len() < 7 {
        return Err(CommandError::Syntax);
    }
    put(words, (rect(words, 3)?, None), 7, now)
}

const ADDPOINT: CommandSpec = CommandSpec {
    name: "rtree.addpoint",
    arity: -5,
    summary: "Adds a point to a tree, or moves an object there; returns 1 if it is new, else 0.",
    notes: "RTREE.ADD of a rectangle without extent.",
    arguments: &[TREE_NAME, ID, X, Y, DATA, FIELDS, EXPIRATION],
    parse: rtree_addpoint,
    ..ADD
};

fn rtree_addpoint(words: Words<'_>, now: u64) -> ParseResult<'_> {
    let (x, y) = point(words, 3)?;
    let rect = Rect { min_x: x, max_x: x, min_y: y, max_y: y };
    put(words, (rect, None), 5, (now, "rtree.addpoint"))
}

/// An object to be put; the remaining words are its parts.
fn put<'a>(
    words: Words<'a>,
    (rect, geometry): (Rect, Option<Wkb<'a>>),
    at: usize,
    (now_unix_ms, command): (u64, &'static str),
) -> ParseResult<'a> {
    let parts = PutParts::parse(words, at, now_unix_ms, command)?;
    let (id, data) = (id(words.get(2))?, parts.data);
    let expiry = parts.expiry.unwrap_or(Expiry::Keep);
    let fields = parts.fields.map(|fields| words.keep(fields)).and_then(Fields::parse);
    let put = PutObject { id, rect, data, geometry, fields, expiry };
    answered(words, TreeCommand::Put(put), &ADDED)
}

/// The remaining words of a put: the parts that it names.
#[derive(Default)]
struct PutParts<'a> {
    data: Option<&'a [u8]>,
    fields: Option<Vec<u8>>,
    expiry: Option<Expiry>,
}

impl<'a> PutParts<'a> {
    fn parse(
        words: Words<'a>,
        mut at: usize,
        now_unix_ms: u64,
        command: &'static str,
    ) -> Result<Self, CommandError> {
        let mut parts = Self::default();
        while at < words.len() {
            let left = words.len() - at - 1;
            if words.is(at, "data") && parts.data.is_none() && left >= 1 {
                parts.data = Some(words.get(at + 1));
                at += 2;
            } else if words.is(at, "fields") && parts.fields.is_none() && left >= 1 {
                let count = whole(words.get(at + 1), "FIELDS", 0, i64::MAX)?;
                let to = usize::try_from(count).ok().filter(|count| *count <= (left - 1) / 2);
                let to = at + 2 + 2 * to.ok_or(CommandError::Syntax)?;
                parts.fields = Some(fields(words, at + 2, to)?);
                at = to;
            } else if words.is(at, "persist") && parts.expiry.is_none() {
                parts.expiry = Some(Expiry::Never);
                at += 1;
            } else if let Some(form) = ExpiryForm::of_option(words.get(at)).filter(|_| left >= 1)
                && parts.expiry.is_none()
            {
                let number = integer::parse(words.get(at + 1)).ok_or(CommandError::NotAnInteger)?;
                if number <= 0 {
                    return Err(CommandError::InvalidExpiry(command));
                }
                parts.expiry = Some(Expiry::At(form.at_ms(number, now_unix_ms, command)?));
                at += 2;
            } else {
                return Err(CommandError::Syntax);
            }
        }
        if parts.data.is_some_and(|data| data.len() > MAX_OBJECT_BYTES) {
            return Err(CommandError::DataTooLong);
        }
        Ok(parts)
    }
}

/// Names and values of fields, from one word up to another one.
fn fields(words: Words<'_>, from: usize, to: usize) -> Result<Vec<u8>, CommandError> {
    let pairs = (from..to).step_by(2).map(|at| (words.get(at), words.get(at + 1)));
    Fields::encode(pairs).ok_or(CommandError::TooManyFields)
}

/// An object's id.
fn id(word: &[u8]) -> Result<ObjectId<'_>, CommandError> {
    let id = ObjectId::of_text(word);
    id.is_valid().then_some(id).ok_or(CommandError::ObjectId)
}

/// The errors of the commands on fields if there is no object.
const NO_OBJECT: &[(Status, &str)] = &[
    (Status::NotFound, "ERR the tree has no such object"),
    (Status::TooLarge, "ERR the object would have too many fields"),
];

const FSET: CommandSpec = CommandSpec {
    name: "rtree.fset",
    arity: -5,
    flags: &[Flag::Write, Flag::DenyOom, Flag::Fast],
    keys: KeyPlaces::one(&["RW", "update"]),
    summary: "Sets fields of an object; returns how many of them are new.",
    complexity: "O(M) where M is the number of the object's fields",
    notes: "The other fields stay. The limits are those of RTREE.ADD, whose FIELDS sets all of them \
anew. A tree that is not there, and an object that is not, are errors.",
    arguments: &[TREE_NAME, ID, FIELD],
    parse: rtree_fset,
    ..TREE
};

static FIELDS_SET: ObjectReply =
    ObjectReply { command: "rtree.fset", shape: Shape::Number, errors: NO_OBJECT };

fn rtree_fset(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    if words.len().is_multiple_of(2) {
        return Err(CommandError::Syntax);
    }
    let (id, fields) = (id(words.get(2))?, fields(words, 3, words.len())?);
    let fields = Fields::parse(words.keep(fields)).unwrap_or_default();
    answered(words, TreeCommand::SetFields { id, fields }, &FIELDS_SET)
}

const FGET: CommandSpec = CommandSpec {
    name: "rtree.fget",
    arity: -4,
    flags: &[Flag::ReadOnly, Flag::Fast],
    summary: "Returns the values of an object's fields, null for each that it does not have.",
    complexity: "O(M) where M is the number of the object's fields and of those asked for",
    notes: "A tree that is not there, and an object that is not, are errors. RTREE.GET with \
WITHFIELDS tells all fields.",
    arguments: &[TREE_NAME, ID, FIELD_NAME.multiple()],
    parse: rtree_fget,
    ..READ
};

static FIELDS_TOLD: ObjectReply =
    ObjectReply { command: "rtree.fget", shape: Shape::List(ListForm::Array), errors: NO_OBJECT };

fn rtree_fget(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    if words.len() - 3 > MAX_FIELDS {
        return Err(CommandError::TooManyFields);
    }
    let mut names = Vec::new();
    (3..words.len()).for_each(|at| Items::push(&mut names, words.get(at)));
    let names = Items::parse(words.keep(names)).ok_or(CommandError::Syntax)?;
    answered(words, TreeCommand::GetFields { id: id(words.get(2))?, names }, &FIELDS_TOLD)
}

const REM: CommandSpec = CommandSpec {
    name: "rtree.rem",
    arity: -3,
    flags: &[Flag::Write],
    keys: KeyPlaces::one(&["RW", "delete"]),
    summary: "Removes objects from a tree; returns how many of them were there.",
    complexity: "O(log N) for each id where N is the number of objects",
    notes: "Several objects are not one change: others may see some removed and some not yet.",
    arguments: &[TREE_NAME, ID.multiple()],
    parse: rtree_rem,
    ..TREE
};

fn rtree_rem(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    let parts = Keys::all(words, 2);
    parts.clone().try_for_each(|word| id(word).map(drop))?;
    let key = key(words.get(1))?;
    Ok(Request::EachPart { key, parts, request: removal, form: ReplyForm::Sum })
}

/// The request that removes an object.
fn removal(id: &[u8]) -> protocol::Request<'_> {
    let command = TreeCommand::Remove { id: ObjectId::of_text(id) };
    command.checked().map(TreeCommand::request).expect("any id can be asked for")
}

const GET: CommandSpec = CommandSpec {
    name: "rtree.get",
    arity: -3,
    flags: &[Flag::ReadOnly, Flag::Fast],
    summary: "Returns an object's rectangle and data, or null if the tree has no such object.",
    notes: "The reply is an array: minx, miny, maxx, maxy, and the data or null; then what was asked \
for, in this order: WITHGEOMETRY: the geometry as WKT, or null; WITHFIELDS: the fields, a map (an \
array in RESP2); WITHEXPIRY: when it expires, in Unix ms, or -1. Numbers are \
doubles in RESP3 and strings in RESP2, as short as they can be and still be read back the same. A \
tree that is not there is an error.",
    arguments: &[
        TREE_NAME,
        ID,
        Argument::word("withgeometry", "WITHGEOMETRY").optional(),
        Argument::word("withfields", "WITHFIELDS").optional(),
        Argument::word("withexpiry", "WITHEXPIRY").optional(),
    ],
    parse: rtree_get,
    ..READ
};

/// By the parts that a reply contains beside the rectangle and the data.
static OBJECTS: [ObjectReply; 8] = [
    object::<0>(),
    object::<1>(),
    object::<2>(),
    object::<3>(),
    object::<4>(),
    object::<5>(),
    object::<6>(),
    object::<7>(),
];

const fn object<const PARTS: usize>() -> ObjectReply {
    ObjectReply::new("rtree.get", Shape::Own(write_object::<PARTS>))
}

/// Parts of an object: its geometry, its fields, and when it expires.
const OBJECT_PARTS: [(&str, usize); 3] =
    [("withgeometry", GEOMETRY_PART), ("withfields", FIELDS_PART), ("withexpiry", EXPIRY_PART)];
const GEOMETRY_PART: usize = 1;
const FIELDS_PART: usize = 2;
const EXPIRY_PART: usize = 4;

fn rtree_get(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    let mut parts = 0;
    for at in 3..words.len() {
        let mut named = OBJECT_PARTS
            .into_iter()
            .filter(|&(name, part)| words.is(at, name) && parts & part == 0);
        let (_, part) = named.next().ok_or(CommandError::Syntax)?;
        parts |= part;
    }
    answered(words, TreeCommand::Get { id: id(words.get(2))? }, &OBJECTS[parts])
}

/// A rectangle and data, as the flags say, and the parts that were asked for: the geometry,
/// as WKT, the fields, and the expiry. Null without a value.
fn write_object<const PARTS: usize>(
    out: &mut Vec<u8>,
    version: RespVersion,
    answer: ShardAnswer<'_>,
) {
    let ShardAnswer { number: flags, value, .. } = answer;
    let parsed = value.and_then(|value| {
        let (rect, rest) = Rect::read_from_prefix(value).ok()?;
        let (&at_ms, rest) = rest.split_first_chunk()?;
        Some((rect, u64::from_le_bytes(at_ms), Payload::parse(rest)?))
    });
    let Some((rect, expires_at_ms, payload)) = parsed else {
        return encode::null(out, version);
    };
    let has = |flag: u8| flags & i64::from(flag) != 0;
    encode::array(out, 5 + PARTS.count_ones() as usize);
    write_rect(out, version, &rect);
    encode::bulk_or_null(out, version, has(HAS_DATA).then_some(payload.data));
    if PARTS & GEOMETRY_PART != 0 {
        let shape = geometry::Shape::from_wkb(payload.geometry).ok().filter(|_| has(HAS_GEOMETRY));
        let wkt = shape.map(|shape| shape.to_wkt());
        encode::bulk_or_null(out, version, wkt.as_deref().map(str::as_bytes));
    }
    if PARTS & FIELDS_PART != 0 {
        let fields = Fields::parse(payload.fields).unwrap_or_default();
        encode::map(out, version, fields.iter().count());
        for (name, value) in fields.iter() {
            encode::bulk(out, name);
            encode::bulk(out, value);
        }
    }
    if PARTS & EXPIRY_PART != 0 {
        encode::integer(out, if has(HAS_EXPIRY) { expires_at_ms as i64 } else { -1 });
    }
}

/// The commands.
pub(crate) const COMMANDS: &[CommandSpec] =
    &[ADD, ADDPOINT, CREATE, DROP, FGET, FSET, GET, INFO, REM];
