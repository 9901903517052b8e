//! What was read from a connection and is not executed.
//!
//! What it keeps true: a connection reads only while it holds no whole request, as far
//! as it knows. So it holds less than one request and what one turn reads, however fast
//! its client sends, and a turn does not move what earlier ones have left.

use super::Connection;
use crate::resp::execute::Executor;
use crate::resp::host::Host;
use std::io::{ErrorKind, Read};

/// Bytes in the order in which they came.
#[derive(Default)]
pub(super) struct Input {
    bytes: Vec<u8>,
    /// So many at the start are executed.
    taken: usize,
}

impl Input {
    /// Bytes that are not executed.
    pub(super) const fn len(&self) -> usize {
        self.bytes.len() - self.taken
    }

    /// Whether there are none.
    pub(super) const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes that are not executed.
    pub(super) fn rest(&self) -> &[u8] {
        &self.bytes[self.taken..]
    }

    /// Adds what was read. Only here is moved what is not executed: behind a large
    /// request, that is less than one turn has read.
    pub(super) fn add(&mut self, fresh: &[u8]) {
        if fresh.is_empty() {
            return;
        }
        self.bytes.drain(..std::mem::take(&mut self.taken));
        self.bytes.extend_from_slice(fresh);
    }

    /// So many more are executed. The buffer is given back with the last one.
    pub(super) fn take(&mut self, bytes: usize) {
        self.taken += bytes;
        if self.is_empty() {
            *self = Self::default();
        }
    }
}

impl Connection {
    /// Whether parsing what was read can bring a request.
    pub(super) const fn may_parse(&self) -> bool {
        self.input.len() >= self.need
    }

    /// Reads what is there, up to a turn's worth: bytes in `scratch`; an error if the
    /// connection is broken.
    pub(super) fn read(&mut self, stream: &mut impl Read, scratch: &mut [u8]) -> Result<usize, ()> {
        loop {
            match stream.read(scratch) {
                Ok(0) => {
                    // A client may send, close its side and wait for replies.
                    self.closing = true;
                    self.may_have_more = false;
                    return Ok(0);
                }
                Ok(read) => {
                    self.idle_s = 0;
                    // Less than asked for: the socket is empty, and what
                    // arrives from now on is a new edge; but an end that has
                    // already been announced is not announced again.
                    self.may_have_more = read == scratch.len() || self.end_announced;
                    return Ok(read);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.may_have_more = false;
                    return Ok(0);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => return Err(()),
            }
        }
    }

    /// Takes in fresh bytes, and executes whole requests. Only what is not whole,
    /// or beyond a turn, is kept.
    pub(super) fn take_in<H: Host>(&mut self, executor: &mut Executor<H>, fresh: &[u8]) {
        if self.input.is_empty() {
            if self.skip.is_none() {
                self.args = std::mem::take(&mut executor.spare.args);
            }
            let taken = self.execute(executor, fresh);
            self.input.add(&fresh[taken..]);
        } else {
            let mut input = std::mem::take(&mut self.input);
            input.add(fresh);
            let taken = self.execute(executor, input.rest());
            input.take(taken);
            self.input = input;
        }
        if self.input.is_empty() {
            executor.spare.args = std::mem::take(&mut self.args);
        }
    }
}

#[cfg(test)]
mod tests;
