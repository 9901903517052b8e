//! What a snapshot takes: the time of the sweep and of the load for each key, and the longest turn.
//! One thread, nothing else happens.
//!
//! `cargo run --release -p remora-engine --example snapshot_rates [KEYS [VALUE_BYTES]]`

use remora_arena::{NoJournal, Owner};
use remora_engine::{Eviction, Now, Origin, Shard, ShardOptions, SnapshotTurn, split_operation};
use remora_layout::database::Database;
use remora_protocol::hash::HashCommand;
use remora_protocol::{Command, Condition, Expiry, Items};
use std::time::{Duration, Instant};

const NOW: Now = Now { unix_ms: 1_700_000_000_000, since_start_s: 5 };

fn shard(bytes: usize, buckets: u64, eviction: Eviction) -> Shard {
    let options = ShardOptions { buckets, eviction, hash_seed: 3, ..ShardOptions::default() };
    Shard::new(Owner::heap(bytes, NoJournal), options)
}

fn ask(shard: &mut Shard, command: &Command<'_>) {
    let hash = shard.hash_of(Database::ZERO, command);
    shard.execute(command, hash, NOW);
}

/// Keys in no order.
fn key(at: u64) -> [u8; 16] {
    let mut key = *b"key:000000000000";
    key[8..].copy_from_slice(&at.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes());
    key
}

/// Times that a snapshot is taken: other processes lengthen some turns of each.
const TIMES: usize = 5;

/// A snapshot of the whole shard, its time, and that of its longest turn: of each turn the shortest
/// of some times.
fn snapshot(shard: &mut Shard) -> (Vec<Vec<u8>>, Duration, Duration) {
    let (mut pieces, mut turns) = (Vec::new(), Vec::new());
    for _ in 0..TIMES {
        pieces.clear();
        shard.begin_snapshot().expect("none is under way");
        for at in 0.. {
            let from = Instant::now();
            let turn = shard.snapshot_turn(NOW);
            let time = from.elapsed();
            if at == turns.len() {
                turns.push(time);
            }
            turns[at] = turns[at].min(time);
            let mut piece = Vec::with_capacity(256 << 10);
            shard.take_snapshot(&mut piece);
            pieces.push(piece);
            match turn {
                SnapshotTurn::More | SnapshotTurn::Full => {}
                SnapshotTurn::Ended { .. } => break,
                turn => panic!("{turn:?}"),
            }
        }
    }
    let longest = turns.iter().max().copied().unwrap_or_default();
    (pieces, turns.iter().sum(), longest)
}

fn load(shard: &mut Shard, pieces: &[Vec<u8>]) -> (u64, Duration) {
    let from = Instant::now();
    let mut operations = 0;
    shard.begin_applying();
    for piece in pieces {
        let mut rest = &piece[..];
        while let Some((operation, behind)) = split_operation(rest).expect("it was just made") {
            shard.load(operation, &Origin::WHOLE, NOW).expect("there is room");
            operations += 1;
            rest = behind;
        }
    }
    (operations, from.elapsed())
}

fn report(what: &str, of: u64, source: &mut Shard, buckets: &[u64]) {
    let (pieces, taken, longest) = snapshot(source);
    let ns = |time: Duration| time.as_nanos() as f64 / of as f64;
    let bytes: usize = pieces.iter().map(Vec::len).sum();
    println!("{what}: {of}, {bytes} bytes in the stream");
    println!("  sweep {:6.0} ns each, longest turn {:.0} us", ns(taken), longest.as_micros());
    for &buckets in buckets {
        for eviction in [Eviction::None, Eviction::S3Fifo] {
            let mut copy = shard(1 << 30, buckets, eviction);
            let (operations, time) = load(&mut copy, &pieces);
            let rate = of as f64 / time.as_secs_f64() / 1e6;
            println!(
                "  load  {:6.0} ns each, {rate:.2} M/s: {operations} operations, {buckets} buckets at \
                 first, eviction {eviction:?}",
                ns(time)
            );
            assert_eq!(copy.digest(), source.digest());
        }
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1).filter_map(|text| text.parse().ok());
    let keys: u64 = arguments.next().unwrap_or(1_000_000);
    let value = vec![7; arguments.next().unwrap_or(32) as usize];
    let mut source = shard(1 << 30, 1024, Eviction::None);
    let (condition, expiry, get) = (Condition::Always, Expiry::Never, false);
    for at in 0..keys {
        ask(&mut source, &Command::Set { key: &key(at), value: &value, condition, expiry, get });
    }
    report("strings", keys, &mut source, &[1024, (keys / 4).next_power_of_two()]);
    let mut source = shard(1 << 30, 1024, Eviction::None);
    for at in 0..keys {
        let mut list = Vec::new();
        Items::push(&mut list, &key(at));
        Items::push(&mut list, &value);
        let pairs = Items::parse(&list).expect("two items");
        let request = HashCommand::Set { pairs }.request();
        ask(&mut source, &Command::Of { key: b"hash", request });
    }
    report("fields of one hash", keys, &mut source, &[1024]);
}
