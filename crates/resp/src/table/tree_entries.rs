//! Entries of the commands about trees of places. They are Remora's own.

use super::{CommandSpec, Flag, Group, KeyPlaces, arguments as args};
use crate::request::parsers;

const TREE: CommandSpec = CommandSpec {
    categories: &["rtree"],
    since: "0.1.0",
    group: Group::TREE,
    complexity: "O(log N) where N is the number of objects",
    ..CommandSpec::PLAIN
};

const READ: CommandSpec = CommandSpec { keys: KeyPlaces::one(&["RO", "access"]), ..TREE };

pub(super) const ADD: CommandSpec = CommandSpec {
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
    arguments: args::RTREE_ADD,
    parse: parsers::rtree_add,
    ..TREE
};

pub(super) const ADDPOINT: CommandSpec = CommandSpec {
    name: "rtree.addpoint",
    arity: -5,
    summary: "Adds a point to a tree, or moves an object there; returns 1 if it is new, else 0.",
    notes: "RTREE.ADD of a rectangle without extent.",
    arguments: args::RTREE_ADDPOINT,
    parse: parsers::rtree_addpoint,
    ..ADD
};

pub(super) const COUNT: CommandSpec = CommandSpec {
    name: "rtree.count",
    arity: -5,
    flags: &[Flag::ReadOnly],
    summary: "Returns the number of objects in a window, or of those whose geometries fit.",
    complexity: "Usually O(log N + M) where N is the number of objects and M of those in the window",
    notes: "The window, the geometry and the predicates are those of RTREE.SEARCH; so is what holds while the \
tree changes. A tree that is not there is an error.",
    arguments: args::RTREE_COUNT,
    parse: parsers::rtree_count,
    ..READ
};

pub(super) const CREATE: CommandSpec = CommandSpec {
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
    arguments: args::RTREE_CREATE,
    parse: parsers::rtree_create,
    ..TREE
};

pub(super) const FGET: CommandSpec = CommandSpec {
    name: "rtree.fget",
    arity: -4,
    flags: &[Flag::ReadOnly, Flag::Fast],
    summary: "Returns the values of an object's fields, null for each that it does not have.",
    complexity: "O(M) where M is the number of the object's fields and of those asked for",
    notes: "A tree that is not there, and an object that is not, are errors. RTREE.GET with \
WITHFIELDS tells all fields.",
    arguments: args::RTREE_FGET,
    parse: parsers::rtree_fget,
    ..READ
};

pub(super) const FSET: CommandSpec = CommandSpec {
    name: "rtree.fset",
    arity: -5,
    flags: &[Flag::Write, Flag::DenyOom, Flag::Fast],
    keys: KeyPlaces::one(&["RW", "update"]),
    summary: "Sets fields of an object; returns how many of them are new.",
    complexity: "O(M) where M is the number of the object's fields",
    notes: "The other fields stay. The limits are those of RTREE.ADD, whose FIELDS sets all of them \
anew. A tree that is not there, and an object that is not, are errors.",
    arguments: args::RTREE_FSET,
    parse: parsers::rtree_fset,
    ..TREE
};

pub(super) const DROP: CommandSpec = CommandSpec {
    name: "rtree.drop",
    arity: 2,
    flags: &[Flag::Write],
    keys: KeyPlaces::one(&["RM", "delete"]),
    summary: "Removes a tree with all its objects; returns 1 if there was one, else 0.",
    complexity: "O(N) where N is the number of objects",
    notes: "A search that is under way ends with an error.",
    arguments: args::RTREE,
    parse: parsers::rtree_drop,
    ..TREE
};

pub(super) const GET: CommandSpec = CommandSpec {
    name: "rtree.get",
    arity: -3,
    flags: &[Flag::ReadOnly, Flag::Fast],
    summary: "Returns an object's rectangle and data, or null if the tree has no such object.",
    notes: "The reply is an array: minx, miny, maxx, maxy, and the data or null; then what was asked \
for, in this order: WITHGEOMETRY: the geometry as WKT, or null; WITHFIELDS: the fields, a map (an \
array in RESP2); WITHEXPIRY: when it expires, in Unix ms, or -1. Numbers are \
doubles in RESP3 and strings in RESP2, as short as they can be and still be read back the same. A \
tree that is not there is an error.",
    arguments: args::RTREE_GET,
    parse: parsers::rtree_get,
    ..READ
};

pub(super) const INFO: CommandSpec = CommandSpec {
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
    arguments: args::RTREE,
    parse: parsers::rtree_info,
    ..READ
};

pub(super) const NEAREST: CommandSpec = CommandSpec {
    name: "rtree.nearest",
    arity: -5,
    flags: &[Flag::ReadOnly],
    summary: "Returns the objects nearest to a point, the nearest first.",
    complexity: "Usually O(log N + M log M) where N is the number of objects and M of those asked for",
    notes: "Distances are those of the plane, from the point to the nearest point of the \
rectangle: 0 inside. Count is 1 to 2000. The reply is an array of ids. With an option each object is \
an array: id; with WITHDIST the distance; with WITHRECT minx, miny, maxx, maxy. A tree that is not \
there is an error.",
    arguments: args::RTREE_NEAREST,
    parse: parsers::rtree_nearest,
    ..READ
};

pub(super) const REM: CommandSpec = CommandSpec {
    name: "rtree.rem",
    arity: -3,
    flags: &[Flag::Write],
    keys: KeyPlaces::one(&["RW", "delete"]),
    summary: "Removes objects from a tree; returns how many of them were there.",
    complexity: "O(log N) for each id where N is the number of objects",
    notes: "Several objects are not one change: others may see some removed and some not yet.",
    arguments: args::RTREE_IDS,
    parse: parsers::rtree_rem,
    ..TREE
};

pub(super) const SEARCH: CommandSpec = CommandSpec {
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
    arguments: args::RTREE_SEARCH,
    parse: parsers::rtree_search,
    ..READ
};
