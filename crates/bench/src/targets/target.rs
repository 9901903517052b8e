//! One client's way to the records.

use crate::costs::Costs;

/// A request of a pipeline.
#[derive(Clone, Copy, Debug)]
pub enum Request<'a> {
    /// Asks for a key's value.
    Get(&'a [u8]),
    /// Sets a key.
    Set(&'a [u8], &'a [u8]),
}

/// One client's way to the records.
pub trait Target {
    /// Whether an operation is so short that reading the clock for each would distort the
    /// measurement.
    const IS_SHORT: bool;

    /// Looks up one key; `see` is given its value.
    fn get(&mut self, key: &[u8], see: impl FnOnce(Option<&[u8]>)) -> anyhow::Result<()>;

    /// Sets one key.
    fn set(&mut self, key: &[u8], value: &[u8]) -> anyhow::Result<()>;

    /// Looks up several keys at once; `see` is given each key's position and
    /// value, in any order.
    fn get_batch(
        &mut self,
        keys: &[&[u8]],
        see: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> anyhow::Result<()>;

    /// Sends a request, or gathers it for [`Target::flush`].
    fn send(&mut self, request: Request<'_>) -> anyhow::Result<()>;

    /// Sends the gathered requests.
    fn flush(&mut self) -> anyhow::Result<()>;

    /// Waits for the reply to the oldest request; `see` is given the value if
    /// it was a GET.
    fn receive(&mut self, is_get: bool, see: impl FnOnce(Option<&[u8]>)) -> anyhow::Result<()>;

    /// How many of `depth` requests stay outstanding while replies are taken.
    fn kept_outstanding(depth: usize) -> usize;

    /// The costs since the target was opened.
    fn costs(&self) -> Costs;
}
