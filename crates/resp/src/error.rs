//! Errors of commands, in the words of Redis 7: clients match on them.

use crate::limits::{
    MAX_COMMAND_NAMES, MAX_CONFIG_PATTERNS, MAX_SUBSCRIBED_PATTERN_BYTES, MAX_SUBSCRIBED_PATTERNS,
};
use crate::wire::{Words, encode};
use remora_layout::limits::{
    MAX_COMMAND_ITEMS, MAX_COMMAND_MEMBERS, MAX_FIELDS, MAX_FIELDS_BYTES, MAX_KEY_BYTES,
    MAX_NODE_ENTRIES, MAX_OBJECT_BYTES, MAX_OBJECT_ID_BYTES, MAX_PATTERN_BYTES, MAX_REPLY_BYTES,
    MAX_SORT_GETS, MAX_SORTED_MEMBER_BYTES, MAX_VALUE_BYTES, MAX_WAITED_KEYS, MIN_NODE_ENTRIES,
    RESP_MAX_CLIENT_NAME_BYTES,
};
use remora_layout::node::ENTRY_BYTES;
use remora_plan::text::TextError;
use remora_protocol::message::Status;
use std::borrow::Cow;
use thiserror::Error;

/// Bytes of a peer's own words that an error repeats at most, as Redis.
const EXCERPT_BYTES: usize = 128;

/// Why a request is not carried out. The text is the reply, code first.
#[derive(Clone, PartialEq, Debug, Error)]
pub enum CommandError {
    /// No such command.
    #[error("ERR unknown command '{name}', with args beginning with: {beginning}")]
    UnknownCommand {
        /// The name, cut and cleaned.
        name: String,
        /// The first arguments, quoted, cut and cleaned.
        beginning: String,
    },
    /// Words that are no plan.
    #[error("ERR {0}")]
    Plan(Box<TextError>),
    /// A word that is no document, or not one as the command wants it.
    #[error("ERR {0}")]
    Document(String),
    /// This server runs no plans.
    #[error("ERR no plans run here")]
    NoPlans,
    /// No such subcommand.
    #[error("ERR unknown subcommand '{name}'. Try {} HELP.", .command.to_ascii_uppercase())]
    UnknownSubcommand {
        /// The name, cut and cleaned.
        name: String,
        /// The command.
        command: &'static str,
    },
    /// Too few or too many arguments for the command.
    #[error("ERR wrong number of arguments for '{0}' command")]
    WrongArity(&'static str),
    /// WAITAOF for another number of own disks than there can be.
    #[error("ERR value is out of range, value must between 0 and 1")]
    NotZeroOrOne,
    /// A timeout below zero.
    #[error("ERR timeout is negative")]
    NegativeTimeout,
    /// A timeout that is no number of seconds.
    #[error("ERR timeout is not a float or out of range")]
    NoTimeout,
    /// A timeout whose end has no number.
    #[error("ERR timeout is out of range")]
    LongTimeout,
    /// CLIENT UNBLOCK for another reason.
    #[error("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")]
    UnblockReason,
    /// The server has no data directory.
    #[error("ERR nothing is kept: start the server with --data-dir")]
    NothingKept,
    /// A change, at a replica.
    #[error("READONLY You can't write against a read only replica.")]
    ReadOnly,
    /// A read, at a replica that answers none.
    #[error(
        "REPLICA this server is a replica of {primary} and answers no reads (replica_reads is none): \
         ask the primary, or start this one with --replica-reads stale"
    )]
    NoReads {
        /// The address of the primary.
        primary: String,
    },
    /// A read, at a replica that does not have all data yet.
    #[error("LOADING this server is a replica and copies the data of {primary}: ask again later")]
    Copying {
        /// The address of the primary.
        primary: String,
    },
    /// A primary of a cluster without its lease, or a change at one that hands its epoch over.
    #[error(
        "CLUSTERDOWN the recorded in-sync set has not confirmed that this server leads, and another one may"
    )]
    Fenced,
    /// In a cluster: another server leads the slot of the keys.
    #[error("MOVED {slot} {address}")]
    Moved {
        /// The slot.
        slot: u16,
        /// Host and port of the server.
        address: String,
    },
    /// In a cluster: keys of several slots.
    #[error("CROSSSLOT Keys in request don't hash to the same slot")]
    CrossSlot,
    /// In a cluster: no server leads the slot of the keys.
    #[error("CLUSTERDOWN Hash slot not served")]
    NotServed,
    /// A command of clusters, at a server that is in none.
    #[error("ERR This instance has cluster support disabled")]
    NoCluster,
    /// A pattern of SORT, in a cluster.
    #[error("ERR {0} option of SORT denied in Cluster mode.")]
    NoPatterns(&'static str),
    /// SORT with too many options GET.
    #[error("ERR more than {MAX_SORT_GETS} options GET in one command")]
    TooManyGets,
    /// Another database than 0, in a cluster.
    #[error("ERR {0} is not allowed in cluster mode")]
    OneDatabase(&'static str),
    /// ASKING: no slot is ever on its way from one group to another.
    #[error(
        "ERR ASKING is of no use here: no slot of this cluster is on its way, so no reply is an ASK"
    )]
    NoAsking,
    /// A command that a connection of RESP2 cannot send while it is subscribed.
    #[error(
        "ERR Can't execute '{0}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT are \
         allowed in this context"
    )]
    Subscribed(&'static str),
    /// SUBSCRIBE to a channel that is none of Sentinel's.
    #[error("ERR no such channel: this server has only those of Sentinel, as +switch-master")]
    NoChannel,
    /// SUBSCRIBE at a server of no cluster.
    #[error("ERR a server of no cluster has no channels")]
    NoChannels,
    /// PSUBSCRIBE to too many patterns, or to one that is too long to keep.
    #[error(
        "ERR a connection subscribes to at most {MAX_SUBSCRIBED_PATTERNS} patterns of at most \
         {MAX_SUBSCRIBED_PATTERN_BYTES} bytes"
    )]
    TooManySubscribed,
    /// A master that Sentinel's clients ask for by a name that no group has.
    #[error("ERR No such master with that name")]
    NoMaster,
    /// Unknown options, or options that exclude each other.
    #[error("ERR syntax error")]
    Syntax,
    /// An argument is not a 64-bit integer.
    #[error("ERR value is not an integer or out of range")]
    NotAnInteger,
    /// An argument is no number.
    #[error("ERR value is not a valid float")]
    NotAFloat,
    /// An increment that is infinite.
    #[error("ERR value is NaN or Infinity")]
    Infinite,
    /// A count that cannot be negated.
    #[error("ERR value is out of range, value must between {} and {}", -i64::MAX, i64::MAX)]
    NotInLongRange,
    /// A count below zero, or none.
    #[error("ERR value is out of range, must be positive")]
    NotPositive,
    /// A number of keys below 1, or none.
    #[error("ERR numkeys should be greater than 0")]
    KeyCount,
    /// LMPOP with a count below 1.
    #[error("ERR count should be greater than 0")]
    PopCount,
    /// LPOS with rank 0.
    #[error(
        "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use \
         negative to start from the end of the list"
    )]
    ZeroRank,
    /// LPOS with a count below zero.
    #[error("ERR COUNT can't be negative")]
    NegativeCount,
    /// LPOS with a length below zero.
    #[error("ERR MAXLEN can't be negative")]
    NegativeMaxLength,
    /// A count whose double is not a 64-bit integer.
    #[error("ERR value is out of range")]
    CountOutOfRange,
    /// A number of keys that are not there.
    #[error("ERR Number of keys can't be greater than number of args")]
    MoreKeysThanArguments,
    /// A limit below zero, or none.
    #[error("ERR LIMIT can't be negative")]
    NegativeLimit,
    /// A glob pattern beyond the limit.
    #[error("ERR pattern is longer than {MAX_PATTERN_BYTES} bytes")]
    PatternTooLong,
    /// A scan's cursor that is none.
    #[error("ERR invalid cursor")]
    Cursor,
    /// An argument is not a 32-bit integer.
    #[error("ERR value is out of range, value must between {} and {}", i32::MIN, i32::MAX)]
    OutOfRange,
    /// An expiry that is zero, negative or too far away.
    #[error("ERR invalid expire time in '{0}' command")]
    InvalidExpiry(&'static str),
    /// DECRBY by the smallest integer, which cannot be negated.
    #[error("ERR decrement would overflow")]
    DecrementOverflow,
    /// SETRANGE before the first byte.
    #[error("ERR offset is out of range")]
    Offset,
    /// An offset that no bit can have.
    #[error("ERR bit offset is not an integer or out of range")]
    BitOffset,
    /// SETBIT to something other than 0 and 1.
    #[error("ERR bit is not an integer or out of range")]
    Bit,
    /// APPEND or SETRANGE of more than a value can hold. (The limit is
    /// [`MAX_VALUE_BYTES`]; the words are those of Redis.)
    #[error("ERR string exceeds maximum allowed size (proto-max-bulk-len)")]
    StringTooLong,
    /// EXPIRE with NX and another condition.
    #[error("ERR NX and XX, GT or LT options at the same time are not compatible")]
    ConditionNx,
    /// EXPIRE with GT and LT.
    #[error("ERR GT and LT options at the same time are not compatible")]
    ConditionGtLt,
    /// EXPIRE with an unknown option.
    #[error("ERR Unsupported option {0}")]
    UnsupportedOption(String),
    /// COPY or MOVE of a key to itself.
    #[error("ERR source and destination objects are the same")]
    SameObject,
    /// No such database.
    #[error("ERR DB index is out of range")]
    DatabaseIndex,
    /// HELLO with a version other than 2 and 3.
    #[error("NOPROTO unsupported protocol version")]
    ProtocolVersion,
    /// HELLO with something that is not a version.
    #[error("ERR Protocol version is not an integer or out of range")]
    ProtocolVersionNumber,
    /// HELLO with an unknown or unfinished option.
    #[error("ERR Syntax error in HELLO option '{0}'")]
    HelloOption(String),
    /// For sessions: HELLO with wrong credentials in AUTH.
    #[error("WRONGPASS invalid username-password pair or user is disabled.")]
    WrongPassword,
    /// AUTH as a user as whom enough are logged in.
    #[error("ERR max number of logins of this user reached")]
    TooManyLogins,
    /// A command of a connection that is not logged in.
    #[error("NOAUTH Authentication required.")]
    NotLoggedIn,
    /// HELLO of such a connection, without AUTH.
    #[error(
        "NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO AUTH \
         <user> <pass> option can be used to authenticate the client and select the RESP protocol \
         version at the same time"
    )]
    HelloNotLoggedIn,
    /// AUTH with a password alone, where none is needed.
    #[error(
        "ERR AUTH <password> called without any password configured for the default user. Are you \
         sure your configuration is correct?"
    )]
    NoPasswordNeeded,
    /// This server has no users.
    #[error("ERR no users are kept here")]
    NoUsers,
    /// The user may not do this.
    #[error("NOPERM {0}")]
    NoPermission(String),
    /// SORT with a pattern of keys, by a user that may not read all keys.
    #[error("ERR {0} option of SORT denied due to insufficient ACL permissions.")]
    SortOption(&'static str),
    /// CLIENT SETNAME with bytes that a log line could not hold.
    #[error("ERR Client names cannot contain spaces, newlines or special characters.")]
    ClientName,
    /// CLIENT SETINFO with such bytes.
    #[error("ERR {0} cannot contain spaces, newlines or special characters.")]
    ClientAttribute(&'static str),
    /// CLIENT SETNAME, CLIENT SETINFO or HELLO SETNAME of more than
    /// [`RESP_MAX_CLIENT_NAME_BYTES`].
    #[error("ERR {0} is longer than {RESP_MAX_CLIENT_NAME_BYTES} bytes")]
    ClientNameTooLong(&'static str),
    /// CLIENT SETINFO with an unknown attribute.
    #[error("ERR Unrecognized option '{0}'")]
    ClientOption(String),
    /// A key above [`MAX_KEY_BYTES`].
    #[error("ERR key is longer than {MAX_KEY_BYTES} bytes")]
    KeyTooLong,
    /// A value above [`MAX_VALUE_BYTES`].
    #[error("ERR value is longer than {MAX_VALUE_BYTES} bytes")]
    ValueTooLong,
    /// COMMAND INFO or DOCS with too many names.
    #[error("ERR more than {MAX_COMMAND_NAMES} command names")]
    TooManyNames,
    /// CONFIG GET with too many patterns.
    #[error("ERR more than {MAX_CONFIG_PATTERNS} patterns")]
    TooManyPatterns,
    /// COMMAND GETKEYS of an unknown command.
    #[error("ERR Invalid command specified")]
    InvalidCommand,
    /// COMMAND GETKEYS with too few or too many arguments for that command.
    #[error("ERR Invalid number of arguments specified for command")]
    InvalidCommandArity,
    /// COMMAND GETKEYS of a command without keys.
    #[error("ERR The command has no key arguments")]
    NoKeys,
    /// A text that is no geometry; why.
    #[error("ERR {0}")]
    Geometry(String),
    /// An argument, which is named, is no number.
    #[error("ERR {0} is not a number")]
    NotANumber(&'static str),
    /// An argument is infinite, or NaN, or too large for 64 bits.
    #[error("ERR {0} is not finite")]
    NotFinite(&'static str),
    /// An argument is below zero.
    #[error("ERR {0} is negative")]
    Negative(&'static str),
    /// A rectangle's minimum above its maximum.
    #[error("ERR {0} is greater than {1}")]
    Inverted(&'static str, &'static str),
    /// A key of a tree, or a value there, above what any tree allows.
    #[error("ERR {0} of a tree is longer than {1} bytes")]
    TreePartTooLong(&'static str, usize),
    /// KEYBYTES of a tree whose keys are integers.
    #[error("ERR keys that are INTEGERS have {0} bytes: KEYBYTES may only say so")]
    IntegerKeyBytes(usize),
    /// An argument is no integer of its range.
    #[error("ERR {name} is not an integer from {from} to {to}")]
    NotInRange {
        /// The argument.
        name: &'static str,
        /// The least that it may be.
        from: i64,
        /// The most.
        to: i64,
    },
    /// An object's data above [`MAX_OBJECT_BYTES`].
    #[error("ERR DATA is longer than {MAX_OBJECT_BYTES} bytes")]
    DataTooLong,
    /// An object's id that is none.
    #[error("ERR id is empty or longer than {MAX_OBJECT_ID_BYTES} bytes")]
    ObjectId,
    /// An object's fields beyond [`MAX_FIELDS`] or [`MAX_FIELDS_BYTES`].
    #[error("ERR more than {MAX_FIELDS} fields, or more than {MAX_FIELDS_BYTES} bytes of them")]
    TooManyFields,
    /// More than [`MAX_COMMAND_ITEMS`] names and values.
    #[error("ERR more than {MAX_COMMAND_ITEMS} names and values in one command: use several")]
    TooManyItems,
    /// More than [`MAX_COMMAND_MEMBERS`] members of a sorted set.
    #[error("ERR more than {MAX_COMMAND_MEMBERS} members in one command: use several")]
    TooManyMembers,
    /// A member of a sorted set above [`MAX_SORTED_MEMBER_BYTES`].
    #[error("ERR member is longer than {MAX_SORTED_MEMBER_BYTES} bytes")]
    MemberTooLong,
    /// ZADD with NX and XX.
    #[error("ERR XX and NX options at the same time are not compatible")]
    NewAndOld,
    /// ZADD with two of GT, LT and NX.
    #[error("ERR GT, LT, and/or NX options at the same time are not compatible")]
    Comparisons,
    /// ZADD with INCR and several members.
    #[error("ERR INCR option supports a single increment-element pair")]
    SeveralIncrements,
    /// A bound of a range of scores that is no number.
    #[error("ERR min or max is not a float")]
    ScoreBound,
    /// A bound of a range of members without the sign that says what it is.
    #[error("ERR min or max not valid string range item")]
    LexBound,
    /// ZRANGE with LIMIT, by indexes.
    #[error(
        "ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX"
    )]
    LimitByIndex,
    /// ZRANGE with WITHSCORES, by members.
    #[error("ERR syntax error, WITHSCORES not supported in combination with BYLEX")]
    ScoresByLex,
    /// ZUNION and its kin without keys.
    #[error("ERR at least 1 input key is needed for '{0}' command")]
    NoInputKey(&'static str),
    /// More than [`MAX_WAITED_KEYS`] keys.
    #[error("ERR more than {MAX_WAITED_KEYS} keys to wait for in one command: use several")]
    TooManyWaitedKeys,
    /// An error whose text is in the command's own file.
    #[error("{0}")]
    Own(Cow<'static, str>),
}

impl CommandError {
    /// Appends the reply.
    pub fn write(&self, out: &mut Vec<u8>) {
        encode::error(out, &self.to_string());
    }

    /// The error for a name that is not in the table.
    pub(crate) fn unknown_command(words: Words<'_>) -> Self {
        let mut beginning = String::new();
        let mut quoted = 0;
        for index in 1..words.len() {
            if quoted >= EXCERPT_BYTES {
                break;
            }
            let argument = cut(words.get(index), EXCERPT_BYTES - quoted);
            quoted += argument.len() + 3;
            beginning.push('\'');
            beginning.push_str(&clean(argument));
            beginning.push_str("' ");
        }
        Self::UnknownCommand { name: excerpt(words.get(0)), beginning }
    }
}

/// A peer's own word as an error may repeat it: up to a NUL and at most 128 bytes, as Redis; line
/// ends become spaces, and bytes that are not UTF-8 become U+FFFD, so that a reply is always text.
pub(crate) fn excerpt(word: &[u8]) -> String {
    clean(cut(word, EXCERPT_BYTES))
}

fn cut(word: &[u8], most: usize) -> &[u8] {
    let word = &word[..word.len().min(most)];
    &word[..word.iter().position(|&byte| byte == 0).unwrap_or(word.len())]
}

/// A key that is no integer, where all keys are.
pub(crate) const KEYS_ARE_INTEGERS: &str =
    "ERR keys of this tree are integers from 0 to 18446744073709551615, in decimal";

fn clean(word: &[u8]) -> String {
    String::from_utf8_lossy(word).replace(['\r', '\n'], " ")
}

/// The error reply for a shard's status; `None` if the status is no error.
/// `command` is the name of the command that was asked, in lower case.
pub fn status_error(status: Status, command: &str) -> Option<Cow<'static, str>> {
    Some(match status {
        Status::Ok | Status::NotFound | Status::NotDone => return None,
        Status::NotAnInteger => "ERR value is not an integer or out of range".into(),
        Status::Overflow => "ERR increment or decrement would overflow".into(),
        Status::NotANumber => "ERR resulting score is not a number (NaN)".into(),
        Status::OutOfMemory => "OOM command not allowed when used memory > 'maxmemory'.".into(),
        // NeedsBuffer is for rings only.
        Status::TooLarge | Status::NeedsBuffer => too_large(command),
        // The others never come here: for rings, or a step of many.
        Status::Malformed
        | Status::AskOwner
        | Status::OtherLoad
        | Status::Stalled
        | Status::InPieces => "ERR internal error: the shard did not accept the request".into(),
        Status::InvalidExpiry => format!("ERR invalid expire time in '{command}' command").into(),
        Status::NoTree => "ERR no such tree: make it with RTREE.CREATE, or add an object".into(),
        Status::TryAgain => {
            "TRYAGAIN the key is being renamed, copied or moved, or too many keys are".into()
        }
        Status::Outrun => {
            "ERR the value changed too much while it was read: read it again, or in smaller parts"
                .into()
        }
        Status::BadRectangle => "ERR a rectangle needs finite numbers, minima first".into(),
        Status::BadGeometry => "ERR not a geometry".into(),
        Status::BadCapacity => {
            format!("ERR a node has room for {MIN_NODE_ENTRIES} to {MAX_NODE_ENTRIES} entries")
                .into()
        }
        Status::NotEmpty => "ERR the tree is not empty: only an empty one can be built".into(),
        Status::TwiceGiven => "ERR two of the objects to build of have one id".into(),
        Status::WrongType => {
            "WRONGTYPE Operation against a key holding the wrong kind of value".into()
        }
        Status::NotKept => "MISCONF The disk of the log takes nothing: nothing was changed, and \
             changes are refused until it does. INFO persistence says why."
            .into(),
        Status::TooFewReplicas => "NOREPLICAS Not enough good replicas to write.".into(),
        Status::NothingKept => CommandError::NothingKept.to_string().into(),
        // The code of Redis in this case; its text speaks of a blocking operation.
        Status::RoleChanged => "UNBLOCKED the server became a replica before it could answer: \
             whether a change outlives that is not known"
            .into(),
        Status::Unblocked => "UNBLOCKED client unblocked via CLIENT UNBLOCK".into(),
        Status::WaitEnded => "UNBLOCKED force unblock from blocking operation, instance state \
             changed (master -> replica?)"
            .into(),
        // Rights are looked at before a shard is asked.
        Status::NoPermission => "NOPERM this user has no permissions to run this command".into(),
        Status::Refused => "ERR the model of documents refuses it".into(),
        Status::Fenced => CommandError::Fenced.to_string().into(),
        Status::ReadOnly => CommandError::ReadOnly.to_string().into(),
        Status::OtherGroup => "MOVED the key belongs to another group of the cluster".into(),
        // Sessions refuse such requests before a shard gets them.
        Status::NoReads | Status::Copying => {
            "REPLICA this server is a replica and answers no reads now".into()
        }
    })
}

/// The error reply to a request or a result beyond a limit.
fn too_large(command: &str) -> Cow<'static, str> {
    match command {
        "setbit" => CommandError::BitOffset.to_string().into(),
        "append" | "setrange" => CommandError::StringTooLong.to_string().into(),
        "geosearch" => format!(
            "ERR more than {MAX_REPLY_BYTES} bytes of members found: ask for a smaller area"
        )
        .into(),
        "keys" => format!(
            "ERR more than {MAX_REPLY_BYTES} bytes of keys found: use SCAN, or a pattern that \
             fewer keys match"
        )
        .into(),
        "rtree.search" => format!(
            "ERR more than {} objects found: ask for a smaller window, or with LIMIT",
            MAX_REPLY_BYTES / ENTRY_BYTES
        )
        .into(),
        _ => format!(
            "ERR key is longer than {MAX_KEY_BYTES} bytes or value is longer than \
             {MAX_VALUE_BYTES} bytes"
        )
        .into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses() {
        assert_eq!(status_error(Status::NotFound, "get"), None);
        assert_eq!(
            status_error(Status::InvalidExpiry, "set").unwrap(),
            "ERR invalid expire time in 'set' command"
        );
        assert_eq!(
            status_error(Status::OutOfMemory, "set").unwrap(),
            "OOM command not allowed when used memory > 'maxmemory'."
        );
        for (command, text) in [
            ("append", "ERR string exceeds maximum allowed size (proto-max-bulk-len)"),
            ("setrange", "ERR string exceeds maximum allowed size (proto-max-bulk-len)"),
            ("setbit", "ERR bit offset is not an integer or out of range"),
            (
                "keys",
                "ERR more than 67108864 bytes of keys found: use SCAN, or a pattern that fewer \
                 keys match",
            ),
        ] {
            assert_eq!(status_error(Status::TooLarge, command).unwrap(), text);
        }
        for number in 0..=Status::NoPermission as u8 {
            let status = Status::from_number(number).unwrap();
            assert_eq!(status_error(status, "x").is_some(), number > 2);
        }
    }

    #[test]
    fn excerpts_are_cut_and_clean() {
        assert_eq!(excerpt(b"fo\r\no\0x"), "fo  o");
        assert_eq!(excerpt(&[b'x'; 300]).len(), 128);
        assert_eq!(excerpt(b"a\xffb"), "a\u{fffd}b");
    }
}
