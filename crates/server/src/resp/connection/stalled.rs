//! Large requests of which no more comes. What was kept of them is given back,
//! and they are refused; what still comes of them is passed over, so that the
//! connection goes on with the request behind.

use super::{Connection, Flow};
use crate::resp::execute::Executor;
use crate::resp::host::Host;
use remora_layout::limits::STALL_BYTES;
use remora_resp::wire::{Args, ProtocolError, Skip, encode};

impl Connection {
    /// Whether it keeps much of a request that is not all there.
    pub fn keeps_part(&self) -> bool {
        let is_part = self.input.len() > STALL_BYTES && self.input.len() < self.need;
        is_part && !self.closing && !self.is_paused()
    }

    /// A second has gone by. A request of which nothing came for longer than
    /// `upload_idle_s` is refused.
    pub fn count_idle<H: Host>(&mut self, upload_idle_s: u64, executor: &Executor<H>) -> Flow {
        self.idle_s += 1;
        if self.idle_s <= upload_idle_s || !self.keeps_part() {
            return Flow::Go;
        }
        let Some((position, skip)) = Skip::of(&self.args) else { return Flow::Go };
        let held = std::mem::take(&mut self.input);
        (self.args, self.skip) = (Args::new(), Some(skip));
        executor.counts().requests_abandoned.add(1);
        let text = format!(
            "ERR the request was given up: no more of it came for {upload_idle_s} s; send it again"
        );
        self.reply(|out, _| encode::error(out, &text));
        match self.pass_over(&held.rest()[position..]) {
            Ok(passed) => self.input.add(&held.rest()[position + passed..]),
            Err(error) => self.protocol_error(executor, &error.to_string()),
        }
        Flow::Again
    }

    /// Passes over what is there of a request that was given up: so many bytes
    /// of the buffer.
    pub(super) fn pass_over(&mut self, buffer: &[u8]) -> Result<usize, ProtocolError> {
        let skip = self.skip.as_mut().expect("asked by the caller");
        let skipped = skip.pass(buffer)?;
        self.need = if skipped.is_whole {
            self.skip = None;
            1
        } else {
            buffer.len() - skipped.bytes + 1
        };
        Ok(skipped.bytes)
    }
}

#[cfg(test)]
mod tests;
