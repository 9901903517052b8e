//! Stores a command's result under a key, in pieces: one question to the key's shard after the
//! other (docs/decisions/0036). It does not ask the shard itself.
//!
//! Invariant: the key keeps its old value until the new object is complete, and keeps it if
//! anything fails. Each piece, and each other step, is one bounded turn of the shard.

use crate::moving::{KeyAt, Next};
use remora_layout::kind::Kind;
use remora_layout::limits::{DUMP_PIECE_BYTES, DUMP_PIECE_PARTS};
use remora_protocol::message::Status;
use remora_protocol::{Command, Dumped, LoadStep, Reply};

/// A key that gets an object.
///
/// ```
/// use remora_engine::moving::{Next, KeyAt};
/// use remora_engine::storing::{Parts, Storing};
/// use remora_layout::{database::Database, kind::Kind};
/// use remora_protocol::message::Status;
/// use remora_protocol::{Command, Reply};
///
/// // Parts of this type take eight bytes each.
/// let parts = Parts { kind: Kind(9), list: vec![0; 80], first_bytes: |_| 8, begin: |_, _| {} };
/// let to = KeyAt { key: (*b"key").into(), database: Database::default(), shard: 0 };
/// let mut storing = Storing::new(to, parts);
/// let Next::Ask(0, begin) = storing.first() else { panic!("the shard is asked") };
/// assert!(matches!(Command::decode_within(&begin), Ok((_, Command::Load { .. }, _))));
/// // The shard has no room for a load.
/// let refused = storing.next(&Reply::status(Status::OutOfMemory));
/// assert_eq!(refused, Next::Done(Status::OutOfMemory, 0));
/// ```
#[derive(Debug)]
pub struct Storing {
    to: KeyAt,
    parts: Parts,
    /// Start of the next piece.
    at: usize,
    given: i64,
    /// The load's number.
    load: u64,
    step: Step,
}

/// The content of a new object.
#[derive(Debug)]
pub struct Parts {
    /// The object's type; without content the object is empty.
    pub kind: Kind,
    /// The parts, as the type's pieces of a dump have them; none twice.
    pub list: Vec<u8>,
    /// Bytes of the first part in such a list that is not empty: at least one.
    pub first_bytes: fn(&[u8]) -> usize,
    /// Appends what stands in a piece before its parts; so many parts came in the pieces before.
    pub begin: fn(u64, &mut Vec<u8>),
}

/// The last question.
#[derive(Clone, Copy, Debug)]
enum Step {
    Begin,
    Fill,
    Enter,
    /// The load is given up: with this status.
    Drop(Status),
}

impl Storing {
    /// A key is to have these parts, and nothing else.
    pub fn new(to: KeyAt, parts: Parts) -> Self {
        Self { to, parts, at: 0, given: 0, load: 0, step: Step::Begin }
    }

    /// The first question.
    pub fn first(&self) -> Next {
        let mut bytes = Vec::new();
        Dumped::push(&mut bytes, self.parts.kind, 0, 0, &[]);
        let dumped = Dumped::parse(&bytes).expect("just made");
        self.ask(LoadStep::Begin { dumped, replaces: true })
    }

    /// The next step after the answer to the last question. The number of the final reply counts
    /// the parts.
    pub fn next(&mut self, reply: &Reply<'_>) -> Next {
        let Reply { status, number, .. } = *reply;
        match self.step {
            Step::Drop(status) => Next::Done(status, 0),
            Step::Begin if status != Status::Ok => Next::Done(status, 0),
            // Its shard may have given the load up; else it is to.
            _ if status != Status::Ok => {
                self.step = Step::Drop(status);
                self.ask(LoadStep::Drop)
            }
            Step::Begin => {
                self.load = number as u64;
                self.fill()
            }
            Step::Fill if self.at < self.parts.list.len() => self.fill(),
            Step::Fill => {
                self.step = Step::Enter;
                self.ask(LoadStep::Enter { replaces: true, from: None })
            }
            Step::Enter => Next::Done(Status::Ok, self.given),
        }
    }

    fn fill(&mut self) -> Next {
        self.step = Step::Fill;
        let (from, mut bytes, mut piece) = (self.at, 0, Vec::new());
        (self.parts.begin)(self.given as u64, &mut piece);
        for _ in 0..DUMP_PIECE_PARTS {
            let rest = &self.parts.list[from + bytes..];
            if rest.is_empty() || bytes >= DUMP_PIECE_BYTES {
                break;
            }
            bytes += (self.parts.first_bytes)(rest).clamp(1, rest.len());
            self.given += 1;
        }
        self.at += bytes;
        piece.extend_from_slice(&self.parts.list[from..self.at]);
        self.ask(LoadStep::Piece(&piece))
    }

    fn ask(&self, step: LoadStep<'_>) -> Next {
        self.to.ask(&Command::Load { key: &self.to.key, load: self.load, step })
    }
}
