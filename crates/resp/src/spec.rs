//! The description of a command: its name, its arguments, its effects and needs, and its parser.
//! The dispatcher, COMMAND and `docs/commands.md` are made from it.

use crate::error::CommandError;
use crate::request::Request;
use crate::wire::Words;
use remora_layout::slot::slot_of;
use remora_protocol::integer;

/// The result of a parser.
pub(crate) type ParseResult<'a> = Result<Request<'a>, CommandError>;

/// Makes a request of arguments whose number fits the command; the time is
/// Unix ms.
pub type Parse = for<'a> fn(Words<'a>, u64) -> Result<Request<'a>, CommandError>;

/// A command's effects and needs; the names are those of COMMAND INFO.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Flag {
    /// May change data.
    Write,
    /// Reads data and changes none.
    ReadOnly,
    /// Is refused when memory is full.
    DenyOom,
    /// Is for operators.
    Admin,
    /// Takes constant or logarithmic time.
    Fast,
    /// May not be called by scripts.
    NoScript,
    /// Is answered while data is being loaded.
    Loading,
    /// Is answered by a replica that has lost its primary.
    Stale,
    /// Is answered before authentication.
    NoAuth,
    /// Is about channels.
    PubSub,
    /// May wait for keys.
    Blocking,
    /// Has keys whose places its arguments tell.
    MovableKeys,
}

impl Flag {
    /// The name in COMMAND INFO.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Write => "write",
            Self::ReadOnly => "readonly",
            Self::DenyOom => "denyoom",
            Self::Admin => "admin",
            Self::Fast => "fast",
            Self::NoScript => "noscript",
            Self::Loading => "loading",
            Self::Stale => "stale",
            Self::NoAuth => "no_auth",
            Self::PubSub => "pubsub",
            Self::Blocking => "blocking",
            Self::MovableKeys => "movablekeys",
        }
    }
}

/// The chapter that a command belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Group {
    /// The name in COMMAND DOCS.
    pub name: &'static str,
    /// The chapter's heading in the documentation.
    pub heading: &'static str,
    /// The origin of its words: Redis, or Remora.
    pub origin: &'static str,
}

impl Group {
    /// A chapter of commands that Redis has, too.
    pub(crate) const fn new(name: &'static str, heading: &'static str) -> Self {
        Self { name, heading, origin: "Redis" }
    }

    /// A chapter of commands of Remora's own.
    pub(crate) const fn own(name: &'static str, heading: &'static str) -> Self {
        Self { name, heading, origin: "Remora" }
    }

    /// About values.
    pub(crate) const STRING: Self = Self::new("string", "Values");
    /// About keys, whatever their value.
    pub(crate) const GENERIC: Self = Self::new("generic", "Keys");
    /// About the connection.
    pub(crate) const CONNECTION: Self = Self::new("connection", "The connection");
    /// About the cluster.
    pub(crate) const CLUSTER: Self = Self::new("cluster", "The cluster");
    /// For clients of Sentinel.
    pub(crate) const SENTINEL: Self = Self::new("sentinel", "Sentinel");
    /// About channels.
    pub(crate) const PUBSUB: Self = Self::new("pubsub", "Channels");
    /// About the server.
    pub(crate) const SERVER: Self = Self::new("server", "The server");
}

/// The positions of the keys among the arguments (0 is the command's name).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KeyPlaces {
    /// First key; 0 for a command without keys.
    pub first: usize,
    /// Last key; -1 is the last argument.
    pub last: isize,
    /// The distance from one key to the next.
    pub step: usize,
    /// The argument that says how many keys there are behind it; 0: none does. COMMAND INFO says
    /// then that there are none, as Redis does.
    pub counted_at: usize,
    /// The kind of access to the keys, in the words of COMMAND INFO.
    pub access: &'static [&'static str],
    /// That to the key at `first`, if it is another one.
    pub first_access: Option<&'static [&'static str]>,
    /// Further keys, whose places the other arguments tell.
    pub others: &'static [OtherKeys],
}

/// Which of a command's keys one is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// That at [`KeyPlaces::first`].
    First,
    /// Another one of [`KeyPlaces`].
    Further,
    /// One of [`KeyPlaces::others`], by its number there.
    Other(usize),
}

/// Keys of a command whose places only its other arguments tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OtherKeys {
    /// The option before the key, if the argument behind it is one. COMMAND GETKEYS finds no others.
    pub option: Option<OptionKey>,
    /// Why COMMAND INFO does not say where they are.
    pub notes: &'static str,
    /// The kind of access to them.
    pub access: &'static [&'static str],
}

/// A key behind an option. The last one counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OptionKey {
    /// The option.
    pub word: &'static str,
    /// Other options, and how many arguments each has: none of them is the option.
    pub skips: &'static [(&'static str, usize)],
}

impl OptionKey {
    /// The place of the key, behind the first `from` of `count` arguments.
    fn find<'a>(
        self,
        (from, count): (usize, usize),
        word: impl Fn(usize) -> &'a [u8],
    ) -> Option<usize> {
        let (mut at, mut found) = (from, None);
        while at + 1 < count {
            let is = |name: &str| word(at).eq_ignore_ascii_case(name.as_bytes());
            if is(self.word) {
                found = Some(at + 1);
            }
            at += 1 + self.skips.iter().find(|skip| is(skip.0)).map_or(0, |skip| skip.1);
        }
        found
    }
}

impl KeyPlaces {
    /// No keys.
    pub const NONE: Self = Self {
        first: 0,
        last: 0,
        step: 0,
        counted_at: 0,
        access: &[],
        first_access: None,
        others: &[],
    };

    /// One key, the first argument.
    pub(crate) const fn one(access: &'static [&'static str]) -> Self {
        Self { first: 1, last: 1, step: 1, access, ..Self::NONE }
    }

    /// A key in each `step` arguments, to the end.
    pub(crate) const fn every(step: usize, access: &'static [&'static str]) -> Self {
        Self { first: 1, last: -1, step, access, ..Self::NONE }
    }

    /// Two keys, the first arguments, with the access to each.
    pub(crate) const fn two(
        first: &'static [&'static str],
        second: &'static [&'static str],
    ) -> Self {
        Self { last: 2, first_access: Some(first), ..Self::one(second) }
    }

    /// Keys whose number an argument says, behind it.
    pub(crate) const fn counted(counted_at: usize, access: &'static [&'static str]) -> Self {
        Self { counted_at, access, ..Self::NONE }
    }

    /// The places of the keys among `count` arguments, of which `word` gives one.
    pub fn among<'a>(
        self,
        count: usize,
        word: impl Fn(usize) -> &'a [u8],
    ) -> impl Iterator<Item = usize> + Clone {
        self.each(count, word).map(|(at, _)| at)
    }

    /// The same, each with the kind of access.
    pub fn each<'a>(
        self,
        count: usize,
        word: impl Fn(usize) -> &'a [u8],
    ) -> impl Iterator<Item = (usize, Place)> + Clone {
        let from = self.counted_at + 1;
        let counted = if self.counted_at == 0 || self.counted_at >= count {
            0
        } else {
            let keys = integer::parse(word(self.counted_at)).and_then(|keys| keys.try_into().ok());
            keys.unwrap_or(0usize).min(count - from)
        };
        let behind = self.first.max(1) + 1;
        let mut found = Vec::new();
        for (number, of) in self.others.iter().enumerate() {
            let at = of.option.and_then(|of| of.find((behind, count), &word));
            found.extend(at.map(|at| (at, Place::Other(number))));
        }
        let first = self.first;
        let place = move |at: usize| if at == first { Place::First } else { Place::Further };
        self.positions(count)
            .chain(from..from + counted)
            .map(move |at| (at, place(at)))
            .chain(found)
    }

    /// The kind of access to a key of this place, in the words of COMMAND INFO.
    pub fn access_of(&self, place: Place) -> &'static [&'static str] {
        match place {
            Place::First => self.first_access.unwrap_or(self.access),
            Place::Further => self.access,
            Place::Other(number) => self.others[number].access,
        }
    }

    /// The places of the keys among `count` arguments.
    pub fn positions(self, count: usize) -> impl Iterator<Item = usize> + Clone {
        let last = if self.last < 0 {
            count.saturating_sub(self.last.unsigned_abs())
        } else {
            self.last.unsigned_abs().min(count.saturating_sub(1))
        };
        let end = if self.first == 0 { 0 } else { last + 1 };
        (self.first..end).step_by(self.step.max(1))
    }
}

/// One command, or one subcommand.
#[derive(Clone, Copy, Debug)]
pub struct CommandSpec {
    /// In lower case; `client|id` for a subcommand.
    pub name: &'static str,
    /// Arguments with the name; a negative number is a minimum.
    pub arity: i16,
    /// Its effects and needs.
    pub flags: &'static [Flag],
    /// The positions of its keys.
    pub keys: KeyPlaces,
    /// ACL categories that do not follow from the flags.
    pub categories: &'static [&'static str],
    /// The version of Redis that brought it; of Remora for its own.
    pub since: &'static str,
    /// Remora's own, although Redis has the others of its chapter.
    pub is_own: bool,
    /// Its chapter.
    pub group: Group,
    /// One sentence.
    pub summary: &'static str,
    /// Its cost.
    pub complexity: &'static str,
    /// Further notes for users: for the documentation only.
    pub notes: &'static str,
    /// Its arguments after the name.
    pub arguments: &'static [Argument],
    /// Its subcommands, sorted by name.
    pub subcommands: &'static [CommandSpec],
    /// Makes the request.
    pub parse: Parse,
}

impl CommandSpec {
    /// The common values of most entries.
    pub(crate) const PLAIN: Self = Self {
        name: "",
        arity: 0,
        flags: &[],
        keys: KeyPlaces::NONE,
        categories: &[],
        since: "1.0.0",
        is_own: false,
        group: Group::SERVER,
        summary: "",
        complexity: "O(1)",
        notes: "",
        arguments: &[],
        subcommands: &[],
        parse: container,
    };

    /// Whether this number of arguments, name included, is allowed.
    #[inline]
    pub const fn accepts(&self, count: usize) -> bool {
        let arity = self.arity.unsigned_abs() as usize;
        if self.arity < 0 { count >= arity } else { count == arity }
    }

    /// The slot of the keys among words that call this command; `None` if there are no keys.
    ///
    /// # Errors
    /// They have several slots.
    pub fn slot(&self, words: Words<'_>) -> Result<Option<u16>, CommandError> {
        let mut slots =
            self.keys.among(words.len(), |at| words.get(at)).map(|at| slot_of(words.get(at)));
        let Some(first) = slots.next() else { return Ok(None) };
        match slots.all(|slot| slot == first) {
            true => Ok(Some(first)),
            false => Err(CommandError::CrossSlot),
        }
    }

    /// The subcommand with this name, in whatever case.
    pub fn subcommand(&self, name: &[u8]) -> Option<&'static CommandSpec> {
        self.subcommands.iter().find(|spec| name.eq_ignore_ascii_case(spec.last_name().as_bytes()))
    }

    /// The name without the command that it is a subcommand of.
    pub fn last_name(&self) -> &'static str {
        self.name.rsplit('|').next().unwrap_or(self.name)
    }

    /// All ACL categories: its own, and those that follow from the flags.
    pub fn all_categories(&self) -> Vec<&'static str> {
        let has = |flag| self.flags.contains(&flag);
        let mut all = self.categories.to_vec();
        let derived = [
            (has(Flag::Write), "write"),
            (has(Flag::ReadOnly), "read"),
            (has(Flag::Admin), "admin"),
            (has(Flag::Blocking), "blocking"),
            (has(Flag::Fast), "fast"),
            (!has(Flag::Fast), "slow"),
            (has(Flag::Admin) && !all.contains(&"dangerous"), "dangerous"),
        ];
        all.extend(derived.into_iter().filter(|(holds, _)| *holds).map(|(_, name)| name));
        all
    }

    /// How it is called: `GET key`.
    pub fn syntax(&self) -> String {
        let mut text = self.name.to_ascii_uppercase().replace('|', " ");
        for argument in self.arguments {
            text.push(' ');
            argument.write_syntax(&mut text);
        }
        text
    }
}

/// The kind of an argument; the names are those of COMMAND DOCS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A key.
    Key,
    /// Any bytes.
    String,
    /// A 64-bit integer.
    Integer,
    /// A finite number.
    Double,
    /// Unix seconds or ms.
    UnixTime,
    /// A glob pattern.
    Pattern,
    /// Only its token.
    PureToken,
    /// One of its parts.
    OneOf,
    /// Its parts, in order.
    Block,
}

impl Kind {
    /// The name in COMMAND DOCS.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::String => "string",
            Self::Integer => "integer",
            Self::Double => "double",
            Self::UnixTime => "unix-time",
            Self::Pattern => "pattern",
            Self::PureToken => "pure-token",
            Self::OneOf => "oneof",
            Self::Block => "block",
        }
    }
}

/// One argument.
#[derive(Clone, Copy, Debug)]
pub struct Argument {
    /// Its name in the syntax.
    pub name: &'static str,
    /// Its kind.
    pub kind: Kind,
    /// The word before it, or in its place.
    pub token: Option<&'static str>,
    /// Whether it may be left out.
    pub optional: bool,
    /// Whether it may be repeated.
    pub multiple: bool,
    /// Its parts.
    pub parts: &'static [Argument],
}

impl Argument {
    /// A plain argument.
    pub(crate) const fn new(name: &'static str, kind: Kind) -> Self {
        Self { name, kind, token: None, optional: false, multiple: false, parts: &[] }
    }

    /// An argument of several parts.
    pub(crate) const fn of(name: &'static str, kind: Kind, parts: &'static [Self]) -> Self {
        Self { parts, ..Self::new(name, kind) }
    }

    /// A fixed word.
    pub(crate) const fn word(name: &'static str, token: &'static str) -> Self {
        Self { token: Some(token), ..Self::new(name, Kind::PureToken) }
    }

    /// The same with a word before it.
    pub(crate) const fn after(self, token: &'static str) -> Self {
        Self { token: Some(token), ..self }
    }

    /// The same, but it may be left out.
    pub(crate) const fn optional(self) -> Self {
        Self { optional: true, ..self }
    }

    /// The same, but it may be repeated.
    pub(crate) const fn multiple(self) -> Self {
        Self { multiple: true, ..self }
    }

    /// Appends the argument as syntax text: `[EX seconds | PX milliseconds]`.
    fn write_syntax(&self, text: &mut String) {
        let (open, close) = match (self.optional, self.kind) {
            (true, _) => ("[", "]"),
            (false, Kind::OneOf) => ("<", ">"),
            _ => ("", ""),
        };
        text.push_str(open);
        self.write_once(text);
        if self.multiple {
            text.push_str(" [");
            self.write_once(text);
            text.push_str(" ...]");
        }
        text.push_str(close);
    }

    fn write_once(&self, text: &mut String) {
        if let Some(token) = self.token {
            text.push_str(token);
            if self.kind == Kind::PureToken {
                return;
            }
            text.push(' ');
        }
        let between = match self.kind {
            Kind::OneOf => " | ",
            Kind::Block => " ",
            _ => return text.push_str(self.name),
        };
        for (at, part) in self.parts.iter().enumerate() {
            if at > 0 {
                text.push_str(between);
            }
            part.write_syntax(text);
        }
    }
}

/// The parser of a command that only has subcommands: the table prevents a call of it alone.
pub(crate) fn container(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    Err(CommandError::unknown_command(words))
}

/// The parser of HELP, which each command with subcommands has as one of them.
pub(crate) fn help(words: Words<'_>, _now: u64) -> ParseResult<'_> {
    Ok(Request::Help(words.get(0)))
}
