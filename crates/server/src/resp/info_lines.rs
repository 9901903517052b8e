//! The lines of INFO.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};

/// A field and its value.
pub type Line = (Cow<'static, str>, String);

/// Lines whose fields are known.
pub fn lines(lines: impl IntoIterator<Item = (&'static str, String)>) -> Vec<Line> {
    lines.into_iter().map(|(field, value)| (field.into(), value)).collect()
}

pub fn load(counter: &AtomicU64) -> String {
    counter.load(Ordering::Relaxed).to_string()
}
