//! The longest turns of a shard with one long list of short elements, in microseconds: LREM and LINSERT
//! of an element at the end, LINDEX and LSET in the middle, LTRIM, DEL, and LREM of many elements.
//!
//! `cargo run --release -p remora-engine --example list_turns -- [ELEMENTS]`

use remora_arena::{NoJournal, Owner};
use remora_engine::{Now, Shard, ShardOptions};
use remora_protocol::list::{ListCommand, Search, Side};
use remora_protocol::{Command, Items, Request};
use std::time::Instant;

const NOW: Now = Now { unix_ms: 1_700_000_000_000, since_start_s: 5 };
const KEY: &[u8] = b"l";

/// Executes a request in turns. The longest turn in us, the turns, and the time of all of them in us.
fn turns(shard: &mut Shard, request: Request<'_>) -> (u128, u32, u128) {
    let (mut worst, mut count, began) = (0, 0, Instant::now());
    let at = Instant::now();
    let mut read = shard.begin_read((KEY, shard.hash(KEY)), request, NOW).expect("it may begin");
    let mut last = at;
    loop {
        let mut found = Vec::new();
        let turn = shard.read_turn(&mut read, &mut found, NOW).expect("no command changes it");
        let now = Instant::now();
        (worst, count) = (worst.max((now - last).as_micros()), count + 1);
        last = now;
        if turn.ended {
            return (worst, count, began.elapsed().as_micros());
        }
    }
}

fn at_once(shard: &mut Shard, command: &Command<'_>) -> u128 {
    let at = Instant::now();
    shard.execute(command, shard.hash(KEY), NOW);
    at.elapsed().as_micros()
}

/// A list of elements of eight bytes; each `step`th one equals another.
fn list(elements: u64, step: u64) -> Shard {
    let bytes = (elements as usize * 16).next_multiple_of(1 << 20) + (64 << 20);
    let mut shard = Shard::new(Owner::heap(bytes, NoJournal), ShardOptions::default());
    let mut items = Vec::new();
    for from in (0..elements).step_by(1000) {
        items.clear();
        for at in from..from + 1000 {
            match at % step {
                0 => Items::push(&mut items, b"repeated"),
                _ => Items::push(&mut items, format!("e{at:07}").as_bytes()),
            }
        }
        let items = Items::parse(&items).expect("just made");
        let push = ListCommand::Push { side: Side::Right, if_there: false, items };
        shard.execute(&Command::Of { key: KEY, request: push.request() }, shard.hash(KEY), NOW);
    }
    shard
}

fn main() {
    let elements: u64 =
        std::env::args().nth(1).map_or(1_000_000, |of| of.parse().expect("a number"));
    let last = format!("e{:07}", elements - 1).into_bytes();
    let mut pair = Vec::new();
    Items::push(&mut pair, &last);
    Items::push(&mut pair, b"inserted");
    let pivot_and_value = Items::parse(&pair).expect("just made");
    let mut shard = list(elements, u64::MAX);
    let how = Search { rank: 1, count: 1, most: 0 };
    for (name, command) in [
        ("LPOS", ListCommand::Position { value: &last, how }),
        ("LINSERT", ListCommand::Insert { after: false, pivot_and_value }),
        ("LREM 1", ListCommand::Remove { count: 1, value: &last }),
        ("LREM without a match", ListCommand::Remove { count: 0, value: b"nowhere" }),
    ] {
        let (worst, turns, all) = turns(&mut shard, command.request());
        println!("{name}: longest turn {worst} us, {turns} turns, {all} us in all");
    }
    let middle = elements as i64 / 2;
    for (name, command) in [
        ("LINDEX", ListCommand::Index { index: middle }),
        ("LSET", ListCommand::SetAt { index: middle, value: b"replaced, and longer" }),
        ("LTRIM", ListCommand::Trim { start: middle, stop: middle + 10 }),
    ] {
        let us = at_once(&mut shard, &Command::Of { key: KEY, request: command.request() });
        println!("{name}: {us} us");
    }
    for step in [100_000, 1_000, 100, 2] {
        let mut shard = list(elements, step);
        let remove = ListCommand::Remove { count: 0, value: b"repeated" };
        let (worst, turns, _) = turns(&mut shard, remove.request());
        println!("LREM of each {step}th: longest turn {worst} us, {turns} turns");
        if step == 2 {
            println!("DEL: {} us", at_once(&mut shard, &Command::Del { key: KEY }));
        }
    }
}
