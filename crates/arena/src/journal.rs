//! What the simulator wants to know about stores.

/// Told of every store and fence in registered memory, in program order.
///
/// The real build uses [`NoJournal`], which costs nothing. The simulated
/// fabric composes from a journal any READ that the contract allows.
pub trait Journal {
    /// False if nobody listens; lets whole records be stored by vector.
    const ACTIVE: bool;

    /// Word `index` now holds `value`.
    fn stored(&mut self, index: usize, value: u64);

    /// No later store may become visible before an earlier one.
    fn fenced(&mut self);
}

/// Nobody listens.
#[derive(Clone, Copy, Default, Debug)]
pub struct NoJournal;

impl Journal for NoJournal {
    const ACTIVE: bool = false;

    #[inline(always)]
    fn stored(&mut self, _index: usize, _value: u64) {}

    #[inline(always)]
    fn fenced(&mut self) {}
}
