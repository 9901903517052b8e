//! Rounds of walks over trees.

/// Which restart of a walk wants a node: the walk ignores the wants of earlier restarts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Round(pub(crate) u32);
