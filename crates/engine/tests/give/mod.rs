//! What the server does to give a key to another one, question by question.

use remora_engine::command::{Command, Dumped, LoadStep, Source};
use remora_layout::database::Database;
use remora_layout::message::Status;

/// A key, its database, and which shard has it.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    pub shard: usize,
    pub database: Database,
    pub key: &'a [u8],
}

/// How: as RENAME, RENAMENX, COPY, MOVE.
#[derive(Clone, Copy)]
pub struct How {
    pub replaces: bool,
    pub keeps: bool,
}

pub type Answer = (Status, i64, Option<Vec<u8>>);
type Ask<'a> = &'a mut dyn FnMut(usize, Database, &Command<'_>) -> Answer;

fn put(ask: Ask<'_>, place: Place<'_>, command: &Command<'_>) -> Answer {
    ask(place.shard, place.database, command)
}

/// Gives what a key has to another one; the giver is gone after so many pieces. Status
/// and number of the reply.
pub fn give_some(
    ask: Ask<'_>,
    from: Place<'_>,
    to: Place<'_>,
    how: How,
    most_pieces: usize,
) -> (Status, i64) {
    let (key, How { replaces, keeps }) = (from.key, how);
    if from.shard == to.shard {
        let transfer =
            Command::Transfer { key, to: to.key, database: to.database, replaces, keeps };
        match put(ask, from, &transfer) {
            (Status::InPieces, ..) => {}
            (status, number, _) => return (status, number),
        }
    }
    let (status, _, bytes) = put(ask, from, &Command::Dump { key });
    let bytes = bytes.unwrap_or_default();
    match status {
        Status::InPieces => give_pieces(ask, (from, to), how, &bytes, most_pieces),
        Status::Ok => {
            let dumped = Dumped::parse(&bytes).unwrap();
            let (status, number, _) =
                put(ask, to, &Command::Restore { key: to.key, dumped, replaces });
            if status == Status::Ok && number == 1 && !keeps {
                let record = dumped.record;
                // Not if it was changed meanwhile.
                put(ask, from, &Command::DelRecord { key, record });
            }
            (status, number)
        }
        status => (status, 0),
    }
}

fn step_of<'a>(to: Place<'a>, load: u64, step: LoadStep<'a>) -> Command<'a> {
    Command::Load { key: to.key, load, step }
}

fn give_pieces(
    ask: Ask<'_>,
    (from, to): (Place<'_>, Place<'_>),
    How { replaces, keeps }: How,
    bytes: &[u8],
    most_pieces: usize,
) -> (Status, i64) {
    let key = from.key;
    let dumped = Dumped::parse(bytes).unwrap();
    let record = dumped.record;
    let end = |ask: Ask<'_>, answer| {
        assert_eq!(put(ask, from, &Command::EndDump { key, record }).0, Status::Ok);
        answer
    };
    let load = match put(ask, to, &step_of(to, 0, LoadStep::Begin { dumped, replaces })) {
        (Status::Ok, load, _) => load as u64,
        (Status::NotDone, ..) => return end(ask, (Status::Ok, 0)),
        (status, ..) => return end(ask, (status, 0)),
    };
    for _ in 0..most_pieces {
        let (status, more, piece) = put(ask, from, &Command::DumpPart { key, record });
        if status != Status::Ok {
            assert_eq!(put(ask, to, &step_of(to, load, LoadStep::Drop)).0, Status::Ok);
            return end(ask, (status, 0));
        }
        let (status, ..) = put(ask, to, &step_of(to, load, LoadStep::Piece(&piece.unwrap())));
        if status != Status::Ok {
            return end(ask, (status, 0));
        }
        if more == 0 {
            let within = from.shard == to.shard && !keeps;
            let source = within.then_some(Source { key, database: from.database });
            let enter = step_of(to, load, LoadStep::Enter { replaces, from: source });
            let (status, number, _) = put(ask, to, &enter);
            if status != Status::Ok || number == 0 || keeps {
                return end(ask, (status, number));
            }
            if !within {
                put(ask, from, &Command::DelRecord { key, record });
            }
            return (status, number);
        }
    }
    (Status::NotDone, 0)
}
