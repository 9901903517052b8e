//! Requests about many keys, at a server of eight shards and at one of a single shard:
//! the replies have to be the same. Keys stand twice in a request, are missing, have
//! expired, or hold something else than a string.

use remora_tests::{Random, Resp, ServerProcess, Value, encode};

const KEYS: usize = 300;
const ROUNDS: usize = 400;
/// More than a thread looks up at once.
const MANY: usize = 3_000;

fn server(shards: &str) -> ServerProcess {
    ServerProcess::start(&["--max-memory=256MiB", shards, "--wake=event"])
}

fn key(number: usize) -> Vec<u8> {
    format!("key:{number}").into_bytes()
}

/// A request about so many keys, with values where it wants some.
fn about(name: &str, keys: usize, random: &mut Random) -> Vec<Vec<u8>> {
    let mut words = vec![name.as_bytes().to_vec()];
    for _ in 0..keys {
        words.push(key(random.below(KEYS)));
        if name == "MSET" {
            let length = if random.below(50) == 0 { 100_000 } else { random.below(40) };
            words.push(random.bytes(length));
        }
    }
    words
}

fn draw(random: &mut Random) -> Vec<Vec<u8>> {
    let keys = match random.below(20) {
        0 => MANY,
        1..=4 => 100 + random.below(200),
        5..=8 => 1,
        _ => 1 + random.below(20),
    };
    let words = |words: &[&[u8]]| words.iter().map(|word| word.to_vec()).collect();
    match random.below(16) {
        0..=4 => about("MGET", keys, random),
        5..=6 => about("EXISTS", keys, random),
        7 => about("TOUCH", keys, random),
        8..=10 => about("MSET", keys, random),
        11 => about("DEL", keys.min(30), random),
        12 => about("UNLINK", keys.min(30), random),
        13 => words(&[b"HSET", &key(random.below(KEYS)), b"f", b"v"]),
        14 => words(&[b"PEXPIRE", &key(random.below(KEYS)), b"-1"]),
        _ => words(&[b"SET", &key(random.below(KEYS)), b"x", b"PXAT", b"1"]),
    }
}

/// What is answered to these, which are sent together.
fn answers(resp: &mut Resp, requests: &[Vec<Vec<u8>>]) -> Vec<Value> {
    let bytes: Vec<u8> = requests
        .iter()
        .flat_map(|words| encode(&words.iter().map(Vec::as_slice).collect::<Vec<_>>()))
        .collect();
    resp.send_raw(&bytes).unwrap();
    requests.iter().map(|_| resp.receive().unwrap()).collect()
}

#[test]
fn many_keys_of_eight_shards_are_answered_as_those_of_one() {
    let (one, eight) = (server("--shards=1"), server("--shards=8"));
    let (mut one, mut eight) = (one.resp(), eight.resp());
    for seed in 1..=3 {
        let mut random = Random::new(seed);
        for round in 0..ROUNDS {
            // Often several under way at once.
            let together = if random.below(2) == 0 { 1 } else { 1 + random.below(20) };
            let requests: Vec<_> = (0..together).map(|_| draw(&mut random)).collect();
            let (expected, found) = (answers(&mut one, &requests), answers(&mut eight, &requests));
            for (at, (expected, found)) in expected.iter().zip(&found).enumerate() {
                let name = String::from_utf8_lossy(&requests[at][0]);
                assert!(expected == found, "seed {seed}, round {round}: {name} is not the same");
            }
        }
    }
}

#[test]
fn a_reply_that_is_too_large_over_eight_shards_is_refused() {
    let server = server("--shards=8");
    let mut resp = server.resp();
    let value = vec![b'v'; 200_000];
    for number in 0..64 {
        assert_eq!(
            answers(&mut resp, &[vec![b"SET".to_vec(), key(number), value.clone()]]).len(),
            1
        );
    }
    // 64 values, and twice as many, fit a reply; 640 do not.
    let mget = |times: usize| {
        let keys = (0..64 * times).map(|number| key(number % 64));
        std::iter::once(b"MGET".to_vec()).chain(keys).collect::<Vec<_>>()
    };
    let replies = answers(&mut resp, &[mget(1), mget(10), mget(2)]);
    let lengths: Vec<Option<usize>> = replies
        .iter()
        .map(|reply| match reply {
            Value::Array(values) => {
                assert!(values.iter().all(|found| *found == Value::bulk(value.clone())));
                Some(values.len())
            }
            other => {
                assert!(other.is_error(), "{other:?}");
                None
            }
        })
        .collect();
    assert_eq!(lengths, [Some(64), None, Some(128)]);
}

/// Far more keys than a turn takes, of which every third is missing.
#[test]
fn requests_of_very_many_keys_are_answered_whole() {
    const VERY_MANY: usize = 200_000;
    let words = |name: &str| {
        let keys = (0..VERY_MANY).map(key);
        std::iter::once(name.as_bytes().to_vec()).chain(keys).collect::<Vec<_>>()
    };
    for shards in ["--shards=1", "--shards=3"] {
        let server = server(shards);
        let (mut resp, mut other) = (server.resp(), server.resp());
        let there = |number: &usize| !number.is_multiple_of(3);
        let numbers: Vec<usize> = (0..VERY_MANY).filter(there).collect();
        let sets = numbers.chunks(10_000).map(|numbers| {
            let pairs = numbers.iter().flat_map(|&number| [key(number), key(number)]);
            std::iter::once(b"MSET".to_vec()).chain(pairs).collect()
        });
        answers(&mut resp, &sets.collect::<Vec<_>>());
        let found = Value::Integer(numbers.len() as i64);
        let get = vec![b"GET".to_vec(), key(1)];
        // What is behind them on the connection sees what they did.
        let requests = [
            words("EXISTS"),
            words("MGET"),
            words("TOUCH"),
            get.clone(),
            words("UNLINK"),
            get,
            words("DEL"),
        ];
        let mut replies = answers(&mut resp, &requests);
        let values = (0..VERY_MANY)
            .map(|number| if there(&number) { Value::bulk(key(number)) } else { Value::Null });
        assert!(replies.remove(1) == Value::Array(values.collect()), "{shards}");
        let value = Value::bulk(key(1));
        let others = [found.clone(), found.clone(), value, found, Value::Null, Value::Integer(0)];
        assert_eq!(replies, others, "{shards}");
        assert_eq!(other.call("DBSIZE"), Value::Integer(0));
    }
}
