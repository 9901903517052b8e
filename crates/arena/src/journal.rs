//! The stores that the simulator observes.

/// Receives every store and fence in registered memory, in program order.
///
/// The real build uses [`NoJournal`], which costs nothing. From a journal the simulated fabric
/// composes any READ that the contract allows.
pub trait Journal {
    /// False if the journal ignores everything; lets whole records be stored by vector.
    const ACTIVE: bool;

    /// Word `index` now holds `value`.
    fn stored(&mut self, index: usize, value: u64);

    /// No later store may become visible before an earlier one.
    fn fenced(&mut self);
}

/// A journal that ignores everything.
#[derive(Clone, Copy, Default, Debug)]
pub struct NoJournal;

impl Journal for NoJournal {
    const ACTIVE: bool = false;

    #[inline(always)]
    fn stored(&mut self, _index: usize, _value: u64) {}

    #[inline(always)]
    fn fenced(&mut self) {}
}
