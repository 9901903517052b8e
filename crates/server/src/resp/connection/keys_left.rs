//! Requests of more keys than a turn takes: the request stays at the front of the
//! input until the last of its keys is taken, so that nothing of it is copied. The
//! connection reads nothing more meanwhile ([`Connection::expect_large`]).

use super::Connection;
use crate::resp::execute::Executor;
use crate::resp::host::Host;
use remora_layout::limits::RESP_PAUSE_JOB_BYTES;
use remora_resp::wire::Args;

/// A request at the front of the input.
pub(super) struct KeysLeft {
    args: Args,
    /// Its length.
    bytes: usize,
}

impl KeysLeft {
    /// A request with these arguments, of so many bytes.
    pub(super) const fn new(args: Args, bytes: usize) -> Self {
        Self { args, bytes }
    }
}

impl Connection {
    /// Whether a turn may take further keys. While the jobs about earlier ones take too
    /// much memory it may not; an answer to one of them makes room.
    pub(super) fn may_take_keys(&self) -> bool {
        self.keys_left.is_some() && self.job_bytes <= RESP_PAUSE_JOB_BYTES
    }

    /// Takes further keys of the request at the front of the input. The bytes that
    /// it took: none before its last key.
    pub(super) fn go_on_with_keys<H: Host>(
        &mut self,
        executor: &mut Executor<H>,
        input: &[u8],
    ) -> usize {
        if !self.may_take_keys() {
            return 0;
        }
        let Some(KeysLeft { args, bytes }) = self.keys_left.take() else { return 0 };
        if let Some(many) = self.take_keys_left() {
            executor.go_on_with_keys(self, many, (&args, &input[..bytes]));
        }
        if self.has_keys_left() {
            self.keys_left = Some(KeysLeft { args, bytes });
            return 0;
        }
        bytes
    }
}
