//! One process rewrites a key at full speed, two others read it: no mixed
//! value is ever taken, and no older one after a newer one.

use remora_client_core::{Counts, Options, Path, Session, SetOptions, Wake};
use remora_tests::{DEADLINE, Role, ServerProcess, long_leases, role};
use std::path::Path as FilePath;
use std::time::{Duration, Instant};

const KEY: &[u8] = b"torture";
/// Lengths in words: several size classes, small and large.
const WORDS: [usize; 5] = [3, 131, 1_021, 2_039, 4_093];

fn spread(counter: u64) -> u64 {
    (counter ^ (counter >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

fn length_of(counter: u64) -> usize {
    let draw = spread(counter) >> 40;
    WORDS[draw as usize % WORDS.len()] + (draw >> 8) as usize % 4
}

fn word_of(counter: u64, index: usize) -> u64 {
    spread(counter).wrapping_add((index as u64).wrapping_mul(0xd6e8_feb8_6659_fd93))
}

/// Counter, then words that follow from it, as many as follow from it.
fn make(counter: u64, value: &mut Vec<u8>) {
    value.clear();
    value.extend_from_slice(&counter.to_le_bytes());
    for index in 1..length_of(counter) {
        value.extend_from_slice(&word_of(counter, index).to_le_bytes());
    }
}

/// The counter, if every byte follows from it.
fn certify(value: &[u8]) -> Option<u64> {
    let word = |chunk: &[u8]| chunk.try_into().map(u64::from_le_bytes).ok();
    let counter = word(value.get(..8)?)?;
    let whole = value.len() == 8 * length_of(counter)
        && value
            .chunks_exact(8)
            .enumerate()
            .skip(1)
            .all(|(index, chunk)| word(chunk) == Some(word_of(counter, index)));
    whole.then_some(counter)
}

#[test]
fn values_certify_themselves() {
    let mut value = Vec::new();
    for counter in 1..200 {
        make(counter, &mut value);
        assert_eq!(certify(&value), Some(counter));
        let at = value.len() / 2;
        value[at] ^= 1;
        assert_eq!(certify(&value), None);
    }
}

#[test]
fn plays_its_part() {
    match role() {
        Some((name, arguments)) if name == "writer" => write(FilePath::new(&arguments[0])),
        Some((name, arguments)) if name == "reader" => read(&arguments),
        _ => {}
    }
}

fn write(socket: &FilePath) {
    let options = Options { wake: Wake::Hybrid, ..remora_tests::by_pointers() };
    let mut session = Session::connect(socket, &options).unwrap();
    let mut value = Vec::new();
    for counter in 1u64.. {
        make(counter, &mut value);
        session.set(KEY, &value, SetOptions::default()).unwrap();
        if counter == 1 {
            Role::say("writing");
        }
    }
}

/// What a reader saw.
#[derive(Default, Debug, Clone, Copy)]
struct Seen {
    read: u64,
    asked: u64,
    changes: u64,
    mixed: u64,
    backwards: u64,
    counts: Counts,
}

impl Seen {
    /// Whether the reader has met as much as a run of this length is to show.
    fn is_enough(&self, limit: Duration) -> bool {
        let seconds = limit.as_secs_f64();
        let [read, changes] = [self.read as f64, self.changes as f64];
        read > 1_000.0 * seconds && changes > 100.0 * seconds && self.counts.stale > 0
    }
}

/// Reads by a cached pointer, and every fourth time by bucket and record.
fn read(arguments: &[String]) {
    let socket = FilePath::new(&arguments[0]);
    let limit = Duration::from_secs_f64(arguments[1].parse().unwrap());
    let options = Options { wake: Wake::Hybrid, ..long_leases() };
    let mut warm = Session::connect(socket, &options).unwrap();
    let cold = Options { pointer_cache_entries: 0, ..options };
    let mut cold = Session::connect(socket, &cold).unwrap();
    let started = Instant::now();
    let mut seen = Seen::default();
    let mut newest = 0;
    for turn in 0u64.. {
        if turn.is_multiple_of(64) && started.elapsed() > limit {
            // A busy machine needs more time for as much.
            seen.counts = totals(&warm, &cold);
            if seen.is_enough(limit) || started.elapsed() > limit + DEADLINE {
                break;
            }
        }
        let session = if turn % 4 == 3 { &mut cold } else { &mut warm };
        let got = session.get(KEY, Path::Read).unwrap();
        match got.served_by.is_read() {
            true => seen.read += 1,
            false => seen.asked += 1,
        }
        match certify(got.value.unwrap_or_default()) {
            None => seen.mixed += 1,
            Some(counter) => {
                seen.backwards += (counter < newest) as u64;
                seen.changes += (counter > newest) as u64;
                newest = newest.max(counter);
            }
        }
        if seen.mixed > 0 {
            break;
        }
    }
    let Seen { read, asked, changes, mixed, backwards, .. } = seen;
    let Counts { stale, retries, .. } = totals(&warm, &cold);
    Role::say(&format!("{read} {asked} {changes} {mixed} {backwards} {stale} {retries}"));
    Role::wait_for_end();
}

/// What both sessions have spent.
fn totals(warm: &Session, cold: &Session) -> Counts {
    let mut counts = warm.totals();
    counts.add(&cold.totals());
    counts
}

/// One writer and two readers; what each reader saw.
fn run(seconds: f64) -> Vec<Seen> {
    // Small, so that slots are soon used again.
    let server = ServerProcess::start(&["--shards=1", "--max-memory=2MiB", "--buckets=64"]);
    let socket = server.socket();
    let socket = socket.to_str().unwrap();
    let mut writer = Role::start(module_path!(), "writer", &[socket]);
    assert_eq!(writer.hear().as_deref(), Some("writing"));
    let started = Instant::now();
    let arguments = [socket, &seconds.to_string()];
    let mut readers = [
        Role::start(module_path!(), "reader", &arguments),
        Role::start(module_path!(), "reader", &arguments),
    ];
    let mut seen = Vec::new();
    for reader in &mut readers {
        let said = reader.hear().expect("a reader ends with what it saw");
        let mut numbers = said.split(' ').map(|number| number.parse::<u64>().unwrap());
        let mut next = || numbers.next().unwrap();
        let mut one = Seen {
            read: next(),
            asked: next(),
            changes: next(),
            mixed: next(),
            backwards: next(),
            counts: Counts::default(),
        };
        (one.counts.stale, one.counts.retries) = (next(), next());
        seen.push(one);
    }
    println!("{:.1} s:", started.elapsed().as_secs_f64());
    for one in &seen {
        let Counts { stale, retries, .. } = one.counts;
        println!(
            "  read {}, asked {}, new values {}, mixed {}, backwards {}, stale {stale}, torn {retries}",
            one.read, one.asked, one.changes, one.mixed, one.backwards
        );
    }
    let mut resp = server.resp();
    println!(
        "  server: {} writes, {} slots used again early",
        resp.info("ring_frames"),
        resp.info("slots_reused_early")
    );
    seen
}

fn seconds() -> f64 {
    std::env::var("REMORA_TORTURE_SECONDS").map_or(30.0, |text| text.parse().unwrap())
}

#[test]
fn no_reader_sees_a_mixed_or_an_older_value() {
    let seconds = seconds();
    for seen in run(seconds) {
        assert_eq!(seen.mixed, 0, "{seen:?}");
        assert_eq!(seen.backwards, 0, "{seen:?}");
        assert!(seen.is_enough(Duration::from_secs_f64(seconds)), "too little: {seen:?}");
    }
}
