//! Bounds of one command's request, beside those of the layout: without them a small request could
//! ask for a huge reply, or for much work.

/// Names in one COMMAND INFO or DOCS. Each can make a reply of a kilobyte.
pub(crate) const MAX_COMMAND_NAMES: usize = 1024;

/// Most patterns of a CONFIG GET.
pub(crate) const MAX_CONFIG_PATTERNS: usize = 64;

/// Bytes of a number's text at most: any f64 fits, with all its digits.
pub(crate) const MAX_NUMBER_BYTES: usize = 1200;

/// Patterns that one connection subscribes to at most: each event is compared with all of them.
pub(crate) const MAX_SUBSCRIBED_PATTERNS: usize = 16;

/// Bytes of such a pattern at most: the connection keeps it.
pub(crate) const MAX_SUBSCRIBED_PATTERN_BYTES: usize = 128;
