//! Regular expressions of filters.

use super::pattern_syntax::translate;
use crate::error::{DocumentError, INVALID_REGEX, INVALID_REGEX_FLAG};
use bson::raw::RawBsonRef;
use regex::{Regex, RegexBuilder};
use remora_layout::limits::MAX_COMPILED_PATTERN_BYTES;

/// A compiled regular expression, and what it was made of.
#[derive(Debug, Clone)]
pub(crate) struct Pattern {
    regex: Regex,
    source: String,
    options: String,
}

impl Pattern {
    /// Compiles a pattern with MongoDB's options: `i`, `m`, `s`, `x`, and `u`, which is always on.
    pub(crate) fn new(source: &str, options: &str) -> Result<Pattern, DocumentError> {
        if source.contains('\0') {
            let message = "Regular expression cannot contain an embedded null byte";
            return Err(DocumentError::bad_value(message));
        }
        if let Some(flag) = options.chars().find(|flag| !"imsux".contains(*flag)) {
            let message = format!("invalid flag in regex options: {flag}");
            return Err(DocumentError::new(INVALID_REGEX_FLAG, message));
        }
        let translated = translate(source, options).map_err(invalid)?;
        let regex = RegexBuilder::new(&translated)
            .case_insensitive(options.contains('i'))
            .multi_line(options.contains('m'))
            .dot_matches_new_line(options.contains('s'))
            .ignore_whitespace(options.contains('x'))
            .size_limit(MAX_COMPILED_PATTERN_BYTES)
            .dfa_size_limit(MAX_COMPILED_PATTERN_BYTES)
            .build()
            .map_err(|error| invalid(last_line(&error.to_string())))?;
        Ok(Pattern { regex, source: source.to_owned(), options: options.to_owned() })
    }

    /// The compiled expression.
    pub(crate) fn regex(&self) -> &Regex {
        &self.regex
    }

    /// A string matches the pattern; a regular expression matches its equal.
    pub(super) fn matches(&self, value: RawBsonRef<'_>) -> bool {
        match value {
            RawBsonRef::String(text) | RawBsonRef::Symbol(text) => self.regex.is_match(text),
            RawBsonRef::RegularExpression(regex) => {
                regex.pattern.as_str() == self.source && regex.options.as_str() == self.options
            }
            _ => false,
        }
    }
}

/// Why a pattern is wrong: the text of a syntax error repeats the pattern, which can be long, before.
fn last_line(text: &str) -> &str {
    text.lines().last().unwrap_or_default().trim_start_matches("error: ")
}

fn invalid(reason: &str) -> DocumentError {
    DocumentError::new(INVALID_REGEX, format!("Regular expression is invalid: {reason}"))
}
