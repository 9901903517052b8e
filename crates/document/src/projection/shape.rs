//! The tree of fields that a projection names.

use std::collections::HashMap;

/// What happens to fields that a projection does not name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// They are left out: of inclusions.
    Drop,
    /// They stay: of exclusions, and of `$addFields`.
    Keep,
}

/// A tree of fields.
#[derive(Debug, Clone)]
pub(crate) struct Shape {
    pub(super) mode: Mode,
    pub(super) root: Branch,
    pub(super) computes: bool,
}

/// The fields that a projection names in one document.
#[derive(Debug, Clone, Default)]
pub(super) struct Branch {
    pub(super) children: Vec<(String, Child)>,
    /// Positions by name, if there are many.
    positions: HashMap<String, usize>,
    /// Whether something below is computed.
    pub(super) computes: bool,
}

#[derive(Debug, Clone)]
pub(super) enum Child {
    Include,
    Exclude,
    Compute(crate::expression::Expression),
    Below(Branch),
}

/// So many children are searched one by one.
const FEW: usize = 8;

impl Branch {
    pub(super) fn position(&self, name: &str) -> Option<usize> {
        match self.children.len() > FEW {
            true => self.positions.get(name).copied(),
            false => self.children.iter().position(|(known, _)| known == name),
        }
    }

    pub(super) fn push(&mut self, name: &str, child: Child) -> usize {
        let at = self.children.len();
        self.children.push((name.to_owned(), child));
        self.positions.insert(name.to_owned(), at);
        at
    }
}

impl Shape {
    /// Whether it computes something, so that a result can be larger than its document.
    pub(crate) fn computes(&self) -> bool {
        self.computes
    }
}
