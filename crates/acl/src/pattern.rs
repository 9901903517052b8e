//! Patterns of keys and channels.

use crate::error::RuleError;
use remora_layout::limits::{MAX_ACL_PATTERN_HEAP_BYTES, MAX_ACL_PATTERNS, MAX_PATTERN_BYTES};
use remora_protocol::glob::Glob;

/// What a command does with a key, or what a pattern allows.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Access {
    /// The value is read.
    pub read: bool,
    /// The value is changed, removed or made.
    pub write: bool,
}

impl Access {
    /// Neither: such a key only has to match some pattern.
    pub const NONE: Self = Self { read: false, write: false };
    /// The value is read.
    pub const READ: Self = Self { read: true, write: false };
    /// The value is changed.
    pub const WRITE: Self = Self { read: false, write: true };
    /// Both.
    pub const READ_WRITE: Self = Self { read: true, write: true };

    /// The access that COMMAND INFO's flags of a key mean: `access` reads; `insert`, `update` and
    /// `delete` write; others, such as `RW`, say nothing about rights.
    ///
    /// ```
    /// use remora_acl::Access;
    /// assert_eq!(Access::from_flags(&["RW", "access", "update"]), Access::READ_WRITE);
    /// assert_eq!(Access::from_flags(&["RO"]), Access::NONE);
    /// ```
    pub fn from_flags(flags: &[&str]) -> Self {
        let has = |name: &str| flags.iter().any(|flag| flag.eq_ignore_ascii_case(name));
        Self { read: has("access"), write: has("insert") || has("update") || has("delete") }
    }

    /// Whether this allows all that is needed.
    #[inline]
    pub fn allows(self, needed: Self) -> bool {
        (self.read || !needed.read) && (self.write || !needed.write)
    }
}

/// Bytes that the users' file and ACL LIST can have between spaces.
pub(crate) fn is_one_word(bytes: &[u8]) -> bool {
    // As C's isspace: a vertical tab too.
    !bytes.iter().any(|&byte| byte.is_ascii_whitespace() || byte == 0x0b || byte == 0)
}

/// One pattern, and what its keys may be used for. A channel's pattern has [`Access::NONE`].
#[derive(Clone, Debug)]
struct Pattern {
    access: Access,
    bytes: Box<[u8]>,
    glob: Glob,
}

/// The keys, or the channels, that a selector allows.
#[derive(Clone, Default, Debug)]
pub(crate) struct Patterns {
    all: bool,
    patterns: Vec<Pattern>,
}

impl Patterns {
    pub(crate) fn allow_all(&mut self) {
        *self = Self { all: true, patterns: Vec::new() };
    }

    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn has_all(&self) -> bool {
        self.all
    }

    /// Whether every key may be read.
    pub(crate) fn reads_all(&self) -> bool {
        self.all || self.patterns.iter().any(|one| one.access.read && &*one.bytes == b"*")
    }

    /// Adds a key pattern with its mark: `~a*`, `%R~a*`.
    pub(crate) fn add_key(&mut self, rule: &[u8]) -> Result<(), RuleError> {
        if self.all {
            return Err(RuleError::AfterAllKeys);
        }
        let (access, pattern) = key_pattern(rule)?;
        self.add(access, pattern)
    }

    /// Adds a channel pattern.
    pub(crate) fn add_channel(&mut self, pattern: &[u8]) -> Result<(), RuleError> {
        match self.all {
            true => Err(RuleError::AfterAllChannels),
            false => self.add(Access::NONE, pattern),
        }
    }

    fn add(&mut self, access: Access, pattern: &[u8]) -> Result<(), RuleError> {
        if !is_one_word(pattern) {
            return Err(RuleError::Syntax);
        }
        if let Some(known) = self.patterns.iter_mut().find(|known| &*known.bytes == pattern) {
            known.access.read |= access.read;
            known.access.write |= access.write;
            return Ok(());
        }
        if pattern.len() > MAX_PATTERN_BYTES {
            return Err(RuleError::Limit("MAX_PATTERN_BYTES"));
        }
        if self.patterns.len() == MAX_ACL_PATTERNS {
            return Err(RuleError::Limit("MAX_ACL_PATTERNS"));
        }
        if self.heap_bytes() + pattern_heap_bytes(pattern) > MAX_ACL_PATTERN_HEAP_BYTES {
            return Err(RuleError::Limit("MAX_ACL_PATTERN_HEAP_BYTES"));
        }
        let glob = Glob::new(pattern, false).expect("its length is checked");
        self.patterns.push(Pattern { access, bytes: pattern.into(), glob });
        Ok(())
    }

    /// Whether a key may be used so, or a channel be named.
    pub(crate) fn allow(&self, name: &[u8], needed: Access) -> bool {
        self.all
            || self.patterns.iter().any(|one| one.access.allows(needed) && one.glob.matches(name))
    }

    /// Whether these very bytes are one of the patterns: PSUBSCRIBE names no single channel.
    pub(crate) fn allow_pattern(&self, pattern: &[u8]) -> bool {
        self.all || self.patterns.iter().any(|one| &*one.bytes == pattern)
    }

    /// The text of the patterns of keys, with spaces between them.
    pub(crate) fn describe_keys(&self) -> Vec<u8> {
        if self.all {
            return b"~*".to_vec();
        }
        self.join(|one| match one.access {
            // Redis writes `~*`, behind which it reads no further pattern.
            Access::READ_WRITE if &*one.bytes == b"*" => b"%RW~",
            Access::READ_WRITE => b"~",
            Access::READ => b"%R~",
            _ => b"%W~",
        })
    }

    /// The text of the patterns of channels, with spaces between them.
    pub(crate) fn describe_channels(&self) -> Vec<u8> {
        if self.all { b"&*".to_vec() } else { self.join(|_| b"&") }
    }

    fn join(&self, mark: impl Fn(&Pattern) -> &'static [u8]) -> Vec<u8> {
        let texts = self.patterns.iter().map(|one| [mark(one), &one.bytes].concat());
        texts.collect::<Vec<_>>().join(&b' ')
    }

    pub(crate) fn heap_bytes(&self) -> usize {
        self.patterns.iter().map(|one| pattern_heap_bytes(&one.bytes)).sum()
    }
}

/// About the heap bytes of a pattern: it is compiled to a table of 2 KiB for each 64 elements.
fn pattern_heap_bytes(pattern: &[u8]) -> usize {
    128 + pattern.len() + 2048 * pattern.len().div_ceil(64)
}

/// The access and the pattern of `~pattern` or `%RW~pattern`.
fn key_pattern(rule: &[u8]) -> Result<(Access, &[u8]), RuleError> {
    if let [b'~', pattern @ ..] = rule {
        return Ok((Access::READ_WRITE, pattern));
    }
    let mut access = Access::NONE;
    let mut rest = &rule[1..];
    loop {
        match rest {
            [b'R' | b'r', after @ ..] if !access.read => (access.read, rest) = (true, after),
            [b'W' | b'w', after @ ..] if !access.write => (access.write, rest) = (true, after),
            [b'~', pattern @ ..] if access != Access::NONE => return Ok((access, pattern)),
            // Redis takes `%R` for `%R~`.
            [] if access != Access::NONE => return Ok((access, rest)),
            _ => return Err(RuleError::Syntax),
        }
    }
}
