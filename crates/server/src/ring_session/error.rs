//! Why a session's rings are no longer served.

use remora_fabric::LinkError;
use remora_layout::limits::{MAX_CLIENT_SESSIONS, TORN_FRAME_MS};
use remora_ring::Violation;

/// Why a session's rings are no longer served.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SessionError {
    /// The peer violated the protocol.
    #[error(transparent)]
    Violation(#[from] Violation),
    /// A frame began and did not end.
    #[error("a frame stayed incomplete for more than {TORN_FRAME_MS} ms")]
    TornForever,
    /// More requests in pieces than the client can have threads.
    #[error("more than {MAX_CLIENT_SESSIONS} values are on their way in at once")]
    TooManyUploads,
    /// A replica says what no honest replica says.
    #[error("a replica asks or acknowledges what makes no sense")]
    Feed,
    /// The link has failed.
    #[error(transparent)]
    Link(#[from] LinkError),
}
