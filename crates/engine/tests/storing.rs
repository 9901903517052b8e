//! Members in pieces: a key has its old value, or all of the new one.

use crate::scored;
use remora_arena::{NoJournal, Owner};
use remora_engine::moving::{KeyAt, Next};
use remora_engine::storing::{Parts, Storing};
use remora_engine::{Now, Shard, ShardOptions};
use remora_layout::database::Database;
use remora_layout::kind::Kind;
use remora_layout::limits::{DUMP_PIECE_BYTES, DUMP_PIECE_PARTS};
use remora_protocol::Expiry;
use remora_protocol::message::Status;
use remora_protocol::sorted::{Scored, SortedCommand};
use remora_protocol::{Command, Condition, LoadStep, Reply};

const NOW: Now = Now { unix_ms: 1_700_000_000_000, since_start_s: 5 };
const KEY: &[u8] = b"stored";
const LONG_BYTES: usize = 10_000;

fn shard(bytes: usize) -> Shard {
    Shard::new(Owner::heap(bytes, NoJournal), ShardOptions::default())
}

/// So many members, each of about so many bytes.
fn list(members: usize, bytes: usize) -> Vec<u8> {
    let mut list = Vec::new();
    for at in 0..members {
        let member = format!("{at:0bytes$}");
        Scored::push(&mut list, at as f64, member.as_bytes());
    }
    list
}

fn storing(list: Vec<u8>) -> Storing {
    let first_bytes = |list: &[u8]| Scored::bytes_of(Scored::split_first(list).unwrap().1.len());
    let to = KeyAt { key: KEY.into(), database: Database::default(), shard: 0 };
    Storing::new(to, Parts { kind: Kind::SORTED_SET, list, first_bytes, begin: |_, _| {} })
}

fn ask(shard: &mut Shard, command: &Command<'_>) -> (Status, i64) {
    let hash = shard.hash_of(Database::default(), command);
    let reply = shard.execute(command, hash, NOW);
    (reply.status, reply.number)
}

fn sorted(shard: &mut Shard, command: SortedCommand<'_>) -> (Status, i64) {
    ask(shard, &Command::Of { key: KEY, request: command.request() })
}

/// Asks the shard each question, after `before` has looked at it.
fn carry_out(
    shard: &mut Shard,
    mut storing: Storing,
    mut before: impl FnMut(&mut Shard, &Command<'_>),
) -> (Status, i64) {
    let mut next = storing.first();
    loop {
        let bytes = match next {
            Next::Ask(0, bytes) => bytes,
            Next::Ask(..) => panic!("another shard"),
            Next::Done(status, number) => return (status, number),
        };
        let (_, command, _) = Command::decode_within(&bytes).unwrap();
        before(shard, &command);
        let (status, number) = ask(shard, &command);
        next = storing.next(&Reply { number, ..Reply::status(status) });
    }
}

#[test]
fn a_key_gets_all_members_at_once_and_in_bounded_steps() {
    for (members, bytes) in [(1, 5), (DUMP_PIECE_PARTS, 5), (20_000, 6), (300, LONG_BYTES)] {
        let mut shard = shard(256 << 20);
        let (condition, expiry) = (Condition::Always, Expiry::Never);
        let before = Command::Set { key: KEY, value: b"old", condition, expiry, get: false };
        assert_eq!(ask(&mut shard, &before).0, Status::Ok);
        let (mut pieces, mut given) = (0, 0);
        let done = carry_out(&mut shard, storing(list(members, bytes)), |shard, command| {
            let Command::Load { step, .. } = command else { panic!("{command:?}") };
            if let LoadStep::Piece(piece) = step {
                let members = Scored::parse(piece).unwrap().iter().count();
                assert!((1..=DUMP_PIECE_PARTS).contains(&members), "{members} members");
                assert!(piece.len() <= DUMP_PIECE_BYTES + LONG_BYTES + 64);
                (pieces, given) = (pieces + 1, given + members);
            }
            assert_eq!(ask(shard, &Command::Get { key: KEY }).0, Status::Ok, "it is the old one");
        });
        assert_eq!(done, (Status::Ok, members as i64));
        assert_eq!(given, members);
        assert!(pieces >= members.div_ceil(DUMP_PIECE_PARTS));
        assert_eq!(sorted(&mut shard, SortedCommand::Length), done);
        shard.audit().unwrap();

        // The same in one step is the same.
        let mut whole = self::shard(256 << 20);
        let list = list(members, bytes);
        assert_eq!(sorted(&mut whole, scored::store(&list)), done);
        assert_eq!(shard.digest(), whole.digest());
    }
}

#[test]
fn what_fails_leaves_the_key_and_nothing_else() {
    let mut shard = shard(4 << 20);
    let few = list(2_000, 5);
    assert_eq!(sorted(&mut shard, scored::store(&few)), (Status::Ok, 2_000));
    let before = (shard.digest(), shard.stats().sorted_sets);
    // There is no room.
    let done = carry_out(&mut shard, storing(list(200_000, 6)), |_, _| {});
    assert_eq!(done, (Status::OutOfMemory, 0));
    while shard.wants_ticks() {
        shard.tick(NOW);
        shard.release_some(NOW);
    }
    assert_eq!((shard.digest(), shard.stats().sorted_sets), before);

    // The key goes to another one meanwhile.
    let mut is_held = false;
    let done = carry_out(&mut shard, storing(list(1_000, 6)), |shard, command| {
        if let Command::Load { step: LoadStep::Enter { .. }, .. } = command {
            let dump = Command::Dump { key: KEY, holds: true };
            is_held = ask(shard, &dump).0 == Status::InPieces;
        }
    });
    assert!(is_held);
    assert_eq!(done, (Status::TryAgain, 0));
    assert_eq!(sorted(&mut shard, SortedCommand::Length), (Status::Ok, 2_000));
    shard.audit().unwrap();
}
