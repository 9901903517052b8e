//! The arguments that commands of the table take.

use super::{Argument, Kind};

const KEY: Argument = Argument::new("key", Kind::Key);
const VALUE: Argument = Argument::new("value", Kind::String);
const SECONDS: Argument = Argument::new("seconds", Kind::Integer);
const MILLISECONDS: Argument = Argument::new("milliseconds", Kind::Integer);
const UNIX_SECONDS: Argument = Argument::new("unix-time-seconds", Kind::UnixTime);
const UNIX_MILLISECONDS: Argument = Argument::new("unix-time-milliseconds", Kind::UnixTime);
const OFFSET: Argument = Argument::new("offset", Kind::Integer);
const MESSAGE: Argument = Argument::new("message", Kind::String);
const NAMES: Argument = Argument::new("command-name", Kind::String).optional().multiple();

const SET_CONDITIONS: &[Argument] = &[Argument::word("nx", "NX"), Argument::word("xx", "XX")];
const SET_EXPIRATIONS: &[Argument] = &[
    SECONDS.after("EX"),
    MILLISECONDS.after("PX"),
    UNIX_SECONDS.after("EXAT"),
    UNIX_MILLISECONDS.after("PXAT"),
    Argument::word("keepttl", "KEEPTTL"),
];
const GETEX_EXPIRATIONS: &[Argument] = &[
    SECONDS.after("EX"),
    MILLISECONDS.after("PX"),
    UNIX_SECONDS.after("EXAT"),
    UNIX_MILLISECONDS.after("PXAT"),
    Argument::word("persist", "PERSIST"),
];
const EXPIRE_CONDITION: Argument = Argument::of(
    "condition",
    Kind::OneOf,
    &[
        Argument::word("nx", "NX"),
        Argument::word("xx", "XX"),
        Argument::word("gt", "GT"),
        Argument::word("lt", "LT"),
    ],
)
.optional();

pub(super) const ONE_KEY: &[Argument] = &[KEY];
pub(super) const KEYS: &[Argument] = &[KEY.multiple()];
pub(super) const PAIRS: &[Argument] =
    &[Argument::of("data", Kind::Block, &[KEY, VALUE]).multiple()];
pub(super) const ONE_PAIR: &[Argument] = &[KEY, VALUE];
pub(super) const SETEX: &[Argument] = &[KEY, SECONDS, VALUE];
pub(super) const PSETEX: &[Argument] = &[KEY, MILLISECONDS, VALUE];
pub(super) const SETRANGE: &[Argument] = &[KEY, OFFSET, VALUE];
pub(super) const GETRANGE: &[Argument] =
    &[KEY, Argument::new("start", Kind::Integer), Argument::new("end", Kind::Integer)];
pub(super) const SETBIT: &[Argument] = &[KEY, OFFSET, Argument::new("value", Kind::Integer)];
pub(super) const GETBIT: &[Argument] = &[KEY, OFFSET];
pub(super) const GETEX: &[Argument] =
    &[KEY, Argument::of("expiration", Kind::OneOf, GETEX_EXPIRATIONS).optional()];
pub(super) const SET: &[Argument] = &[
    KEY,
    VALUE,
    Argument::of("condition", Kind::OneOf, SET_CONDITIONS).optional(),
    Argument::word("get", "GET").optional(),
    Argument::of("expiration", Kind::OneOf, SET_EXPIRATIONS).optional(),
];
pub(super) const INCREMENT: &[Argument] = &[KEY, Argument::new("increment", Kind::Integer)];
pub(super) const DECREMENT: &[Argument] = &[KEY, Argument::new("decrement", Kind::Integer)];
pub(super) const EXPIRE: &[Argument] = &[KEY, SECONDS, EXPIRE_CONDITION];
pub(super) const PEXPIRE: &[Argument] = &[KEY, MILLISECONDS, EXPIRE_CONDITION];
pub(super) const EXPIREAT: &[Argument] = &[KEY, UNIX_SECONDS, EXPIRE_CONDITION];
pub(super) const PEXPIREAT: &[Argument] = &[KEY, UNIX_MILLISECONDS, EXPIRE_CONDITION];
pub(super) const FLUSH: &[Argument] = &[Argument::of(
    "flush-type",
    Kind::OneOf,
    &[Argument::word("async", "ASYNC"), Argument::word("sync", "SYNC")],
)
.optional()];
pub(super) const ECHO: &[Argument] = &[MESSAGE];
pub(super) const PING: &[Argument] = &[MESSAGE.optional()];
pub(super) const SELECT: &[Argument] = &[Argument::new("index", Kind::Integer)];
pub(super) const INFO: &[Argument] =
    &[Argument::new("section", Kind::String).optional().multiple()];
pub(super) const HELLO: &[Argument] = &[Argument::of(
    "arguments",
    Kind::Block,
    &[
        Argument::new("protover", Kind::Integer),
        Argument::of(
            "auth",
            Kind::Block,
            &[Argument::new("username", Kind::String), Argument::new("password", Kind::String)],
        )
        .after("AUTH")
        .optional(),
        Argument::new("clientname", Kind::String).after("SETNAME").optional(),
    ],
)
.optional()];

pub(super) const CONNECTION_NAME: &[Argument] = &[Argument::new("connection-name", Kind::String)];
pub(super) const CLIENT_SETINFO: &[Argument] = &[Argument::of(
    "attr",
    Kind::OneOf,
    &[
        Argument::new("libname", Kind::String).after("LIB-NAME"),
        Argument::new("libver", Kind::String).after("LIB-VER"),
    ],
)];
pub(super) const CONFIG_GET: &[Argument] = &[Argument::new("parameter", Kind::Pattern).multiple()];
pub(super) const COMMAND_NAMES: &[Argument] = &[NAMES];
pub(super) const COMMAND_LIST: &[Argument] = &[Argument::of(
    "filterby",
    Kind::OneOf,
    &[
        Argument::new("module-name", Kind::String).after("MODULE"),
        Argument::new("category", Kind::String).after("ACLCAT"),
        Argument::new("pattern", Kind::Pattern).after("PATTERN"),
    ],
)
.after("FILTERBY")
.optional()];
pub(super) const COMMAND_GETKEYS: &[Argument] = &[
    Argument::new("command", Kind::String),
    Argument::new("arg", Kind::String).optional().multiple(),
];

const TREE_NAME: Argument = Argument::new("name", Kind::Key);
const ID: Argument = Argument::new("id", Kind::String);
const MIN_X: Argument = Argument::new("minx", Kind::Double);
const MIN_Y: Argument = Argument::new("miny", Kind::Double);
const MAX_X: Argument = Argument::new("maxx", Kind::Double);
const MAX_Y: Argument = Argument::new("maxy", Kind::Double);
const X: Argument = Argument::new("x", Kind::Double);
const Y: Argument = Argument::new("y", Kind::Double);
const DATA: Argument = Argument::new("data", Kind::String).after("DATA").optional();
const FIELD: Argument = Argument::of("data", Kind::Block, &[FIELD_NAME, VALUE]).multiple();
const FIELD_NAME: Argument = Argument::new("field", Kind::String);
const FIELDS: Argument =
    Argument::of("fields", Kind::Block, &[Argument::new("count", Kind::Integer), FIELD.optional()])
        .after("FIELDS")
        .optional();
const EXPIRATION: Argument = Argument::of("expiration", Kind::OneOf, GETEX_EXPIRATIONS).optional();
const WITH_RECT: Argument = Argument::word("withrect", "WITHRECT").optional();
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

const GEOMETRY: Argument = Argument::new("geometry", Kind::String);
const WINDOW: Argument = Argument::of("window", Kind::Block, &[MIN_X, MIN_Y, MAX_X, MAX_Y]);
const LIMIT: Argument = Argument::new("count", Kind::Integer).after("LIMIT").optional();

pub(super) const RTREE: &[Argument] = &[TREE_NAME];
pub(super) const RTREE_IDS: &[Argument] = &[TREE_NAME, ID.multiple()];
pub(super) const RTREE_GET: &[Argument] = &[
    TREE_NAME,
    ID,
    Argument::word("withgeometry", "WITHGEOMETRY").optional(),
    Argument::word("withfields", "WITHFIELDS").optional(),
    Argument::word("withexpiry", "WITHEXPIRY").optional(),
];
pub(super) const RTREE_FGET: &[Argument] = &[TREE_NAME, ID, FIELD_NAME.multiple()];
pub(super) const RTREE_FSET: &[Argument] = &[TREE_NAME, ID, FIELD];
pub(super) const RTREE_ADD: &[Argument] = &[
    TREE_NAME,
    ID,
    Argument::of("place", Kind::OneOf, &[WINDOW, GEOMETRY.after("GEOMETRY")]),
    DATA,
    FIELDS,
    EXPIRATION,
];
pub(super) const RTREE_ADDPOINT: &[Argument] = &[TREE_NAME, ID, X, Y, DATA, FIELDS, EXPIRATION];
/// A window or a geometry, and what objects have to do with it.
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
pub(super) const RTREE_COUNT: &[Argument] = &[TREE_NAME, RTREE_PLACE];
pub(super) const RTREE_SEARCH: &[Argument] = &[TREE_NAME, RTREE_PLACE, LIMIT, WITH_RECT];
pub(super) const RTREE_NEAREST: &[Argument] = &[
    TREE_NAME,
    X,
    Y,
    Argument::new("count", Kind::Integer),
    WITH_RECT,
    Argument::word("withdist", "WITHDIST").optional(),
];
pub(super) const RTREE_CREATE: &[Argument] = &[
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
    Argument::of("bounds", Kind::Block, &[MIN_X, MIN_Y, MAX_X, MAX_Y]).after("BOUNDS").optional(),
];
