//! The table as users' rights see it: which command a request calls, and what it does with which keys.

use super::all::TABLE;
use super::index::lookup;
use crate::dispatch::command;
use crate::error::CommandError;
use crate::spec::{CommandSpec, Flag, Place};
use crate::wire::Words;
use remora_acl::{Access, Call, Channel, CommandId, Commands, Denied, Key, User};
use std::sync::LazyLock;

/// Redis's categories, in the order of ACL CAT; then those of Remora's own types.
static CATEGORIES: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
    let mut all = vec![
        "keyspace",
        "read",
        "write",
        "set",
        "sortedset",
        "list",
        "hash",
        "string",
        "bitmap",
        "hyperloglog",
        "geo",
        "stream",
        "pubsub",
        "admin",
        "fast",
        "slow",
        "blocking",
        "dangerous",
        "connection",
        "transaction",
        "scripting",
    ];
    for category in super::all().flat_map(|spec| spec.categories) {
        if !all.contains(category) {
            all.push(category);
        }
    }
    all
});

/// What is known of a command or subcommand.
struct Known {
    spec: &'static CommandSpec,
    categories: Vec<&'static str>,
    /// To the first key, to further ones, and to those that other arguments name.
    access: [Access; 2],
    others: Vec<Access>,
}

impl Known {
    fn of(spec: &'static CommandSpec) -> Self {
        let access = |place| Access::from_flags(spec.keys.access_of(place));
        Self {
            spec,
            categories: spec.all_categories(),
            access: [access(Place::First), access(Place::Further)],
            others: (0..spec.keys.others.len()).map(|at| access(Place::Other(at))).collect(),
        }
    }

    fn access(&self, place: Place) -> Access {
        match place {
            Place::First => self.access[0],
            Place::Further => self.access[1],
            Place::Other(at) => self.others[at],
        }
    }
}

/// All commands, and behind them the subcommands of each: a [`CommandId`] is a place in it.
static KNOWN: LazyLock<Vec<Known>> = LazyLock::new(|| {
    let subcommands = TABLE.iter().flat_map(|spec| spec.subcommands);
    TABLE.iter().chain(subcommands).map(Known::of).collect()
});

/// Where the subcommands of each command begin.
static SUBCOMMANDS: LazyLock<Vec<usize>> = LazyLock::new(|| {
    let mut next = TABLE.len();
    let begin = |spec: &CommandSpec| {
        next += spec.subcommands.len();
        next - spec.subcommands.len()
    };
    TABLE.iter().map(begin).collect()
});

/// What a command does with the key at this place.
pub(super) fn access_to(id: CommandId, place: Place) -> Access {
    KNOWN[usize::from(id.0)].access(place)
}

/// The table, for rules.
#[derive(Clone, Copy, Debug)]
pub struct CommandTable;

impl CommandTable {
    /// The place of a command of the table.
    fn place(spec: &'static CommandSpec) -> usize {
        let bytes = std::ptr::from_ref(spec).addr() - TABLE.as_ptr().addr();
        bytes / size_of::<CommandSpec>()
    }

    fn id(spec: &'static CommandSpec, subcommand: Option<&'static CommandSpec>) -> CommandId {
        let place = Self::place(spec);
        let at =
            subcommand.and_then(|of| spec.subcommands.iter().position(|sub| sub.name == of.name));
        let at = at.map_or(place, |at| SUBCOMMANDS[place] + at);
        CommandId(u16::try_from(at).expect("the table is short"))
    }
}

impl Commands for CommandTable {
    fn count(&self) -> usize {
        KNOWN.len()
    }

    fn find(&self, name: &[u8], subcommand: Option<&[u8]>) -> Option<CommandId> {
        let spec = lookup(name)?;
        match subcommand {
            None => Some(Self::id(spec, None)),
            Some(name) => Some(Self::id(spec, Some(spec.subcommand(name)?))),
        }
    }

    fn name(&self, id: CommandId) -> &str {
        KNOWN[usize::from(id.0)].spec.name
    }

    fn subcommands(&self, id: CommandId) -> impl Iterator<Item = CommandId> {
        let place = usize::from(id.0);
        let of = TABLE
            .get(place)
            .map_or(0..0, |spec| SUBCOMMANDS[place]..SUBCOMMANDS[place] + spec.subcommands.len());
        of.map(|at| CommandId(u16::try_from(at).expect("the table is short")))
    }

    fn categories(&self) -> &[&str] {
        &CATEGORIES
    }

    fn is_in(&self, id: CommandId, category: &str) -> bool {
        KNOWN[usize::from(id.0)].categories.contains(&category)
    }

    fn needs_no_auth(&self, id: CommandId) -> bool {
        KNOWN[usize::from(id.0)].spec.flags.contains(&Flag::NoAuth)
    }
}

/// A call of a command of the table.
#[derive(Clone, Copy, Debug)]
pub struct Called {
    id: CommandId,
    spec: &'static CommandSpec,
}

/// The command that words call, with a fitting number of arguments.
///
/// # Errors
/// It is unknown, or has too few or too many arguments.
pub fn called(words: Words<'_>) -> Result<Called, CommandError> {
    let spec = command(words)?;
    let id = match lookup(words.get(0)) {
        Some(outer) if !std::ptr::eq(outer, spec) => CommandTable::id(outer, Some(spec)),
        _ => CommandTable::id(spec, None),
    };
    Ok(Called { id, spec })
}

impl Called {
    /// The command or subcommand.
    pub fn spec(&self) -> &'static CommandSpec {
        self.spec
    }

    /// The keys among the words.
    fn keys<'a>(&self, words: Words<'a>) -> impl Iterator<Item = Key<'a>> + Clone {
        let known = &KNOWN[usize::from(self.id.0)];
        let only_writes = self.only_writes(words);
        let key = move |(at, place): (usize, Place)| {
            let access = known.access(place);
            let access = Access { read: access.read && !only_writes, ..access };
            Key { at, bytes: words.get(at), access }
        };
        self.spec.keys.each(words.len(), move |at| words.get(at)).map(key)
    }

    /// The channels among the words.
    fn channels<'a>(&self, words: Words<'a>) -> impl Iterator<Item = Channel<'a>> + Clone {
        let is_pattern = self.spec.name == "psubscribe";
        let has_some = is_pattern || self.spec.name == "subscribe";
        let end = if has_some { words.len() } else { 1 };
        (1..end).map(move |at| Channel { at, bytes: words.get(at), is_pattern })
    }

    /// Whether a user may make this call.
    ///
    /// # Errors
    /// What it is refused for.
    pub fn check(&self, user: &User, words: Words<'_>) -> Result<(), Denied> {
        if user.is_unrestricted() {
            return Ok(());
        }
        let first_argument = (words.len() > 1).then(|| words.get(1));
        let (keys, channels) = (self.keys(words), self.channels(words));
        let call = Call { command: self.id, first_argument, keys, channels };
        user.check(&CommandTable, &call)?;
        match self.spec.name {
            // Their keys are not among the arguments.
            "plan.run" | "link.chase" if !user.may_reading_all(&CommandTable, &call) => {
                Err(Denied::Key { at: 1 })
            }
            _ => Ok(()),
        }
    }

    /// The option of SORT that the user may not use: the keys of patterns are not among the arguments.
    pub fn refused_option(&self, user: &User, words: Words<'_>) -> Option<&'static str> {
        if user.is_unrestricted() || !matches!(self.spec.name, "sort" | "sort_ro") {
            return None;
        }
        let (keys, channels) = (self.keys(words), self.channels(words));
        let call = Call { command: self.id, first_argument: None, keys, channels };
        if user.may_reading_all(&CommandTable, &call) {
            return None;
        }
        let mut at = 2;
        while at + 1 < words.len() {
            let is = |name: &str| words.is(at, name);
            if is("by") && words.get(at + 1).contains(&b'*') {
                return Some("BY");
            }
            if is("get") {
                return Some("GET");
            }
            at += 1 + if is("limit") { 2 } else { usize::from(is("by") || is("store")) };
        }
        None
    }

    /// SET without GET reads nothing.
    fn only_writes(&self, words: Words<'_>) -> bool {
        self.spec.name == "set" && !(3..words.len()).any(|at| words.is(at, "get"))
    }
}
