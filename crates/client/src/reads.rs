//! READs of a session, as the drivers of walks post and await them.

use crate::api::Counts;
use crate::error::Error;
use crate::session::Session;
use remora_fabric::{Link, Work};
use remora_layout::plant::{Plant, planted};
use remora_ring::WRITE_ID;
use remora_walk::remote::{Reads, Tally};

impl Reads for Session {
    type Error = Error;

    #[inline(always)]
    fn works(&mut self) -> &mut Vec<Work<'static>> {
        &mut self.works
    }

    #[inline(always)]
    fn reserve(&mut self, bytes: usize) {
        self.link.reserve_landing(bytes);
    }

    #[inline(always)]
    fn post(&mut self, reads: &[Work<'_>]) {
        self.link.post(reads);
    }

    /// Polls until a READ has completed; what ends the link ends the session.
    #[inline(always)]
    fn next(&mut self) -> Result<u64, Error> {
        loop {
            let completion = match self.link.poll() {
                Some(completion) => completion,
                None => self.await_completion()?,
            };
            if let Err(error) = completion.result
                && !planted(Plant::BelieveFailedRead)
            {
                return Err(self.end(error.into()));
            }
            if completion.id != WRITE_ID {
                return Ok(completion.id);
            }
        }
    }

    #[inline(always)]
    fn landed(&self, from: usize, bytes: usize) -> &[u8] {
        self.link.landed(from, bytes)
    }
}

impl Tally for Counts {
    #[inline(always)]
    fn fetched(&mut self, round_trips: u64, nodes: u64, bytes: u64) {
        self.round_trips += round_trips;
        self.nodes += nodes;
        self.bytes += bytes;
    }
}
