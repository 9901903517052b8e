//! SORT and SORT_RO, of any type whose objects have elements, in the words and with the errors of
//! Redis 7.0.

use super::hash::field_request;
use super::list::STORED;
use crate::arguments::{KEY, PATTERN};
use crate::error::CommandError;
use crate::form::{ListForm, ObjectReply, ReplyForm, Shape};
use crate::keys::key;
use crate::request::{Request, Sort};
use crate::sorting::{By, Get, Pattern, SortOptions};
use crate::spec::{
    Argument, CommandSpec, Flag, Group, KeyPlaces, Kind, OptionKey, OtherKeys, ParseResult,
};
use crate::wire::Words;
use remora_layout::limits::{MAX_REPLY_BYTES, MAX_SORT_ELEMENTS, MAX_SORT_GETS};
use remora_protocol::integer;
use remora_protocol::message::Status;

const BY: Argument = PATTERN.after("BY").optional();
const LIMIT: Argument = Argument::of(
    "offset_count",
    Kind::Block,
    &[Argument::new("offset", Kind::Integer), Argument::new("count", Kind::Integer)],
)
.after("LIMIT")
.optional();
const GET: Argument = PATTERN.after("GET").optional().multiple();
const ORDER: Argument = Argument::of(
    "order",
    Kind::OneOf,
    &[Argument::word("asc", "ASC"), Argument::word("desc", "DESC")],
)
.optional();
const ALPHA: Argument = Argument::word("sorting", "ALPHA").optional();
const STORE: Argument = Argument::new("destination", Kind::Key).after("STORE").optional();

/// The keys that BY and GET name.
const OF_PATTERNS: OtherKeys = OtherKeys {
    option: None,
    notes: "For the optional BY/GET keyword. It is marked 'unknown' because the key names derive \
        from the content of the key we sort",
    access: &["RO", "access"],
};

/// The key of STORE.
const DESTINATION: OtherKeys = OtherKeys {
    option: Some(OptionKey { word: "store", skips: &[("limit", 2), ("get", 1), ("by", 1)] }),
    notes: "For the optional STORE keyword. It is marked 'unknown' because the keyword can appear \
        anywhere in the argument array",
    access: &["OW", "update"],
};

const SORT: CommandSpec = CommandSpec {
    name: "sort",
    arity: -2,
    flags: &[Flag::Write, Flag::DenyOom, Flag::MovableKeys],
    keys: KeyPlaces { others: &[OF_PATTERNS, DESTINATION], ..KeyPlaces::one(&["RO", "access"]) },
    categories: &["set", "sortedset", "list", "dangerous"],
    group: Group::GENERIC,
    summary: "Sorts elements of a list or set, by themselves or by values of other keys; may store them.",
    complexity: "O(N+M*log(M)) where N is the number of elements, and M those that are sorted; a look \
for each value that BY and GET name",
    notes: "The elements are those of one moment. The values that BY and GET name may lie in any shard; \
they are looked up some hundred elements at a time, each as it is at that moment. STORE gives the key its list \
as one change. Sorting goes in turns, between which other requests are served. Up to 1,048,576 elements of \
up to 64 MiB are sorted, and so many bytes of values looked up and told; more is an error, and so are more \
than 256 GET. Text is compared byte by byte, as Redis does in the locale C. Elements whose values by BY ALPHA \
are equal keep their order.",
    arguments: &[KEY, BY, LIMIT, GET, ORDER, ALPHA, STORE],
    parse: |words, _| sort(words, (&SORTED, true)),
    ..CommandSpec::PLAIN
};

const SORT_RO: CommandSpec = CommandSpec {
    name: "sort_ro",
    since: "7.0.0",
    flags: &[Flag::ReadOnly, Flag::MovableKeys],
    keys: KeyPlaces { others: &[OF_PATTERNS], ..KeyPlaces::one(&["RO", "access"]) },
    summary: "Sorts as SORT, and stores nothing: replicas answer it.",
    notes: "See SORT.",
    arguments: &[KEY, BY, LIMIT, GET, ORDER, ALPHA],
    parse: |words, _| sort(words, (&SORTED_ONLY, false)),
    ..SORT
};

/// The errors of both.
const ERRORS: &[(Status, &str)] = &[
    (Status::NotAnInteger, "ERR One or more scores can't be converted into double"),
    (
        Status::TooLarge,
        "ERR more than 1048576 elements, or more than 64 MiB of elements or values: sort fewer",
    ),
];
const _: () = assert!(MAX_SORT_ELEMENTS == 1_048_576 && MAX_REPLY_BYTES == 64 << 20);
const _: () = assert!(MAX_SORT_GETS == 256);

static SORTED: ObjectReply =
    ObjectReply { command: "sort", shape: Shape::List(ListForm::Array), errors: ERRORS };
static SORTED_ONLY: ObjectReply =
    ObjectReply { command: "sort_ro", shape: Shape::List(ListForm::Array), errors: ERRORS };
static COUNTED: ObjectReply = ObjectReply { command: "sort", shape: Shape::Number, errors: ERRORS };

fn sort<'a>(words: Words<'a>, (form, may_store): (&'static ObjectReply, bool)) -> ParseResult<'a> {
    let mut sort = Sort {
        key: key(words.get(1))?,
        options: SortOptions::default(),
        store: None,
        field: field_request,
        form: ReplyForm::Object(form),
        refused_in_cluster: None,
        error: None,
    };
    let mut at = 2;
    while at < words.len() {
        match option(words, at, may_store, &mut sort) {
            Ok(taken) => at += taken,
            // A cluster refuses the first argument that it must.
            Err(error) if sort.refused_in_cluster.is_some() => {
                sort.error = Some(error);
                break;
            }
            Err(error) => return Err(error),
        }
    }
    Ok(Request::Sort(Box::new(sort)))
}

/// Takes the option at one place; gives the number of its words.
fn option<'a>(
    words: Words<'a>,
    at: usize,
    may_store: bool,
    sort: &mut Sort<'a>,
) -> Result<usize, CommandError> {
    let has = |name: &str, arguments: usize| words.is(at, name) && at + arguments < words.len();
    let Sort { options, refused_in_cluster: refused, .. } = sort;
    if words.is(at, "asc") || words.is(at, "desc") {
        options.is_descending = words.is(at, "desc");
        return Ok(1);
    }
    if words.is(at, "alpha") {
        options.is_alpha = true;
        return Ok(1);
    }
    if has("limit", 2) {
        let number = |at| integer::parse(words.get(at)).ok_or(CommandError::NotAnInteger);
        options.limit = (number(at + 1)?, number(at + 2)?);
        return Ok(3);
    }
    if may_store && has("store", 1) {
        sort.store = Some((key(words.get(at + 1))?, STORED));
        options.is_stored = true;
        sort.form = ReplyForm::Object(&COUNTED);
        return Ok(2);
    }
    if has("by", 1) {
        match Pattern::parse(words.get(at + 1)) {
            Some(pattern) => {
                refused.get_or_insert(CommandError::NoPatterns("BY"));
                // Redis does not sort by a pattern behind one without a star.
                if options.by != By::Nothing {
                    options.by = By::Pattern(pattern);
                }
            }
            None => options.by = By::Nothing,
        }
        return Ok(2);
    }
    if has("get", 1) {
        refused.get_or_insert(CommandError::NoPatterns("GET"));
        if options.gets.len() == MAX_SORT_GETS {
            return Err(CommandError::TooManyGets);
        }
        let word = words.get(at + 1);
        options.gets.push(match Pattern::parse(word) {
            Some(pattern) => Get::Pattern(pattern),
            None if word == b"#" => Get::Element,
            None => Get::Nothing,
        });
        return Ok(2);
    }
    Err(CommandError::Syntax)
}

/// The commands.
pub(super) const COMMANDS: &[CommandSpec] = &[SORT, SORT_RO];
