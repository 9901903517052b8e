//! What a RESP client sends, by script.

use crate::encode;
use crate::scripted::Script;

/// Requests of one script at most, and bytes.
const REQUESTS: usize = 200;
const STREAM_BYTES: usize = 1 << 20;

const KEYS: [&[u8]; 7] = [b"a", b"b", b"c", b"key:1", b"", b"\r\n\0", &[b'k'; 300]];
/// Keys of trees: the model of strings knows nothing of them.
const TREES: [&[u8]; 3] = [b"t", b"tree:1", &[b't'; 300]];
const LENGTHS: [usize; 8] = [0, 1, 5, 40, 300, 3_000, 20_000, 70_000];
const NUMBERS: [&[u8]; 9] =
    [b"0", b"1", b"-1", b"7", b"100", b"x", b"9223372036854775807", b"4294967295", b"70000000"];
/// Each letter is one argument: a key, a value, a number, an option.
const COMMANDS: [(&[u8], &str); 56] = [
    (b"SET", "kv"),
    (b"set", "kv"),
    (b"SET", "kn"),
    (b"SET", "kvo"),
    (b"SET", "kvoo"),
    (b"GET", "k"),
    (b"GET", "k"),
    (b"DEL", "kk"),
    (b"UNLINK", "k"),
    (b"EXISTS", "kkk"),
    (b"MGET", "kkkk"),
    (b"MSET", "kvkv"),
    (b"APPEND", "kv"),
    (b"APPEND", "kv"),
    (b"STRLEN", "k"),
    (b"INCR", "k"),
    (b"INCRBY", "kn"),
    (b"DECR", "k"),
    (b"DECRBY", "kn"),
    (b"GETDEL", "k"),
    (b"GETSET", "kv"),
    (b"SETNX", "kv"),
    (b"SETRANGE", "knv"),
    (b"GETRANGE", "knn"),
    (b"SUBSTR", "knn"),
    (b"SETBIT", "knn"),
    (b"GETBIT", "kn"),
    (b"GETEX", "koo"),
    (b"SETEX", "knv"),
    (b"PSETEX", "knv"),
    (b"EXPIRE", "kn"),
    (b"PEXPIREAT", "kno"),
    (b"TTL", "k"),
    (b"PTTL", "k"),
    (b"DBSIZE", ""),
    (b"FLUSHALL", ""),
    (b"PING", "v"),
    (b"ECHO", "v"),
    (b"SELECT", "n"),
    (b"HELLO", "o"),
    (b"CLIENT", "oo"),
    (b"COMMAND", "oo"),
    (b"CONFIG", "oo"),
    (b"INFO", "o"),
    (b"RTREE.CREATE", "roo"),
    (b"RTREE.DROP", "r"),
    (b"RTREE.ADD", "rnnnnn"),
    (b"RTREE.ADDPOINT", "rnnn"),
    (b"RTREE.ADDPOINT", "rnnnov"),
    (b"RTREE.REM", "rnn"),
    (b"RTREE.GET", "rn"),
    (b"RTREE.SEARCH", "rnnnno"),
    (b"RTREE.SEARCH", "rnnnnon"),
    (b"RTREE.COUNT", "rnnnn"),
    (b"RTREE.NEAREST", "rnnno"),
    (b"RTREE.INFO", "r"),
];
const OPTIONS: [&[u8]; 27] = [
    b"NX",
    b"xx",
    b"GET",
    b"EX",
    b"px",
    b"KEEPTTL",
    b"10",
    b"0",
    b"2",
    b"3",
    b"SETNAME",
    b"GETNAME",
    b"ID",
    b"COUNT",
    b"DOCS",
    b"get",
    b"*",
    b"GT",
    b"PERSIST",
    b"LIST",
    b"DATA",
    b"LIMIT",
    b"WITHIN",
    b"WITHRECT",
    b"withdist",
    b"KIND",
    b"hilbert",
];
/// What is no request, or not yet one.
const ODD: [&[u8]; 16] = [
    b"\r\n",
    b"*0\r\n",
    b"*-1\r\n",
    b"PING\r\n",
    b"set a \"x\\x41 y\"\r\n",
    b"get 'a\r\n",
    b"*1\r\n$4\r\nPI",
    b"*2\r\n$3\r\nGET\r\n$-1\r\n",
    b"*3\r\n:1\r\n",
    b"*1048577\r\n",
    b"*1048576\r\n",
    b"*1\r\n$67108864\r\n",
    b"*2\r\n$3\r\nGET\r\n$99999999999\r\n",
    b"$3\r\nGET\r\n",
    b"*1\r\n$4\r\nPINGxx",
    b"QUIT\r\n",
];

/// The bytes that a script makes.
pub fn stream(script: &mut Script<'_>) -> Vec<u8> {
    let mut stream = Vec::new();
    for _ in 0..REQUESTS {
        if script.is_over() || stream.len() > STREAM_BYTES {
            break;
        }
        match script.byte() {
            0..=3 => stream.extend_from_slice(script.pick(&ODD)),
            4 => stream.extend_from_slice(script.bytes()),
            5 => stream.truncate(stream.len() - script.below(64).min(stream.len())),
            6 => {
                // The wrong number of arguments.
                let words = vec![script.pick(&COMMANDS).0; script.below(4) + 1];
                stream.extend(encode(&words));
            }
            choice => {
                let (name, arguments) = COMMANDS[choice as usize % COMMANDS.len()];
                request(script, name, arguments, &mut stream);
            }
        }
    }
    stream
}

fn request(script: &mut Script<'_>, name: &[u8], arguments: &str, stream: &mut Vec<u8>) {
    let mut words = vec![name.to_vec()];
    for argument in arguments.chars() {
        words.push(match argument {
            'k' => script.pick(&KEYS).to_vec(),
            'r' => script.pick(&TREES).to_vec(),
            'v' => vec![script.byte(); script.pick(&LENGTHS)],
            'n' => script.pick(&NUMBERS).to_vec(),
            _ => script.pick(&OPTIONS).to_vec(),
        });
    }
    let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
    stream.extend(encode(&words));
}
