//! Ways down to where an object lies, or would go.

use remora_layout::node::NodeRef;
use remora_layout::rect::Rect;

/// A node on the way down, and the index of the entry that was taken.
pub(super) type Path = Vec<(NodeRef, usize)>;

/// Where an object would go, found before its change begins.
#[derive(Default)]
pub(super) struct Way {
    /// The object's rectangle; `None` if no way is looked for.
    pub rect: Option<Rect>,
    /// The nodes on the way.
    pub path: Path,
    /// The node at its end.
    pub end: NodeRef,
}

impl Way {
    /// Begins a way for an object with this rectangle, or none.
    pub fn begin(&mut self, rect: Option<Rect>) {
        self.rect = rect;
    }

    /// Bytes of the heap that it takes.
    pub fn heap_bytes(&self) -> usize {
        self.path.capacity() * size_of::<(NodeRef, usize)>()
    }
}
