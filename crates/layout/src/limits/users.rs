//! Limits of users and of what comes before they are known.

/// Users of the ACL: some thousand services, each with one of its own.
pub const MAX_ACL_USERS: usize = 4096;
/// Selectors of a user beside its own rights. Each is looked at for a call that none before allows.
pub const MAX_ACL_SELECTORS: usize = 32;
/// Key patterns of a selector, and channel patterns: each is compared with each key of a call.
pub const MAX_ACL_PATTERNS: usize = 128;
/// Heap bytes of a selector's key patterns, and of its channel patterns: 15 of the longest, or all of
/// them if they have up to 64 bytes.
pub const MAX_ACL_PATTERN_HEAP_BYTES: usize = 512 << 10;
/// Rules about commands in a selector: several for each command there is.
pub const MAX_ACL_RULES: usize = 1024;
/// Passwords of a user: AUTH compares all of them.
pub const MAX_ACL_PASSWORDS: usize = 64;
/// Longest password: the server hashes so much for a client that has not logged in.
pub const MAX_ACL_PASSWORD_BYTES: usize = 16 << 10;
/// Longest request of a connection that has not logged in, in bytes: AUTH with the longest password.
pub const UNAUTHENTICATED_REQUEST_BYTES: usize = MAX_ACL_PASSWORD_BYTES + 4096;
/// Longest name of a user, first argument in a rule, and name in ACL LOG, in bytes.
pub const MAX_ACL_WORD_BYTES: usize = 256;
/// Heap bytes of all users, for the most part compiled patterns: a small part of a server's memory.
pub const MAX_ACL_HEAP_BYTES: usize = 64 << 20;
/// Bytes of a users' file: those of users of whom each takes its part of the heap.
pub const MAX_ACL_FILE_BYTES: u64 = 64 << 20;
/// How often the users' file is looked at for changes, in ms: soon for who has changed it.
pub const ACL_FILE_LOOK_MS: u64 = 500;
/// Wrong lines of a users' file that its error names: a reply that can be read.
pub const MAX_ACL_FILE_ERRORS: usize = 64;
/// Entries of ACL LOG, as many as Redis keeps.
pub const MAX_ACL_LOG_ENTRIES: usize = 128;
/// The newest entries of ACL LOG that a refusal is compared with, as in Redis.
pub const ACL_LOG_MERGE_ENTRIES: usize = 10;
/// A refusal that is like one of this many ms before counts there, as in Redis.
pub const ACL_LOG_MERGE_MS: u64 = 60_000;
/// Bits of a password that ACL GENPASS makes without a number: those of the hash that is kept.
pub const ACL_PASSWORD_BITS: i64 = 256;
/// Most bits of a password that ACL GENPASS makes, as in Redis.
pub const MAX_ACL_PASSWORD_BITS: usize = 4096;

/// TLS handshakes that are under way at a time, each with some kilobytes.
pub const MAX_HANDSHAKES: usize = 2048;
/// Those of clients of one address: so many wait only if they say nothing.
pub const MAX_HANDSHAKES_OF_ADDRESS: usize = MAX_HANDSHAKES / 2;
/// A TLS handshake that takes longer is given up, ms.
pub const HANDSHAKE_MS: u64 = 5_000;
/// How often the server looks whether a file of its TLS settings has changed, ms.
pub const TLS_FILE_LOOK_MS: u64 = 1_000;

const _: () = assert!(MAX_ACL_LOG_ENTRIES >= ACL_LOG_MERGE_ENTRIES);
const _: () =
    assert!((MAX_ACL_SELECTORS + 1) * 2 * MAX_ACL_PATTERN_HEAP_BYTES <= MAX_ACL_HEAP_BYTES);
