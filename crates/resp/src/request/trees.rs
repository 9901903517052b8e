//! Requests about trees of places. The table has checked the number of
//! arguments; an error says which argument it is about.

use super::expiry::Form;
use super::keys::{Keys, key};
use super::{Render, Request};
use crate::error::{CommandError, excerpt};
use crate::object_reply::{ListForm, ObjectReply, Shape as ReplyShape};
use crate::wire::Words;
use remora_geometry::{Refine, Shape, Wkb};
use remora_layout::limits::{
    MAX_FIELDS, MAX_NEAREST, MAX_NODE_ENTRIES, MAX_OBJECT_BYTES, MIN_NODE_ENTRIES,
};
use remora_layout::rect::Predicate;
use remora_layout::rect::{BadRect, Rect};
use remora_layout::tree::TreeKind;
use remora_protocol::integer;
use remora_protocol::message::Status;
use remora_protocol::tree::{Fields, ObjectId, PutObject, TreeCommand, TreeSettings};
use remora_protocol::{Expiry, Items};

/// Bytes of a number's text at most: any f64 fits, with all its digits.
pub(crate) const MAX_NUMBER_BYTES: usize = 1200;

/// Why bytes that are no text are no geometry.
const NOT_TEXT: &str = "not a geometry: neither WKT nor GeoJSON";

type Parsed<'a> = Result<Request<'a>, CommandError>;

/// What a reply tells of each object.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct ObjectForm {
    /// Its rectangle.
    pub rect: bool,
    /// Its distance from this point: x, y.
    pub distance_from: Option<(f64, f64)>,
}

/// A tree's kind as its users call it.
pub const fn kind_name(kind: TreeKind) -> &'static str {
    match kind {
        TreeKind::RStar => "rstar",
        TreeKind::Guttman => "guttman",
        TreeKind::Hilbert => "hilbert",
    }
}

fn request<'a>(words: Words<'a>, command: TreeCommand<'a>, render: Render) -> Parsed<'a> {
    Ok(Request::Tree { name: key(words.get(1))?, command, render, most: usize::MAX })
}

/// A finite number.
fn number(word: &[u8], name: &'static str) -> Result<f64, CommandError> {
    let text = str::from_utf8(word).ok().filter(|text| text.len() <= MAX_NUMBER_BYTES);
    let number = text.and_then(|text| text.parse::<f64>().ok());
    match number {
        Some(number) if number.is_finite() => Ok(number),
        Some(_) => Err(CommandError::NotFinite(name)),
        None => Err(CommandError::NotANumber(name)),
    }
}

/// An integer of some range.
fn whole(word: &[u8], name: &'static str, from: i64, to: i64) -> Result<i64, CommandError> {
    let number = integer::parse(word).filter(|number| (from..=to).contains(number));
    number.ok_or(CommandError::NotInRange { name, from, to })
}

/// What RTREE.GET tells of an object beside its rectangle and its data.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ObjectParts {
    /// Its geometry.
    pub geometry: bool,
    /// Its fields.
    pub fields: bool,
    /// When it expires.
    pub expiry: bool,
}

/// What the commands on fields say where there is no object.
const NO_OBJECT: &[(Status, &str)] = &[
    (Status::NotFound, "ERR the tree has no such object"),
    (Status::TooLarge, "ERR the object would have too many fields"),
];
static ADDED: ObjectReply =
    ObjectReply { command: "rtree.add", shape: ReplyShape::Number, errors: &[] };
static FIELDS_SET: ObjectReply =
    ObjectReply { command: "rtree.fset", shape: ReplyShape::Number, errors: NO_OBJECT };
static FIELDS: ObjectReply = ObjectReply {
    command: "rtree.fget",
    shape: ReplyShape::List(ListForm::Array),
    errors: NO_OBJECT,
};

/// An object's id.
fn id(word: &[u8]) -> Result<ObjectId<'_>, CommandError> {
    let id = ObjectId::of_text(word);
    id.is_valid().then_some(id).ok_or(CommandError::ObjectId)
}

/// A request whose parts were made for it.
fn made<'a>(words: Words<'a>, command: TreeCommand<'a>, reply: &'static ObjectReply) -> Parsed<'a> {
    // What each part may be has been checked.
    let request = command.request().map_err(|_| CommandError::Syntax)?;
    Ok(Request::Object { key: key(words.get(1))?, request, reply })
}

/// Minx, miny, maxx and maxy, from one argument on.
fn rect(words: Words<'_>, from: usize) -> Result<Rect, CommandError> {
    let min_x = number(words.get(from), "minx")?;
    let min_y = number(words.get(from + 1), "miny")?;
    let max_x = number(words.get(from + 2), "maxx")?;
    let max_y = number(words.get(from + 3), "maxy")?;
    Rect::new(min_x, max_x, min_y, max_y).map_err(|bad| match bad {
        BadRect::Inverted if min_x > max_x => CommandError::Inverted("minx", "maxx"),
        BadRect::Inverted => CommandError::Inverted("miny", "maxy"),
        BadRect::NotANumber | BadRect::Infinite => CommandError::NotFinite("a coordinate"),
    })
}

fn point(words: Words<'_>, from: usize) -> Result<(f64, f64), CommandError> {
    Ok((number(words.get(from), "x")?, number(words.get(from + 1), "y")?))
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

pub(crate) fn rtree_create(words: Words<'_>, _now: u64) -> Parsed<'_> {
    let (mut kind, mut capacity, mut bounds) = (None, None, None);
    let mut at = 2;
    while at < words.len() {
        let left = words.len() - at - 1;
        if words.is(at, "kind") && kind.is_none() && left >= 1 {
            let kinds = [TreeKind::RStar, TreeKind::Guttman, TreeKind::Hilbert];
            let named = kinds.into_iter().find(|kind| words.is(at + 1, kind_name(*kind)));
            kind = Some(named.ok_or(CommandError::TreeKind)?);
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
    request(words, TreeCommand::Create(settings), Render::TreeMade)
}

pub(crate) fn rtree_drop(words: Words<'_>, _now: u64) -> Parsed<'_> {
    request(words, TreeCommand::Drop, Render::Number("rtree.drop"))
}

/// What is left of the words of a put: the parts that it names.
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
            } else if let Some(form) = Form::of_option(words.get(at)).filter(|_| left >= 1)
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

/// An object to be put; what is left of the words are its parts.
fn put<'a>(
    words: Words<'a>,
    (rect, geometry): (Rect, Option<Wkb<'a>>),
    at: usize,
    (now_unix_ms, command): (u64, &'static str),
) -> Parsed<'a> {
    let parts = PutParts::parse(words, at, now_unix_ms, command)?;
    let (id, data) = (id(words.get(2))?, parts.data);
    let expiry = parts.expiry.unwrap_or(Expiry::Keep);
    if geometry.is_none() && parts.fields.is_none() {
        let put = PutObject { data, expiry, ..PutObject::new(id, rect) };
        return request(words, TreeCommand::Put(put), Render::Number("rtree.add"));
    }
    let fields = parts.fields.map(|fields| words.keep(fields)).and_then(Fields::parse);
    made(words, TreeCommand::Put(PutObject { id, rect, data, geometry, fields, expiry }), &ADDED)
}

pub(crate) fn rtree_add(words: Words<'_>, now: u64) -> Parsed<'_> {
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

pub(crate) fn rtree_addpoint(words: Words<'_>, now: u64) -> Parsed<'_> {
    let (x, y) = point(words, 3)?;
    let rect = Rect { min_x: x, max_x: x, min_y: y, max_y: y };
    put(words, (rect, None), 5, (now, "rtree.addpoint"))
}

pub(crate) fn rtree_fset(words: Words<'_>, _now: u64) -> Parsed<'_> {
    if words.len().is_multiple_of(2) {
        return Err(CommandError::Syntax);
    }
    let (id, fields) = (id(words.get(2))?, fields(words, 3, words.len())?);
    let fields = Fields::parse(words.keep(fields)).unwrap_or_default();
    made(words, TreeCommand::SetFields { id, fields }, &FIELDS_SET)
}

pub(crate) fn rtree_fget(words: Words<'_>, _now: u64) -> Parsed<'_> {
    if words.len() - 3 > MAX_FIELDS {
        return Err(CommandError::TooManyFields);
    }
    let mut names = Vec::new();
    (3..words.len()).for_each(|at| Items::push(&mut names, words.get(at)));
    let names = Items::parse(words.keep(names)).ok_or(CommandError::Syntax)?;
    made(words, TreeCommand::GetFields { id: id(words.get(2))?, names }, &FIELDS)
}

pub(crate) fn rtree_rem(words: Words<'_>, _now: u64) -> Parsed<'_> {
    let ids = Keys::all(words, 2);
    ids.clone().try_for_each(|word| id(word).map(drop))?;
    Ok(Request::TreeRemove { name: key(words.get(1))?, ids })
}

pub(crate) fn rtree_get(words: Words<'_>, _now: u64) -> Parsed<'_> {
    let mut parts = ObjectParts::default();
    for at in 3..words.len() {
        let options = [
            ("withgeometry", &mut parts.geometry),
            ("withfields", &mut parts.fields),
            ("withexpiry", &mut parts.expiry),
        ];
        let mut named =
            options.into_iter().filter(|(name, is_set)| words.is(at, name) && !**is_set);
        let (_, is_set) = named.next().ok_or(CommandError::Syntax)?;
        *is_set = true;
    }
    request(words, TreeCommand::Get { id: id(words.get(2))? }, Render::TreeObject(parts))
}

/// A geometry, in WKT or GeoJSON.
fn shape(word: &[u8]) -> Result<Shape, CommandError> {
    let text = str::from_utf8(word).map_err(|_| CommandError::Geometry(NOT_TEXT.into()))?;
    let shape = Shape::from_text(text);
    shape.map_err(|error| CommandError::Geometry(excerpt(error.to_string().as_bytes())))
}

/// GEOMETRY predicate geometry [distance], from the second argument on; gives
/// where the next one stands.
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

/// RTREE.SEARCH of geometries, and options.
fn refined_search(words: Words<'_>) -> Parsed<'_> {
    let (refine, mut at) = refine(words)?;
    let (mut most, mut form) = (None, ObjectForm::default());
    while at < words.len() {
        at = option(words, at, &mut most, &mut form)?;
    }
    let (name, most) = (key(words.get(1))?, most.unwrap_or(usize::MAX));
    Ok(Request::TreeRefine { name, refine: Box::new(refine), form, most })
}

/// An option of a search that stands at `at`; gives where the next one does.
fn option(
    words: Words<'_>,
    at: usize,
    most: &mut Option<usize>,
    form: &mut ObjectForm,
) -> Result<usize, CommandError> {
    if words.is(at, "withrect") && !form.rect {
        form.rect = true;
        Ok(at + 1)
    } else if words.is(at, "limit") && most.is_none() && at + 1 < words.len() {
        *most = Some(whole(words.get(at + 1), "LIMIT", 1, i64::MAX)? as usize);
        Ok(at + 2)
    } else {
        Err(CommandError::Syntax)
    }
}

pub(crate) fn rtree_search(words: Words<'_>, _now: u64) -> Parsed<'_> {
    if words.is(2, "geometry") {
        return refined_search(words);
    }
    if words.len() < 6 {
        return Err(CommandError::Syntax);
    }
    let window = rect(words, 2)?;
    let (mut asked, mut most, mut form) = (None, None, ObjectForm::default());
    let mut at = 6;
    while at < words.len() {
        if asked.is_none()
            && let Some(named) = predicate(words, at)
        {
            asked = Some(named);
            at += 1;
        } else {
            at = option(words, at, &mut most, &mut form)?;
        }
    }
    let command = TreeCommand::Search { window, predicate: asked.unwrap_or_default() };
    let (name, render) = (key(words.get(1))?, Render::TreeObjects(form));
    Ok(Request::Tree { name, command, render, most: most.unwrap_or(usize::MAX) })
}

pub(crate) fn rtree_count(words: Words<'_>, _now: u64) -> Parsed<'_> {
    if words.is(2, "geometry") {
        let (refine, end) = refine(words)?;
        if words.len() > end {
            return Err(CommandError::Syntax);
        }
        return Ok(Request::TreeCountRefined {
            name: key(words.get(1))?,
            refine: Box::new(refine),
        });
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
    request(words, TreeCommand::Count { window, predicate }, Render::Number("rtree.count"))
}

pub(crate) fn rtree_nearest(words: Words<'_>, _now: u64) -> Parsed<'_> {
    let (x, y) = point(words, 2)?;
    let wanted = whole(words.get(4), "count", 1, MAX_NEAREST as i64)?;
    let mut form = ObjectForm::default();
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
    let (name, render) = (key(words.get(1))?, Render::TreeObjects(form));
    Ok(Request::Tree { name, command, render, most: wanted as usize })
}

pub(crate) fn rtree_info(words: Words<'_>, _now: u64) -> Parsed<'_> {
    request(words, TreeCommand::Info, Render::TreeInfo)
}
