//! Words that several commands about trees of places take. An error says which argument it
//! is about.

use crate::error::{CommandError, excerpt};
use crate::form::{ObjectReply, ReplyForm};
use crate::keys::key;
use crate::limits::MAX_NUMBER_BYTES;
use crate::request::Request;
use crate::spec::{Argument, CommandSpec, Group, KeyPlaces, Kind, ParseResult};
use crate::wire::{RespVersion, Words, encode};
use remora_geometry::Shape;
use remora_layout::rect::{BadRect, Rect};
use remora_protocol::integer;
use remora_protocol::tree::TreeCommand;

pub(super) const TREE_NAME: Argument = Argument::new("name", Kind::Key);
pub(super) const MIN_X: Argument = Argument::new("minx", Kind::Double);
pub(super) const MIN_Y: Argument = Argument::new("miny", Kind::Double);
pub(super) const MAX_X: Argument = Argument::new("maxx", Kind::Double);
pub(super) const MAX_Y: Argument = Argument::new("maxy", Kind::Double);
pub(super) const X: Argument = Argument::new("x", Kind::Double);
pub(super) const Y: Argument = Argument::new("y", Kind::Double);
pub(super) const GEOMETRY: Argument = Argument::new("geometry", Kind::String);
pub(super) const ONE_TREE: &[Argument] = &[TREE_NAME];

pub(super) const TREE: CommandSpec = CommandSpec {
    categories: &["rtree"],
    since: "0.1.0",
    group: Group::own("rtree", "Trees of places"),
    complexity: "O(log N) where N is the number of objects",
    ..CommandSpec::PLAIN
};

pub(super) const READ: CommandSpec =
    CommandSpec { keys: KeyPlaces::one(&["RO", "access"]), ..TREE };

/// A command about one tree, for the shard that owns it.
pub(super) fn request<'a>(
    words: Words<'a>,
    command: TreeCommand<'a>,
    form: ReplyForm,
) -> ParseResult<'a> {
    // The caller has checked the allowed values of each part.
    let request = command.checked().map(TreeCommand::request).map_err(|_| CommandError::Syntax)?;
    Ok(Request::Object { key: key(words.get(1))?, request, form })
}

/// The same, with a reply of the command's own.
pub(super) fn answered<'a>(
    words: Words<'a>,
    command: TreeCommand<'a>,
    reply: &'static ObjectReply,
) -> ParseResult<'a> {
    request(words, command, ReplyForm::Object(reply))
}

/// A finite number.
pub(super) fn number(word: &[u8], name: &'static str) -> Result<f64, CommandError> {
    let text = str::from_utf8(word).ok().filter(|text| text.len() <= MAX_NUMBER_BYTES);
    let number = text.and_then(|text| text.parse::<f64>().ok());
    match number {
        Some(number) if number.is_finite() => Ok(number),
        Some(_) => Err(CommandError::NotFinite(name)),
        None => Err(CommandError::NotANumber(name)),
    }
}

/// An integer of some range.
pub(super) fn whole(
    word: &[u8],
    name: &'static str,
    from: i64,
    to: i64,
) -> Result<i64, CommandError> {
    let number = integer::parse(word).filter(|number| (from..=to).contains(number));
    number.ok_or(CommandError::NotInRange { name, from, to })
}

/// Minx, miny, maxx and maxy, from one argument on.
pub(super) fn rect(words: Words<'_>, from: usize) -> Result<Rect, CommandError> {
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

pub(super) fn point(words: Words<'_>, from: usize) -> Result<(f64, f64), CommandError> {
    Ok((number(words.get(from), "x")?, number(words.get(from + 1), "y")?))
}

/// Why bytes that are no text are no geometry.
const NOT_TEXT: &str = "not a geometry: neither WKT nor GeoJSON";

/// A geometry, in WKT or GeoJSON.
pub(super) fn shape(word: &[u8]) -> Result<Shape, CommandError> {
    let text = str::from_utf8(word).map_err(|_| CommandError::Geometry(NOT_TEXT.into()))?;
    let shape = Shape::from_text(text);
    shape.map_err(|error| CommandError::Geometry(excerpt(error.to_string().as_bytes())))
}

/// Minx, miny, maxx and maxy.
pub(super) fn write_rect(out: &mut Vec<u8>, version: RespVersion, rect: &Rect) {
    for number in [rect.min_x, rect.min_y, rect.max_x, rect.max_y] {
        encode::double(out, version, number);
    }
}
