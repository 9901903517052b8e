//! Requests that are sent together.
//!
//! A session sends a request at once if no other is in flight before it. It gathers a request that
//! follows others: several go out by one WRITE, under one lock and with one wake-up.

/// Number of gathered requests at which the session sends them: half of what a shard takes in a
/// turn.
const GATHERED_REQUESTS: usize = 8;
/// The same over a network, where a write costs as much as some requests: two turns of a shard.
const GATHERED_FAR_REQUESTS: usize = 32;
/// The same in bytes: these bytes are copied twice, so they should be few.
pub(crate) const GATHERED_BYTES: usize = 4096;

/// Requests to one shard that go into its ring together.
#[derive(Default)]
pub(crate) struct Gathered {
    /// Their messages, one behind the other.
    bytes: Vec<u8>,
    /// Where each of them ends.
    ends: Vec<usize>,
}

impl Gathered {
    /// Whether the session should send them, over shared memory or over a network.
    pub fn is_full(&self, is_near: bool) -> bool {
        let most = if is_near { GATHERED_REQUESTS } else { GATHERED_FAR_REQUESTS };
        self.ends.len() >= most || self.bytes.len() >= GATHERED_BYTES
    }

    /// Adds one.
    pub fn push(&mut self, parts: &[&[u8]]) {
        for part in parts {
            self.bytes.extend_from_slice(part);
        }
        self.ends.push(self.bytes.len());
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Bytes of all of them.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// One after the other, the oldest first.
    pub fn messages(&self) -> impl Iterator<Item = &[u8]> {
        self.ends.iter().scan(0, |from, &end| {
            let message = &self.bytes[*from..end];
            *from = end;
            Some(message)
        })
    }

    /// Withdraws the newest one, which is then not sent. False if there is none.
    pub fn withdraw_last(&mut self) -> bool {
        let is_there = self.ends.pop().is_some();
        self.bytes.truncate(self.ends.last().copied().unwrap_or(0));
        is_there
    }

    /// Removes the oldest ones after they were sent.
    pub fn sent(&mut self, messages: usize) {
        let bytes = messages.checked_sub(1).map_or(0, |last| self.ends[last]);
        self.bytes.drain(..bytes);
        self.ends.drain(..messages);
        self.ends.iter_mut().for_each(|end| *end -= bytes);
    }
}
