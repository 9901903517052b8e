use super::*;
use remora_layout::database::Database;
use remora_protocol::list::{ListCommand, Side};

/// A key's last byte says its shard.
fn shard_of(key: &[u8]) -> usize {
    usize::from(key[key.len() - 1] - b'0')
}

fn command(key: &[u8], command: ListCommand<'_>) -> Box<[u8]> {
    let mut bytes = Vec::new();
    let command = Command::Of { key, request: command.request() };
    command.encode_within(Database::ZERO, 0, &mut bytes);
    bytes.into()
}

fn pop(key: &[u8]) -> Box<[u8]> {
    command(key, ListCommand::Pop { side: Side::Left, count: 1, fits_frame: false })
}

fn begin(
    of: (&mut RingWaits, &mut Waits),
    (place, id): RingRequest,
    commands: Vec<Box<[u8]>>,
) -> Claim {
    let claim = Claim::default();
    let order = WaitOrder::Begin { id, claim: claim.clone(), commands, until_ms: 0 };
    of.0.carry_out(of.1, (place, order), shard_of);
    claim
}

fn job(waits: &mut Waits) -> (usize, Job) {
    let (shard, job) = waits.pop_job().expect("a shard is asked");
    assert_eq!(shard, job.token.shard);
    (shard, job)
}

fn replied(element: &[u8]) -> OwnedReply {
    OwnedReply { value: Some(element.to_vec()), ..OwnedReply::status(Status::Ok) }
}

#[test]
fn the_shards_of_all_keys_are_asked_under_the_claim_of_the_session() {
    let (mut rings, mut waits) = (RingWaits::new(4), Waits::default());
    let keys = [&b"a1"[..], b"b1", b"c2", b"d1"];
    let claim = begin((&mut rings, &mut waits), (3, 9), keys.map(pop).into());
    for (shard, commands) in [(1, 2), (2, 1), (1, 1)] {
        let (at, Job { order, token, .. }) = job(&mut waits);
        let Order::WaitFor(wait) = order else { panic!("it waits") };
        assert_eq!((at, wait.commands.len(), wait.claim.is_taken()), (shard, commands, false));
        assert_eq!((token.home, token.connection, token.request), (4, 3, 9));
        let parked = Token { part: PARKED, ..token };
        assert!(rings.answered(&mut waits, parked, OwnedReply::status(Status::Ok)).is_none());
        if commands == 1 && shard == 1 {
            assert!(claim.take());
            assert!(wait.claim.is_taken(), "it is one claim");
        }
    }
    // The session has ended the wait: all shards hear of it.
    rings.carry_out(&mut waits, (3, WaitOrder::End(9)), shard_of);
    for shard in [1, 2] {
        let (at, job) = job(&mut waits);
        assert!(at == shard && matches!(job.order, Order::Withdraw));
    }
    assert!(waits.is_empty() && !waits.has_output());
}

#[test]
fn an_answer_that_comes_too_late_is_not_that_of_another_request() {
    let (mut rings, mut waits) = (RingWaits::new(0), Waits::default());
    let of = |rings: &mut RingWaits, waits: &mut Waits| {
        begin((rings, waits), (3, 9), vec![pop(b"a1"), pop(b"b2")]);
        job(waits).1.token
    };
    let old = of(&mut rings, &mut waits);
    rings.carry_out(&mut waits, (3, WaitOrder::End(9)), shard_of);
    assert!(matches!(job(&mut waits).1.order, Order::Withdraw));
    // The next one of the place has the same id.
    let new = of(&mut rings, &mut waits);
    assert!(rings.answered(&mut waits, old, replied(b"old")).is_none());
    let Some(((3, 9), Answered::Reply(served))) = rings.answered(&mut waits, new, replied(b"new"))
    else {
        panic!("an answer")
    };
    assert_eq!(served.value.as_deref(), Some(&b"new"[..]));
    assert!(is_of_rings(&new) && waits.is_empty());
}

#[test]
fn a_move_between_shards_waits_by_a_look_until_it_has_moved() {
    let (mut rings, mut waits) = (RingWaits::new(0), Waits::default());
    let to = |other| ListCommand::Move { from: Side::Right, to: Side::Left, other };
    // Within a shard it is one change.
    begin((&mut rings, &mut waits), (1, 1), vec![command(b"a1", to(b"b1"))]);
    let (_, Job { order: Order::WaitFor(wait), token, .. }) = job(&mut waits) else {
        panic!("it waits")
    };
    assert_eq!(wait.commands, [command(b"a1", to(b"b1"))]);
    rings.answered(&mut waits, token, replied(b"both")).expect("it is answered");
    let mut claim = begin((&mut rings, &mut waits), (1, 2), vec![command(b"a1", to(b"b2"))]);
    for round in 0..2 {
        let (1, Job { order: Order::WaitFor(wait), token, .. }) = job(&mut waits) else {
            panic!("it waits")
        };
        assert_eq!(wait.commands, [command(b"a1", ListCommand::Index { index: -1 })]);
        assert!(claim.take() && wait.claim.is_taken());
        let Some((at, Answered::Goes(1, rest))) =
            rings.answered(&mut waits, token, replied(b"seen"))
        else {
            panic!("it goes on")
        };
        assert!(at == (1, 2) && matches!(rest.order, Order::Joint(_)));
        if round == 0 {
            // Another client was faster.
            let nothing = OwnedReply::status(Status::NotFound);
            let Some((_, Answered::Again(again))) = rings.answered(&mut waits, rest.token, nothing)
            else {
                panic!("it waits again")
            };
            claim = again;
            continue;
        }
        let Some((_, Answered::Reply(served))) =
            rings.answered(&mut waits, rest.token, replied(b"x"))
        else {
            panic!("it has moved")
        };
        let mut pair = Vec::new();
        [&b"a1"[..], b"x"].iter().for_each(|item| Items::push(&mut pair, item));
        assert_eq!(served.value, Some(pair));
    }
    assert!(waits.is_empty() && !waits.has_output());
}
