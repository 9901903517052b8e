//! Ordered trees whose addresses others hold: what is handed out, how long it is held, mending in
//! turns, and that none of it is data.

use remora_arena::{NoJournal, Owner};
use remora_engine::{Now, Shard, ShardOptions};
use remora_layout::btree::{InnerNode, KeyForm, LEVEL_INFO_WORDS, LevelInfo, NodeInfo};
use remora_layout::limits::{MAX_HELD_EPOCHS, MAX_HELD_TREES, MAX_HOLD_BYTES, MEND_TURN_TREES};
use remora_layout::node::NodeRef;
use remora_layout::packed::Field;
use remora_protocol::Command;
use remora_protocol::message::Status;
use remora_protocol::ordered::{
    OrderedCommand, OrderedHold, OrderedRange, OrderedSettings, inner_nodes_of, node_infos_of,
};
use std::ops::Bound;
use zerocopy::FromBytes;

const START: Now = Now { unix_ms: 1_700_000_000_000, since_start_s: 5 };
const KEY: &[u8] = b"tree";
const HOLD: OrderedHold =
    OrderedHold { epoch: 1, for_ms: 1_000, levels: 2, most_bytes: MAX_HOLD_BYTES, below: None };

fn at(ms: u64) -> Now {
    Now { unix_ms: START.unix_ms + ms, ..START }
}

/// A shard with a tree of so many integers.
fn shard(keys: u64) -> Shard {
    let options = ShardOptions { record_secret: 7, ..ShardOptions::default() };
    let mut shard = Shard::new(Owner::heap(8 << 20, NoJournal), options);
    let settings = OrderedSettings { fan_out: 4, ..OrderedSettings::of(KeyForm::Integers) };
    assert_eq!(ask(&mut shard, OrderedCommand::Create(settings), START).0, Status::Ok);
    (0..keys).for_each(|number| set(&mut shard, number << 10));
    shard
}

fn ask(shard: &mut Shard, command: OrderedCommand<'_>, now: Now) -> (Status, i64, Option<Vec<u8>>) {
    let command = Command::Of { key: KEY, request: command.request() };
    let reply = shard.execute(&command, shard.hash(KEY), now);
    (reply.status, reply.number, reply.value.map(<[u8]>::to_vec))
}

fn set(shard: &mut Shard, number: u64) {
    let value = Field { value: &number.to_le_bytes(), is_link: false };
    let key = number.to_string();
    let answer = ask(shard, OrderedCommand::Set { key: key.as_bytes(), value }, START);
    assert_eq!(answer.0, Status::Ok);
}

fn hold(shard: &mut Shard, hold: OrderedHold, now: Now) -> Vec<InnerNode> {
    let (status, number, value) = ask(shard, OrderedCommand::Hold(hold), now);
    assert_eq!(status, Status::Ok);
    let nodes = inner_nodes_of(&value.unwrap()).unwrap();
    assert_eq!(nodes.len() as i64, number);
    nodes
}

fn levels(shard: &mut Shard) -> Vec<LevelInfo> {
    let words = ask(shard, OrderedCommand::Levels, START).2.unwrap();
    let words = words.chunks(LEVEL_INFO_WORDS * 8);
    words.map(|words| LevelInfo::from_words(&FromBytes::read_from_bytes(words).unwrap())).collect()
}

fn deep(shard: &mut Shard) -> u64 {
    levels(shard).iter().map(|level| level.deep).sum()
}

fn listed(shard: &mut Shard, level: u8) -> Vec<NodeInfo> {
    let nodes = ask(shard, OrderedCommand::Nodes { level, limit: 1_000 }, START);
    let infos: Vec<NodeInfo> = node_infos_of(&nodes.2.unwrap()).collect();
    assert_eq!(infos.len() as i64, nodes.1);
    infos
}

/// A tick, and turns until nothing is left; gives the turns.
fn quiet(shard: &mut Shard, now: Now) -> usize {
    shard.tick(now);
    let turns = (0..10_000).take_while(|_| {
        let wants = shard.wants_release();
        shard.release_some(now);
        wants
    });
    turns.count()
}

#[test]
fn held_addresses_stay_until_their_time_and_the_depth_is_mended_in_turns() {
    let mut shard = shard(300);
    let nodes = hold(&mut shard, HOLD, START);
    let named: Vec<(NodeRef, u8)> = nodes
        .iter()
        .flat_map(|inner| inner.children.iter().map(|child| (child.at, inner.info.child_level())))
        .collect();
    let keys: u64 = nodes[0].children.iter().map(|child| child.keys).sum();
    assert_eq!((keys, nodes[0].info.keys), (300, 300));
    // Where one node ends its neighbour begins, and the first begins before all keys.
    assert_eq!((&nodes[0].low[..], nodes[0].high.as_ref()), (&b""[..], None));
    let last_sequence = shard.last_sequence();
    assert!(shard.wants_ticks(), "a time is to come");
    quiet(&mut shard, at(1));
    assert_eq!(shard.last_sequence(), last_sequence, "to hold is no change");
    for number in 0..300 {
        (1..8).for_each(|more| set(&mut shard, (number << 10) + more));
    }
    shard.audit().unwrap();
    let has_all = |shard: &mut Shard| {
        named
            .iter()
            .filter(|(held, level)| listed(shard, *level).iter().any(|of| of.at == *held))
            .count()
    };
    assert_eq!(has_all(&mut shard), named.len());
    assert!(deep(&mut shard) > 0);
    let digest = shard.digest();
    quiet(&mut shard, at(999));
    assert!(deep(&mut shard) > 0, "one ms too early");
    assert_eq!(has_all(&mut shard), named.len());
    shard.tick(at(1_000));
    assert!(deep(&mut shard) > 0, "a turn mends few nodes");
    let turns = quiet(&mut shard, at(1_000));
    assert!(turns > 3, "{turns} turns");
    assert_eq!(deep(&mut shard), 0);
    assert!(!shard.wants_ticks());
    shard.audit().unwrap();
    assert_eq!(shard.digest(), digest, "how a tree is laid out is no content");
}

#[test]
fn an_epoch_is_renewed_and_released() {
    let mut shard = shard(300);
    hold(&mut shard, HOLD, START);
    let renewal = OrderedHold { levels: 0, ..HOLD };
    assert_eq!(hold(&mut shard, renewal, at(900)), []);
    for number in 0..300 {
        (1..8).for_each(|more| set(&mut shard, (number << 10) + more));
    }
    quiet(&mut shard, at(1_899));
    assert!(deep(&mut shard) > 0);
    // Another epoch holds some of them, too.
    let other = OrderedHold { epoch: 2, levels: 1, for_ms: 5_000, ..HOLD };
    hold(&mut shard, other, at(1_000));
    let release =
        |shard: &mut Shard, epoch| ask(shard, OrderedCommand::Release { epoch }, at(1_000)).1;
    assert_eq!(release(&mut shard, 1), 1);
    assert_eq!(release(&mut shard, 1), 0);
    quiet(&mut shard, at(1_100));
    assert!(deep(&mut shard) > 0, "the other epoch holds them");
    assert_eq!(release(&mut shard, 2), 1);
    quiet(&mut shard, at(1_100));
    assert_eq!(deep(&mut shard), 0);
    shard.audit().unwrap();
}

#[test]
fn what_may_not_be_held_is_refused() {
    let mut shard = shard(300);
    let status = |shard: &mut Shard, hold| ask(shard, OrderedCommand::Hold(hold), START).0;
    let root = hold(&mut shard, OrderedHold { levels: 1, ..HOLD }, START).remove(0);
    let child = root.children[1].at;
    let below = OrderedHold { below: Some(child), levels: 1, ..HOLD };
    assert_eq!(hold(&mut shard, below, START)[0].info.at, child);
    assert_eq!(status(&mut shard, OrderedHold { epoch: 9, ..below }), Status::NotDone);
    let other = NodeRef { generation: child.generation + 1, ..child };
    assert_eq!(status(&mut shard, OrderedHold { below: Some(other), ..below }), Status::NotDone);
    // A reply holds whole nodes only.
    let few = OrderedHold { most_bytes: 600, levels: 8, ..HOLD };
    let (_, number, value) = ask(&mut shard, OrderedCommand::Hold(few), START);
    assert!(number > 0 && value.unwrap().len() <= 600);
    for epoch in 2..=MAX_HELD_EPOCHS as u64 {
        assert_eq!(status(&mut shard, OrderedHold { epoch, ..few }), Status::Ok);
    }
    assert_eq!(status(&mut shard, OrderedHold { epoch: 1 << 40, ..few }), Status::TooLarge);
    let command = OrderedCommand::Hold(HOLD).request();
    let nothing = Command::Of { key: b"nothing", request: command };
    let hash = shard.hash(b"nothing");
    assert_eq!(shard.execute(&nothing, hash, START).status, Status::NotFound);
    quiet(&mut shard, at(2_000));
    assert_eq!(deep(&mut shard), 0);
    shard.audit().unwrap();
    // The nodes of a copy are its own, and are not mended.
    shard.begin_applying();
    assert_eq!(status(&mut shard, HOLD), Status::ReadOnly);
}

#[test]
fn a_tree_that_goes_takes_what_is_held_with_it() {
    let mut shard = shard(300);
    hold(&mut shard, HOLD, START);
    let hash = shard.hash(KEY);
    assert_eq!(shard.execute(&Command::Del { key: KEY }, hash, START).number, 1);
    quiet(&mut shard, at(1));
    shard.audit().unwrap();
    let settings = OrderedSettings { fan_out: 4, ..OrderedSettings::of(KeyForm::Integers) };
    assert_eq!(ask(&mut shard, OrderedCommand::Create(settings), START).0, Status::Ok);
    (0..900).for_each(|number| set(&mut shard, number));
    assert_eq!(deep(&mut shard), 0, "a new tree has no holders");
    quiet(&mut shard, at(2));
    assert!(!shard.wants_ticks());
    shard.audit().unwrap();
}

#[test]
fn lookups_are_counted_where_they_go() {
    let mut shard = shard(300);
    for number in 0..60_000u64 {
        let key = if number.is_multiple_of(10) { number % 300 } else { 7 };
        let key = (key << 10).to_string();
        let got = ask(&mut shard, OrderedCommand::Get { key: key.as_bytes() }, START);
        assert_eq!(got.0, Status::Ok);
    }
    let levels = levels(&mut shard);
    let (all, leaves) = (levels[0].accesses, levels.last().unwrap().accesses);
    assert!((40_000..80_000).contains(&all) && leaves == 0, "{levels:?}");
    let nodes = listed(&mut shard, 1);
    assert_eq!(nodes.iter().map(|of| of.keys).sum::<u64>(), 300);
    let hottest = nodes.iter().max_by_key(|of| of.accesses).unwrap();
    assert!(hottest.accesses > all * 7 / 10, "{hottest:?} of {all}");
    assert_eq!(hottest.at, nodes[0].at, "the seventh key is in the first part");
}

/// Asks about one of many trees.
fn ask_of(shard: &mut Shard, tree: usize, command: OrderedCommand<'_>, now: Now) -> (Status, i64) {
    let key = format!("tree {tree}");
    let command = Command::Of { key: key.as_bytes(), request: command.request() };
    let reply = shard.execute(&command, shard.hash(key.as_bytes()), now);
    (reply.status, reply.number)
}

#[test]
fn a_bounded_number_of_trees_is_held_and_a_turn_ends_epochs_of_few() {
    let options = ShardOptions { record_secret: 7, ..ShardOptions::default() };
    let mut shard = Shard::new(Owner::heap(128 << 20, NoJournal), options);
    let settings =
        OrderedSettings { fan_out: 4, value_bytes: 8, ..OrderedSettings::of(KeyForm::Integers) };
    let trees = MAX_HELD_TREES + 2 * MEND_TURN_TREES;
    for tree in 0..trees {
        assert_eq!(ask_of(&mut shard, tree, OrderedCommand::Create(settings), START).0, Status::Ok);
        for key in [b"1", b"2", b"3", b"4", b"5", b"6"] {
            let value = Field { value: b"value", is_link: false };
            let set = ask_of(&mut shard, tree, OrderedCommand::Set { key, value }, START);
            assert_eq!(set, (Status::Ok, 1));
        }
    }
    let hold = OrderedCommand::Hold(HOLD);
    for tree in 0..MAX_HELD_TREES {
        assert_eq!(ask_of(&mut shard, tree, hold, START), (Status::Ok, 1));
    }
    assert_eq!(ask_of(&mut shard, MAX_HELD_TREES, hold, START).0, Status::TooLarge);
    let longer = OrderedCommand::Hold(OrderedHold { for_ms: 5_000, ..HOLD });
    assert_eq!(ask_of(&mut shard, 0, longer, START), (Status::Ok, 1), "it is held already");
    quiet(&mut shard, at(999));
    assert_eq!(ask_of(&mut shard, MAX_HELD_TREES, hold, at(999)).0, Status::TooLarge);
    // One turn ends the epochs of so many trees.
    shard.tick(at(1_000));
    assert!(shard.wants_release());
    let may_hold = |shard: &mut Shard, now| {
        let more = MAX_HELD_TREES..trees;
        more.filter(|&tree| ask_of(shard, tree, hold, now).0 == Status::Ok).count()
    };
    assert_eq!(may_hold(&mut shard, at(1_000)), MEND_TURN_TREES);
    let turns = quiet(&mut shard, at(1_001));
    assert!(turns >= MAX_HELD_TREES / MEND_TURN_TREES - 4, "{turns} turns");
    assert_eq!(may_hold(&mut shard, at(1_001)), 2 * MEND_TURN_TREES);
    assert!(shard.wants_ticks());
    let release = OrderedCommand::Release { epoch: 1 };
    assert_eq!(ask_of(&mut shard, 0, release, at(1_001)), (Status::Ok, 1), "it is held for longer");
    assert_eq!(ask_of(&mut shard, 1, release, at(1_001)), (Status::Ok, 0));
    quiet(&mut shard, at(2_001));
    assert!(!shard.wants_ticks());
    shard.audit().unwrap();
}

#[test]
fn the_first_node_comes_whole_and_an_empty_epoch_does_not_begin() {
    let mut shard = shard(300);
    for most_bytes in [0, 10, 100] {
        let few = OrderedHold { most_bytes, levels: 8, ..HOLD };
        let nodes = hold(&mut shard, few, START);
        assert_eq!(nodes.len(), 1);
        let below = OrderedHold { below: Some(nodes[0].children[0].at), ..few };
        assert_eq!(hold(&mut shard, below, START).len(), 1, "and so do the ones below");
    }
    let release = OrderedCommand::Release { epoch: 1 };
    assert_eq!(ask(&mut shard, release, START).1, 1);
    assert_eq!(hold(&mut shard, OrderedHold { levels: 0, ..HOLD }, START), []);
    assert_eq!(ask(&mut shard, release, START).1, 0, "it holds nothing");
    quiet(&mut shard, START);
    assert!(!shard.wants_ticks());
}

#[test]
fn ranges_and_counts_are_lookups_of_the_key_at_which_they_begin() {
    let mut shard = shard(300);
    let (low, high) = ((5 << 10).to_string(), (290 << 10).to_string());
    let bounds = (Bound::Included(low.as_bytes()), Bound::Excluded(high.as_bytes()));
    let all = OrderedRange { from: Bound::Unbounded, to: Bound::Unbounded };
    let some = OrderedRange { from: bounds.0, to: bounds.1 };
    let limit = 1;
    for _ in 0..10_000 {
        for range in [all, some] {
            ask(&mut shard, OrderedCommand::Count { range }, START);
            for is_reverse in [false, true] {
                let range = OrderedCommand::Range { range, is_reverse, limit };
                assert_eq!(ask(&mut shard, range, START).1, 2);
            }
        }
    }
    let sum = levels(&mut shard)[0].accesses;
    assert!((45_000..75_000).contains(&sum), "{sum} of 60000");
    let nodes = listed(&mut shard, 1);
    let (first, last) = (nodes[0].accesses, nodes[nodes.len() - 1].accesses);
    let ends = first + last + nodes[1].accesses + nodes[nodes.len() - 2].accesses;
    assert!(first > sum / 4 && last > sum / 10, "{nodes:?}");
    assert!(ends > sum * 3 / 4, "{nodes:?}");
    shard.audit().unwrap();
}
