//! Lists, sets, hashes, SORT and clients that wait, on the same keys: several clients at once, held against a
//! real redis-server.

use crate::blocking::{self, Both, CLIENTS};
use crate::sort::{self, is_sort};
use crate::{hashes, lists, sets};
use remora_tests::{Random, RedisServer, ServerProcess, is_skipped};

/// Steps of one random program.
const STEPS: usize = 6_000;
/// Keys whose encoding is looked at: none of them holds a string.
const ENCODED: &[&str] = &["{t}a", "sd", "n1", "n2", "i1", "i2", "h_1", "nowhere"];
/// The keys for which clients wait, and of which none gets a set: over shards a request may not have come to
/// all of its keys yet, and would be refused.
const WAITED_FOR: &[&[u8]] = &[b"c", b"d", b"e"];

/// A call of any kind.
fn draw(random: &mut Random) -> Vec<Vec<u8>> {
    match random.below(100) {
        0..25 => lists::draw(random),
        25..45 => {
            let mut words = sets::draw(random);
            for word in words.iter_mut().skip(1).filter(|word| WAITED_FOR.contains(&&word[..])) {
                word.insert(0, b's');
            }
            words
        }
        45..48 => {
            let mut words = hashes::draw(random);
            if let Some(key) = words.get_mut(1).filter(|key| WAITED_FOR.contains(&&key[..])) {
                key.insert(0, b's');
            }
            words
        }
        48..70 => sort::draw(random),
        70..74 => {
            let key = random.pick(ENCODED);
            ["OBJECT", "ENCODING", key].map(|word| word.as_bytes().to_vec()).into()
        }
        _ => blocking::draw(random).into_iter().map(String::into_bytes).collect(),
    }
}

/// Whether a call has the same outcome whatever comes at the same time, and whatever chance decides.
fn is_comparable(words: &[Vec<u8>], shards: &str) -> bool {
    // After a number that is out of range Redis takes those that SORT reads for such ones, too.
    if words[0] == b"HINCRBYFLOAT" || words.iter().any(|word| word == b"18446744073709551616") {
        return false;
    }
    let is_of_one = || words[1..3].iter().all(|key| key.starts_with(b"{t}"));
    match &words[0][..] {
        // Which members go, chance decides: the tests of sets have it. A second may pass between two calls.
        b"SPOP" | b"TTL" => false,
        // What two clients move over shards arrives in any order.
        b"BLMOVE" | b"BRPOPLPUSH" if shards != "1" => words.len() > 2 && is_of_one(),
        // Clients that wait go on waiting in Redis 7.0 if SORT stores a list over a string.
        b"SET" => !words
            .get(1)
            .is_some_and(|key| WAITED_FOR.contains(&&key[..]) || key.starts_with(b"{t}")),
        _ => true,
    }
}

#[test]
fn random_calls_of_all_kinds_are_answered_as_by_redis() {
    if is_skipped("redis-server") {
        return println!("not run: redis-server is missing, as REMORA_SKIP says");
    }
    let redis = RedisServer::start();
    for (seed, shards) in [(1, "1"), (2, "2"), (3, "3")] {
        let flag = format!("--shards={shards}");
        let ours = ServerProcess::start(&[&flag, "--max-memory=64MiB"]);
        let mut both = Both::connect(&ours, &redis);
        let (mut random, mut sorted) = (Random::new(seed), 0);
        for step in 0..STEPS {
            let free: Vec<usize> =
                (0..CLIENTS).filter(|client| !both.blocked.contains(client)).collect();
            let trace = format!("seed {seed}, step {step}, waiting {:?}", both.blocked);
            if free.len() < 2 || random.below(30) == 0 {
                both.unblock(random.below(CLIENTS), &[], &trace);
                continue;
            }
            let (client, words) = (free[random.below(free.len())], draw(&mut random));
            if !is_comparable(&words, shards) {
                continue;
            }
            let is_set = is_sort(&words)
                && words
                    .get(1)
                    .is_some_and(|key| both.control[1].call(&[&b"TYPE"[..], key]) == b"+set\r\n");
            let agree = |ours: &[u8], theirs: &[u8]| match is_sort(&words) {
                true => sort::agree(&words, is_set, ours, theirs),
                false => sets::agree(&words, ours, theirs) || hashes::agree(&words, ours, theirs),
            };
            sorted += usize::from(is_sort(&words));
            let shown: Vec<String> = words.iter().map(|w| w.escape_ascii().to_string()).collect();
            both.call(client, &words, &agree, &format!("{trace}, {shown:?} by {client}"));
            if step % 200 == 199 {
                for key in ["a", "b", "{t}a", "{t}b", "c", "d", "e", "n1", "stored"] {
                    both.control(&["LRANGE", key, "0", "-1"], &trace);
                    both.control(&["TYPE", key], &trace);
                }
            }
        }
        for client in both.blocked.clone() {
            both.unblock(client, &["ERROR"], "at the end");
        }
        assert!(both.blocked.is_empty() && both.served > 50, "{} were served", both.served);
        assert!(sorted > STEPS / 20, "{sorted} were sorted");
    }
}
