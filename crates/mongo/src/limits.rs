//! Bounds of the protocol, with their sources.

/// Longest message, with its header (`maxMessageSizeBytes` of the handshake).
pub const MAX_MESSAGE_BYTES: usize = 48_000_000;
/// Longest document that a client may store (`maxBsonObjectSize` of the handshake).
pub use remora_layout::limits::MAX_DOCUMENT_BYTES;

/// Longest document in a message. A command or a reply around one document of the full size needs
/// some bytes more; MongoDB allows 16 KiB (`BSONObjMaxInternalSize`).
pub const MAX_WIRE_DOCUMENT_BYTES: usize = MAX_DOCUMENT_BYTES + (16 << 10);
/// Most writes in one command (`maxWriteBatchSize` of the handshake), so most documents in a
/// sequence.
pub const MAX_WRITE_BATCH: usize = 100_000;
/// Most bytes of what a reply tells of writes that failed, beyond which it tells their codes alone: a third of a
/// document, as in MongoDB.
pub const MAX_FAILURE_BYTES: usize = MAX_DOCUMENT_BYTES / 3;
/// Most namespaces of one `bulkWrite`.
pub const MAX_BULK_NAMESPACES: usize = 1024;
/// Most levels of a stored document, which is the first of them (MongoDB's limit of nesting).
pub const MAX_DEPTH: usize = 100;
/// Most levels of a command's body: a document of the full depth may stand in an array of it, as
/// in `{insert: "c", documents: [{..}]}`.
pub const MAX_BODY_DEPTH: usize = MAX_DEPTH + 2;
/// Most document sequences in a message. The commands of MongoDB use at most two.
pub const MAX_SEQUENCES: usize = 8;
/// Most fields of a command's body. No command of MongoDB has half as many.
pub const MAX_COMMAND_FIELDS: usize = 96;
