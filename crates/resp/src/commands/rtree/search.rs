//! Searches of trees of places.

use super::words::{
    GEOMETRY, MAX_X, MAX_Y, MIN_X, MIN_Y, READ, TREE_NAME, X, Y, answered, number, point, rect,
    request, shape, whole, write_rect,
};
use crate::error::CommandError;
use crate::form::{ObjectForm, ObjectReply, ReplyForm, Shape};
use crate::spec::{Argument, CommandSpec, Flag, Kind, ParseResult};
use crate::wire::{RespVersion, Words, encode};
use remora_geometry::Refine;
use remora_layout::limits::MAX_NEAREST;
use remora_layout::node::Entry;
use remora_layout::rect::{Predicate, Rect};
use remora_protocol::tree::{FoundObjects, ObjectId, TreeCommand};

const PREDICATE: Argument = Argument::of(
    "predicate",
    Kind::OneOf,
    &[
        Argument::word("intersects", "INTERSECTS"),
        Argument::word("within", "WITHIN"),
        Argument::word("contains", "CONTAINS"),
    ],
)
.optional();

/// A window or a geometry, and the relation of objects to it.
const RTREE_PLACE: Argument = Argument::of(
    "place",
    Kind::OneOf,
    &[
        Argument::of("in-window", Kind::Block, &[MIN_X, MIN_Y, MAX_X, MAX_Y, PREDICATE]),
        Argument::of(
            "in-geometry",
            Kind::Block,
            &[
                Argument::word("geometry-token", "GEOMETRY"),
                Argument::of(
                    "refine",
                    Kind::OneOf,
                    &[
                        GEOMETRY.after("INTERSECTS"),
                        GEOMETRY.after("WITHIN"),
                        GEOMETRY.after("CONTAINS"),
                        Argument::of(
                            "near",
                            Kind::Block,
                            &[GEOMETRY.after("DWITHIN"), Argument::new("distance", Kind::Double)],
                        ),
                    ],
                ),
            ],
        ),
    ],
);

const LIMIT: Argument = Argument::new("count", Kind::Integer).after("LIMIT").optional();
const WITH_RECT: Argument = Argument::word("withrect", "WITHRECT").optional();

const SEARCH: CommandSpec = CommandSpec {
    name: "rtree.search",
    arity: -5,
    flags: &[Flag::ReadOnly],
    summary: "Returns the objects in a window, in no order.",
    complexity: "Usually O(log N + M) where N is the number of objects and M of those found",
    notes: "INTERSECTS, which need not be said: the objects that share a point with the window, be \
it on the edge; WITHIN: those that lie within it; CONTAINS: those that contain it. GEOMETRY compares geometries, WKT or \
GeoJSON, instead of rectangles, in the plane; an object without one is its rectangle; edges count. \
INTERSECTS: those that share a point with it; WITHIN: those of which every point is one of it; \
CONTAINS: those that have every point of it; DWITHIN: those at most so far from it, in the unit of \
the coordinates. LIMIT cuts the \
reply after so many objects: any of those in the window. The reply is an array of ids; WITHRECT: of \
arrays of id, minx, miny, maxx, maxy. An id that is no integer is a string. More than 1677721 objects are an error. While the tree changes, an object that \
was in the window all the time is found, once; one that came, went or moved meanwhile may be found \
or not. A search of many nodes lets the shard do other work in between, and what a connection sends \
behind a search waits for its reply, if more than 1638 objects may come. A tree that is not there \
is an error.",
    arguments: &[TREE_NAME, RTREE_PLACE, LIMIT, WITH_RECT],
    parse: rtree_search,
    ..READ
};

fn rtree_search(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    if words.is(2, "geometry") {
        return refined_search(words);
    }
    if words.len() < 6 {
        return Err(CommandError::Syntax);
    }
    let window = rect(words, 2)?;
    let (mut asked, mut form) = (None, SearchForm::default());
    let mut at = 6;
    while at < words.len() {
        if asked.is_none()
            && let Some(named) = predicate(words, at)
        {
            asked = Some(named);
            at += 1;
        } else {
            at = form.option(words, at)?;
        }
    }
    let command = TreeCommand::Search { window, predicate: asked.unwrap_or_default() };
    request(words, command, form.of_reply())
}

/// RTREE.SEARCH of geometries, and options.
fn refined_search(words: Words<'_>) -> ParseResult<'_> {
    let (refine, mut at) = refine(words)?;
    let mut form = SearchForm::default();
    while at < words.len() {
        at = form.option(words, at)?;
    }
    let refine = words.keep(refine.to_bytes());
    request(words, TreeCommand::Refine { refine, of: None }, form.of_reply())
}

/// The options of RTREE.SEARCH.
#[derive(Default)]
struct SearchForm {
    with_rect: bool,
    most: Option<usize>,
}

impl SearchForm {
    /// Takes the option at `at`; returns the position of the next one.
    fn option(&mut self, words: Words<'_>, at: usize) -> Result<usize, CommandError> {
        if words.is(at, "withrect") && !self.with_rect {
            self.with_rect = true;
            Ok(at + 1)
        } else if words.is(at, "limit") && self.most.is_none() && at + 1 < words.len() {
            self.most = Some(whole(words.get(at + 1), "LIMIT", 1, i64::MAX)? as usize);
            Ok(at + 2)
        } else {
            Err(CommandError::Syntax)
        }
    }

    fn of_reply(&self) -> ReplyForm {
        ReplyForm::TreeObjects(ObjectForm {
            rect: self.with_rect,
            distance_from: None,
            most: self.most.unwrap_or(usize::MAX),
        })
    }
}

/// GEOMETRY predicate geometry [distance], from the second argument on; returns the position of the
/// next option.
fn refine(words: Words<'_>) -> Result<(Refine, usize), CommandError> {
    let near = words.is(3, "dwithin");
    let asked = predicate(words, 3);
    if (asked.is_none() && !near) || words.len() < 5 + usize::from(near) {
        return Err(CommandError::Syntax);
    }
    let shape = shape(words.get(4))?;
    let refine = match asked {
        Some(Predicate::Intersects) => Refine::Intersects(shape),
        Some(Predicate::Within) => Refine::Within(shape),
        Some(Predicate::Contains) => Refine::Contains(shape),
        None => match number(words.get(5), "distance")? {
            most if most >= 0.0 => Refine::DistanceAtMost { from: shape, most },
            _ => return Err(CommandError::Negative("distance")),
        },
    };
    Ok((refine, 5 + usize::from(near)))
}

/// A predicate's word.
fn predicate(words: Words<'_>, at: usize) -> Option<Predicate> {
    let all = [
        ("intersects", Predicate::Intersects),
        ("within", Predicate::Within),
        ("contains", Predicate::Contains),
    ];
    all.into_iter().find(|(word, _)| words.is(at, word)).map(|(_, predicate)| predicate)
}

const COUNT: CommandSpec = CommandSpec {
    name: "rtree.count",
    arity: -5,
    flags: &[Flag::ReadOnly],
    summary: "Returns the number of objects in a window, or of those whose geometries fit.",
    complexity: "Usually O(log N + M) where N is the number of objects and M of those in the window",
    notes: "The window, the geometry and the predicates are those of RTREE.SEARCH; so is what holds while the \
tree changes. A tree that is not there is an error.",
    arguments: &[TREE_NAME, RTREE_PLACE],
    parse: rtree_count,
    ..READ
};

static COUNTED: ObjectReply = ObjectReply::new("rtree.count", Shape::Number);

fn rtree_count(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    if words.is(2, "geometry") {
        let (refine, end) = refine(words)?;
        if words.len() > end {
            return Err(CommandError::Syntax);
        }
        let refine = words.keep(refine.to_bytes());
        return answered(words, TreeCommand::CountRefined { refine }, &COUNTED);
    }
    if words.len() < 6 {
        return Err(CommandError::Syntax);
    }
    let window = rect(words, 2)?;
    let predicate = match words.len() {
        6 => Predicate::default(),
        7 => predicate(words, 6).ok_or(CommandError::Syntax)?,
        _ => return Err(CommandError::Syntax),
    };
    answered(words, TreeCommand::Count { window, predicate }, &COUNTED)
}

const NEAREST: CommandSpec = CommandSpec {
    name: "rtree.nearest",
    arity: -5,
    flags: &[Flag::ReadOnly],
    summary: "Returns the objects nearest to a point, the nearest first.",
    complexity: "Usually O(log N + M log M) where N is the number of objects and M of those asked for",
    notes: "Distances are those of the plane, from the point to the nearest point of the \
rectangle: 0 inside. Count is 1 to 2000. The reply is an array of ids. With an option each object is \
an array: id; with WITHDIST the distance; with WITHRECT minx, miny, maxx, maxy. A tree that is not \
there is an error.",
    arguments: &[
        TREE_NAME,
        X,
        Y,
        Argument::new("count", Kind::Integer),
        WITH_RECT,
        Argument::word("withdist", "WITHDIST").optional(),
    ],
    parse: rtree_nearest,
    ..READ
};

fn rtree_nearest(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    let (x, y) = point(words, 2)?;
    let wanted = whole(words.get(4), "count", 1, MAX_NEAREST as i64)?;
    let mut form = ObjectForm { most: wanted as usize, ..ObjectForm::default() };
    for at in 5..words.len() {
        if words.is(at, "withrect") && !form.rect {
            form.rect = true;
        } else if words.is(at, "withdist") && form.distance_from.is_none() {
            form.distance_from = Some((x, y));
        } else {
            return Err(CommandError::Syntax);
        }
    }
    let command = TreeCommand::Nearest { x, y, wanted: wanted as u32 };
    request(words, command, ReplyForm::TreeObjects(form))
}

/// Objects that are written in one piece.
const PIECE_OBJECTS: usize = 512;

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
    /// The reply with these objects ([`FoundObjects`]).
    pub const fn new(objects: Vec<u8>, form: ObjectForm) -> Self {
        Self { objects, form, written: 0, is_open: false }
    }

    /// Bytes of the objects.
    pub fn bytes(&self) -> usize {
        self.objects.len()
    }

    /// Appends the next piece. Whether it was the last one.
    pub fn write_piece(&mut self, out: &mut Vec<u8>, version: RespVersion) -> bool {
        if !self.is_open {
            encode::array(out, FoundObjects::of(&self.objects).iter().count());
            self.is_open = true;
        }
        let mut rest = FoundObjects::of(&self.objects[self.written..]);
        for _ in 0..PIECE_OBJECTS {
            let Some(((object, id), after)) = rest.split() else { return true };
            self.form.write(out, version, id, &object.rect);
            rest = after;
        }
        self.written = self.objects.len() - rest.bytes().len();
        rest.bytes().is_empty()
    }
}

/// Appends an array of these objects, whose words are their ids, in one piece.
pub fn write_objects(
    out: &mut Vec<u8>,
    version: RespVersion,
    objects: &[Entry],
    form: &ObjectForm,
) {
    encode::array(out, objects.len());
    for Entry { rect, word } in objects {
        form.write(out, version, ObjectId::Number(*word), rect);
    }
}

impl ObjectForm {
    fn write(&self, out: &mut Vec<u8>, version: RespVersion, id: ObjectId<'_>, rect: &Rect) {
        let items = 4 * usize::from(self.rect) + usize::from(self.distance_from.is_some());
        if items > 0 {
            encode::array(out, 1 + items);
        }
        id_item(out, id);
        if let Some((x, y)) = self.distance_from {
            encode::double(out, version, rect.distance_squared(x, y).sqrt());
        }
        if self.rect {
            write_rect(out, version, rect);
        }
    }
}

/// An id; as a string if it is no integer.
fn id_item(out: &mut Vec<u8>, id: ObjectId<'_>) {
    match id {
        ObjectId::Number(number) => encode::integer(out, number as i64),
        ObjectId::Name(name) => encode::bulk(out, name),
    }
}

/// The commands.
pub(crate) const COMMANDS: &[CommandSpec] = &[COUNT, NEAREST, SEARCH];
