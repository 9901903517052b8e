//! The names of a path in an expression.

/// The names of a path. It may have none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Path(pub(super) Vec<String>);

impl Path {
    pub(super) fn names(&self) -> &[String] {
        &self.0
    }
}
