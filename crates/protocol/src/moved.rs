//! Whole keys in messages: lists of a scan, and a key's content.
//!
//! ```text
//! scanned keys   for each: kind 1 | key_bytes 4 | key
//! dumped         kind 1 | 0 7 | expires_at 8 | dump 8 | the record's value; of an
//!                object of parts what an empty one is made with
//! step of load   flags                            value
//!   begin        0 | replaces << 2                dumped
//!   piece        1                                the type's own
//!   enter        2 | replaces << 2                -
//!   enter, move  2 | replaces << 2 | 8 |          the key that goes
//!                its database << 4
//!   drop         3                                -
//!   make         3 | 1 << 4                       dumped
//!   fill         3 | 2 << 4                       the type's own
//!   filled       3 | 3 << 4                       -
//! ```

use crate::message::Status;
use remora_layout::database::Database;
use remora_layout::kind::Kind;
use remora_layout::limits::MAX_KEY_BYTES;
use remora_layout::record::MAX_EXPIRES_AT_MS;

/// Bytes of a key's content before its value.
const DUMP_HEADER_BYTES: usize = 24;
/// Bytes of a scanned key before the key.
const SCANNED_HEADER_BYTES: usize = 5;

/// The keys that a step of a scan has found.
#[derive(Clone, Copy, Debug)]
pub struct ScannedKeys<'a>(&'a [u8]);

impl<'a> ScannedKeys<'a> {
    /// The keys of a reply to a scan.
    pub fn new(list: &'a [u8]) -> Self {
        Self(list)
    }

    /// Appends a key to such a list.
    pub fn push(list: &mut Vec<u8>, kind: Kind, key: &[u8]) {
        list.push(kind.0);
        list.extend_from_slice(&(key.len() as u32).to_le_bytes());
        list.extend_from_slice(key);
    }
}

impl<'a> Iterator for ScannedKeys<'a> {
    /// A key, and its record's kind.
    type Item = (Kind, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (header, rest) = self.0.split_first_chunk::<SCANNED_HEADER_BYTES>()?;
        let [kind, length @ ..] = *header;
        let (key, rest) = rest.split_at_checked(u32::from_le_bytes(length) as usize)?;
        self.0 = rest;
        Some((Kind(kind), key))
    }
}

/// A key's whole content: the kind of its record, its expiry, and its value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Dumped<'a> {
    /// The record's kind; no part's.
    pub kind: Kind,
    /// Unix ms; 0 for never.
    pub expires_at_ms: u64,
    /// The dump's number in its shard; 0 if the key is not held.
    pub dump: u64,
    /// The record's value; for an object of parts the content from which an empty object is made.
    pub value: &'a [u8],
    /// All of it, as it is encoded.
    bytes: &'a [u8],
}

impl<'a> Dumped<'a> {
    /// A key's content from its encoding; `None` if the bytes are invalid.
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        let (header, value) = bytes.split_first_chunk::<DUMP_HEADER_BYTES>()?;
        let word = |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("eight"));
        let kind = Kind(u8::try_from(word(0)).ok()?);
        let (expires_at_ms, dump) = (word(8), word(16));
        let makes_sense = !kind.is_part() && expires_at_ms <= MAX_EXPIRES_AT_MS;
        makes_sense.then_some(Self { kind, expires_at_ms, dump, value, bytes })
    }

    /// Appends a key's content.
    pub fn push(out: &mut Vec<u8>, kind: Kind, expires_at_ms: u64, dump: u64, value: &[u8]) {
        for word in [kind.0.into(), expires_at_ms, dump] {
            out.extend_from_slice(&u64::to_le_bytes(word));
        }
        out.extend_from_slice(value);
    }

    /// Its encoding.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

/// One step of making an object of parts from a dump.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LoadStep<'a> {
    /// Makes an empty object aside; `number` is that of the load. `NotDone`: there is
    /// a key of that name, and it may not go.
    Begin {
        /// Of a root record.
        dumped: Dumped<'a>,
        /// Another key of that name is replaced in the end.
        replaces: bool,
    },
    /// Adds one piece of a dump. A failure gives the load up.
    Piece(&'a [u8]),
    /// Lets the key lead to the object; `number` is 1 if it was done, 0 if there is a
    /// key of that name. The load is over.
    Enter {
        /// Another key of that name is replaced.
        replaces: bool,
        /// The source key of the dump, in this shard, which is removed in the same turn. `NotFound`
        /// if it was removed before.
        from: Option<Source<'a>>,
    },
    /// Gives the load up.
    Drop,
    /// Of a snapshot only: lets the key lead to an empty object, which is then filled. It is of no
    /// load.
    Make(Dumped<'a>),
    /// Of a snapshot only: adds one piece to the object that the key leads to.
    Fill(&'a [u8]),
    /// Of a snapshot only: the key's object is whole.
    Filled,
}

/// A key that is removed once another key has its value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Source<'a> {
    /// The key.
    pub key: &'a [u8],
    /// Its database.
    pub database: Database,
}

const STEP: u8 = 3;
const REPLACES: u8 = 4;
const MOVES: u8 = 8;
const DATABASE_SHIFT: u8 = 4;
/// Steps of a snapshot: the number behind step 3.
const SNAPSHOT_SHIFT: u8 = 4;
const MAKE: u8 = 3 | 1 << SNAPSHOT_SHIFT;
const FILL: u8 = 3 | 2 << SNAPSHOT_SHIFT;
const FILLED: u8 = 3 | 3 << SNAPSHOT_SHIFT;

impl<'a> LoadStep<'a> {
    /// Whether it occurs in snapshots only.
    pub fn is_of_snapshot(&self) -> bool {
        matches!(self, Self::Make(_) | Self::Fill(_) | Self::Filled)
    }

    /// Flags and value.
    pub(crate) fn encode(&self) -> (u8, &'a [u8]) {
        let replacing = |replaces: bool| if replaces { REPLACES } else { 0 };
        match *self {
            Self::Begin { dumped, replaces } => (replacing(replaces), dumped.bytes()),
            Self::Piece(piece) => (1, piece),
            Self::Enter { replaces, from: None } => (2 | replacing(replaces), &[]),
            Self::Enter { replaces, from: Some(Source { key, database }) } => {
                (2 | replacing(replaces) | MOVES | database.number() << DATABASE_SHIFT, key)
            }
            Self::Drop => (3, &[]),
            Self::Make(dumped) => (MAKE, dumped.bytes()),
            Self::Fill(piece) => (FILL, piece),
            Self::Filled => (FILLED, &[]),
        }
    }

    /// The step that flags and value encode.
    pub(crate) fn decode(flags: u8, value: &'a [u8]) -> Result<Self, Status> {
        let replaces = flags & REPLACES != 0;
        let of_root = || {
            let dumped = Dumped::parse(value).filter(|dumped| dumped.kind.is_root());
            dumped.ok_or(Status::Malformed)
        };
        match flags {
            MAKE => return Ok(Self::Make(of_root()?)),
            FILL if !value.is_empty() => return Ok(Self::Fill(value)),
            FILLED if value.is_empty() => return Ok(Self::Filled),
            _ => {}
        }
        let step = match (flags & STEP, flags & !(STEP | REPLACES)) {
            (0, 0) => Self::Begin { dumped: of_root()?, replaces },
            (1, 0) if !replaces => Self::Piece(value),
            (2, 0) if value.is_empty() => Self::Enter { replaces, from: None },
            (2, from) if from & MOVES != 0 => {
                if value.len() > MAX_KEY_BYTES {
                    return Err(Status::TooLarge);
                }
                let database = Database::new((from >> DATABASE_SHIFT).into());
                let database = database.ok_or(Status::Malformed)?;
                Self::Enter { replaces, from: Some(Source { key: value, database }) }
            }
            (3, 0) if !replaces && value.is_empty() => Self::Drop,
            _ => return Err(Status::Malformed),
        };
        Ok(step)
    }
}
