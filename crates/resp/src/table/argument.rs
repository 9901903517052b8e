//! Arguments of commands as data: COMMAND DOCS and the syntax text are both
//! made from it.

/// What an argument is; the names are those of COMMAND DOCS.
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
    /// What it is called in the syntax.
    pub name: &'static str,
    /// What it is.
    pub kind: Kind,
    /// The word before it, or in its place.
    pub token: Option<&'static str>,
    /// Whether it may be left out.
    pub optional: bool,
    /// Whether it may be repeated.
    pub multiple: bool,
    /// What it is made of.
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
    pub(super) fn write_syntax(&self, text: &mut String) {
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
