//! The server's steps to give a key to another one, question by question.

use remora_engine::moving::{self, Moving, Next};
use remora_layout::database::Database;
use remora_protocol::message::Status;
use remora_protocol::{Command, Reply};

/// A key, its database, and which shard has it.
#[derive(Clone, Copy)]
pub struct KeyRef<'a> {
    pub shard: usize,
    pub database: Database,
    pub key: &'a [u8],
}

impl KeyRef<'_> {
    fn owned(&self) -> moving::KeyAt {
        let Self { shard, database, key } = *self;
        moving::KeyAt { key: key.into(), database, shard }
    }
}

/// How: as RENAME, RENAMENX, COPY, MOVE.
#[derive(Clone, Copy)]
pub struct How {
    pub replaces: bool,
    pub keeps: bool,
}

pub type Answer = (Status, i64, Option<Vec<u8>>);
type Ask<'a> = &'a mut dyn FnMut(usize, Database, &Command<'_>) -> Answer;

/// Gives a key's value to another key; the giver stops after this many pieces, or, if it is none,
/// before it removes a key. Returns status and number of the reply.
pub fn give_some(
    ask: Ask<'_>,
    from: KeyRef<'_>,
    to: KeyRef<'_>,
    How { replaces, keeps }: How,
    most_pieces: usize,
) -> (Status, i64) {
    let mut moving = Moving::new(from.owned(), to.owned(), moving::How { replaces, keeps });
    let (mut shard, first) = moving.first();
    let (mut bytes, mut pieces) = (Vec::new(), 0);
    first.encode_within(from.database, 0, &mut bytes);
    loop {
        let (database, command, _) = Command::decode_within(&bytes).unwrap();
        let is_gone = match command {
            Command::DumpPart { .. } => pieces == most_pieces,
            Command::DelDumped { .. } => most_pieces == 0,
            _ => false,
        };
        if is_gone {
            return (Status::NotDone, 0);
        }
        pieces += matches!(command, Command::DumpPart { .. }) as usize;
        let (status, number, value) = ask(shard, database, &command);
        let reply = Reply { number, value: value.as_deref(), ..Reply::status(status) };
        match moving.next(&reply) {
            Next::Done(status, number) => return (status, number),
            Next::Ask(next, command) => (shard, bytes) = (next, command),
        }
    }
}
