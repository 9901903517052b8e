//! Requests by hand: their parsed forms, and the words of every error. The errors were taken down
//! from a Redis 7.0 server.

use remora_frontend::{ReplyForm as _, ShardAnswer};
use remora_layout::limits::{MAX_KEY_BYTES, MAX_VALUE_BYTES};
use remora_layout::record::MAX_EXPIRES_AT_MS;
use remora_protocol::message::Status;
use remora_protocol::set::{MAX_SET_MEMBER_BYTES, SetCommand};
use remora_protocol::{Command, Condition, ExpireCondition, Expiry};
use remora_resp::ReplyForm;
use remora_resp::request::{ClientAttribute, Hello};
use remora_resp::table::{answer, write_help};
use remora_resp::wire::encode;
use remora_resp::{Args, Made, Parsed, Request, RespVersion, Value, parse, request};

const NOW: u64 = 1_700_000_000_000;

/// Parses one array of words and hands the outcome on.
fn with<T>(
    words: &[&[u8]],
    look: impl FnOnce(Result<Request<'_>, remora_resp::CommandError>) -> T,
) -> T {
    let mut bytes = Vec::new();
    encode::request(&mut bytes, words);
    let mut args = Args::new();
    assert_eq!(parse(&bytes, &mut args), Ok(Parsed::Request { consumed: bytes.len() }));
    look(request(&args, &bytes, &Made::default(), NOW))
}

fn split(line: &str) -> Vec<&[u8]> {
    line.split(' ').map(str::as_bytes).collect()
}

/// The reply's text if the words are refused, else the parsed request.
fn outcome(words: &[&[u8]]) -> String {
    with(words, |found| match found {
        Ok(found) => format!("{found:?}"),
        Err(error) => error.to_string(),
    })
}

fn error(line: &str) -> String {
    with(&split(line), |found| found.expect_err(line).to_string())
}

const SYNTAX: &str = "ERR syntax error";
const INTEGER: &str = "ERR value is not an integer or out of range";
const BIT_OFFSET: &str = "ERR bit offset is not an integer or out of range";
const NX: &str = "ERR NX and XX, GT or LT options at the same time are not compatible";
const NAME: &str = "ERR Client names cannot contain spaces, newlines or special characters.";

fn invalid(command: &str) -> String {
    format!("ERR invalid expire time in '{command}' command")
}

fn arity(command: &str) -> String {
    format!("ERR wrong number of arguments for '{command}' command")
}

/// Holds the errors of lines against those of Redis.
fn are_refused(cases: &[(&str, &str)]) {
    for (line, expected) in cases {
        assert_eq!(error(line), *expected, "{line}");
    }
}

#[test]
fn errors_about_values_and_expiries_are_those_of_redis() {
    are_refused(&[
        ("get", &arity("get")),
        ("GeT a b", &arity("get")),
        ("set a", &arity("set")),
        ("set a b foo", SYNTAX),
        ("set a b nx xx", SYNTAX),
        ("set a b xx nx", SYNTAX),
        ("set a b ex", SYNTAX),
        ("set a b ex x", INTEGER),
        ("set a b ex 0", &invalid("set")),
        ("set a b ex -1", &invalid("set")),
        ("set a b px 9223372036854775807", &invalid("set")),
        ("set a b ex 9223372036854775807", &invalid("set")),
        ("set a b exat 9223372036854775807", &invalid("set")),
        ("set a b ex 1 px 1", SYNTAX),
        ("set a b keepttl ex 1", SYNTAX),
        ("set a b ex 1 keepttl", SYNTAX),
        ("set a b persist", SYNTAX),
        ("expire a x", INTEGER),
        ("expire a 9223372036854775807", &invalid("expire")),
        ("expire a -9223372036854775807", &invalid("expire")),
        ("pexpire a 9223372036854775807", &invalid("pexpire")),
        ("expireat a 9223372036854775807", &invalid("expireat")),
        ("pexpireat a 9223372036854775807", &invalid("pexpireat")),
        ("expire a 1 nx xx", NX),
        ("expire a 1 nx gt", NX),
        ("expireat a 1 nx lt", NX),
        ("expire a 1 gt lt", "ERR GT and LT options at the same time are not compatible"),
        ("expire a x foo", "ERR Unsupported option foo"),
        ("expire a 01", INTEGER),
        ("expire a +1", INTEGER),
        ("expire a -0", INTEGER),
        ("incrby a x", INTEGER),
        ("incrby a 1.0", INTEGER),
        ("incrby a 9223372036854775808", INTEGER),
        ("decrby a -9223372036854775808", "ERR decrement would overflow"),
    ]);
}

#[test]
fn errors_about_ordered_trees_say_what_may_be() {
    const EIGHT: &str = "ERR keys that are INTEGERS have 8 bytes: KEYBYTES may only say so";
    are_refused(&[
        ("btree.create t integers bytes", SYNTAX),
        ("btree.create t integers integers", SYNTAX),
        ("btree.create t fanout 4 fanout 4", SYNTAX),
        ("btree.create t keybytes 8 integers keybytes 8", SYNTAX),
        ("btree.create t valuebytes 4 valuebytes 5", SYNTAX),
        ("btree.create t integers keybytes 9", EIGHT),
        ("btree.create t keybytes 7 integers", EIGHT),
        ("btree.create t keybytes 0", "ERR KEYBYTES is not an integer from 1 to 1024"),
        ("btree.levels t limit 5", SYNTAX),
        ("btree.levels t limit 5 nodes 0", SYNTAX),
        ("btree.levels t nodes 0 limit 1025", "ERR LIMIT is not an integer from 1 to 1024"),
    ]);
    let key = format!("btree.get t {}", "k".repeat(1025));
    let value = format!("btree.set t k {}", "v".repeat(65_537));
    are_refused(&[
        (&key, "ERR key of a tree is longer than 1024 bytes"),
        (&value, "ERR value of a tree is longer than 65536 bytes"),
    ]);
    for line in ["btree.create t integers keybytes 8", "btree.create t valuebytes 9 bytes fanout 9"]
    {
        with(&split(line), |found| assert!(found.is_ok(), "{line}"));
    }
}

#[test]
fn errors_about_parts_of_values_are_those_of_redis() {
    are_refused(&[
        ("append a", &arity("append")),
        ("strlen a b", &arity("strlen")),
        ("substr a 1", &arity("substr")),
        ("getex", &arity("getex")),
        ("getset a", &arity("getset")),
        ("setrange a -1 x", "ERR offset is out of range"),
        ("setrange a x x", INTEGER),
        ("setrange a 9223372036854775808 x", INTEGER),
        ("getrange a x 1", INTEGER),
        ("getrange a 1 1.0", INTEGER),
        ("substr a 1 9223372036854775808", INTEGER),
        ("setbit a -1 1", BIT_OFFSET),
        ("setbit a x 2", BIT_OFFSET),
        ("setbit a 4294967296 1", BIT_OFFSET),
        ("setbit a 1 2", "ERR bit is not an integer or out of range"),
        ("setbit a 1 -1", "ERR bit is not an integer or out of range"),
        ("setbit a 1 x", "ERR bit is not an integer or out of range"),
        ("getbit a 4294967296", BIT_OFFSET),
        ("getbit a 01", BIT_OFFSET),
        ("setex a 0 v", &invalid("setex")),
        ("setex a x v", INTEGER),
        ("setex a 9223372036854775807 v", &invalid("setex")),
        ("psetex a -1 v", &invalid("psetex")),
        ("psetex a 9223372036854775807 v", &invalid("psetex")),
        ("getex a foo", SYNTAX),
        ("getex a ex", SYNTAX),
        ("getex a ex 1 px 1", SYNTAX),
        ("getex a persist ex 1", SYNTAX),
        ("getex a ex 1 persist", SYNTAX),
        ("getex a keepttl", SYNTAX),
        ("getex a nx", SYNTAX),
        ("mset a", &arity("mset")),
        ("mset a b c", &arity("mset")),
    ]);
}

#[test]
fn errors_about_the_connection_are_those_of_redis() {
    are_refused(&[
        ("select 16", "ERR DB index is out of range"),
        ("select -1", "ERR DB index is out of range"),
        ("select x", INTEGER),
        (
            "select 99999999999",
            "ERR value is out of range, value must between -2147483648 and 2147483647",
        ),
        ("flushall foo", SYNTAX),
        ("flushall sync x", SYNTAX),
        ("flushdb x", SYNTAX),
        ("ping a b", &arity("ping")),
        ("echo", &arity("echo")),
        ("hello 1", "NOPROTO unsupported protocol version"),
        ("hello 4", "NOPROTO unsupported protocol version"),
        ("hello x", "ERR Protocol version is not an integer or out of range"),
        ("hello 2 auth", "ERR Syntax error in HELLO option 'auth'"),
        ("hello 3 auth u", "ERR Syntax error in HELLO option 'auth'"),
        ("hello 3 setname", "ERR Syntax error in HELLO option 'setname'"),
        ("hello 3 setname x foo", "ERR Syntax error in HELLO option 'foo'"),
        ("hello 3 setname \n", NAME),
    ]);
}

#[test]
fn errors_of_subcommands_and_unknown_commands_are_those_of_redis() {
    are_refused(&[
        ("client", &arity("client")),
        ("client foo", "ERR unknown subcommand 'foo'. Try CLIENT HELP."),
        ("client setname", &arity("client|setname")),
        ("client setname a\tb", NAME),
        ("client getname x", &arity("client|getname")),
        ("client id x", &arity("client|id")),
        ("client setinfo foo bar", "ERR Unrecognized option 'foo'"),
        (
            "client setinfo LIB-NAME a\n",
            "ERR lib-name cannot contain spaces, newlines or special characters.",
        ),
        ("config", &arity("config")),
        ("config get", &arity("config|get")),
        ("config foo", "ERR unknown subcommand 'foo'. Try CONFIG HELP."),
        ("command count x", &arity("command|count")),
        ("command foo", "ERR unknown subcommand 'foo'. Try COMMAND HELP."),
        ("command list x", SYNTAX),
        ("command list filterby foo x", SYNTAX),
        ("command getkeys", &arity("command|getkeys")),
        ("foo", "ERR unknown command 'foo', with args beginning with: "),
        ("foo a b", "ERR unknown command 'foo', with args beginning with: 'a' 'b' "),
        ("fo\r\no\0x a\nb", "ERR unknown command 'fo  o', with args beginning with: 'a b' "),
        ("hello 3 f\r\noo", "ERR Syntax error in HELLO option 'f  oo'"),
        ("client f\r\no\0o", "ERR unknown subcommand 'f  o'. Try CLIENT HELP."),
    ]);
}

/// The cursors were tried on a Redis 7.0 server.
#[test]
fn cursors_of_scans_are_read_as_strtoul_reads_them() {
    let taken: [(&[u8], u64); 8] = [
        (b"", 0),
        (b"007", 7),
        (b"+5", 5),
        (b"-0", 0),
        (b"-1", u64::MAX),
        (b"-18446744073709551615", 1),
        (b"18446744073709551615", u64::MAX),
        (b"00000000000000000000000000001", 1),
    ];
    for (word, expected) in taken {
        with(&[b"scan", word], |found| match found {
            Ok(Request::Scan { cursor, .. }) => assert_eq!(cursor, expected),
            other => panic!("{}: {other:?}", word.escape_ascii()),
        });
        with(&[b"hscan", b"h", word], |found| assert!(found.is_ok()));
    }
    let refused: [&[u8]; 8] = [
        b"-",
        b"+",
        b"+-1",
        b" 5",
        b"5 ",
        b"1a",
        b"18446744073709551616",
        b"-18446744073709551616",
    ];
    for word in refused {
        assert_eq!(outcome(&[b"scan", word]), "ERR invalid cursor");
        assert_eq!(outcome(&[b"hscan", b"h", word]), "ERR invalid cursor");
    }
}

#[test]
fn unknown_commands_are_cut() {
    let (x, y, z) = ("x".repeat(300), "y".repeat(300), "z".repeat(10));
    let expected =
        format!("ERR unknown command '{}', with args beginning with: '{}' ", &x[..128], &y[..128]);
    assert_eq!(error(&format!("{x} {y} {z}")), expected);
    let (y, z) = ("y".repeat(100), "z".repeat(100));
    let expected =
        format!("ERR unknown command 'foo', with args beginning with: '{y}' '{}' ", &z[..25]);
    assert_eq!(error(&format!("foo {y} {z} k")), expected);
    let many: String = (0..60).map(|at| format!(" a{at}")).collect();
    assert!(error(&format!("foo{many}")).ends_with("'a21' 'a22' "));
    let mut reply = Vec::new();
    with(&[b"a\r\n+OK", b"\xff"], |found| found.unwrap_err().write(&mut reply));
    let lines = reply.windows(2).filter(|pair| pair == b"\r\n").count();
    assert!(lines == 1 && std::str::from_utf8(&reply).is_ok());
}

/// Redis has no limit of members: it says that they are not there.
#[test]
fn members_that_no_set_can_have_are_looked_for() {
    let (short, long) = (vec![b'm'; MAX_SET_MEMBER_BYTES], vec![b'm'; 100_000]);
    let cut = &long[..MAX_SET_MEMBER_BYTES + 1];
    let of = |words: &[&[u8]], expected: &dyn Fn(SetCommand<'_>) -> bool| {
        with(words, |found| match found {
            Ok(Request::Object { request, .. }) => assert!(expected(SetCommand::of(request))),
            _ => panic!("no request about an object"),
        });
    };
    of(&[b"sismember", b"s", &long], &|of| of == SetCommand::Contains { member: cut });
    for name in [&b"srem"[..], b"smismember"] {
        of(&[name, b"s", &short, &long, b"m"], &|of| {
            let (SetCommand::Remove { members } | SetCommand::ContainsMany { members }) = of else {
                return false;
            };
            members.iter().flatten().eq([&short[..], cut, b"m"])
        });
    }
    with(&[b"smove", b"s", b"t", &long], |found| assert!(found.is_ok()));
    assert_eq!(outcome(&[b"sadd", b"s", &long]), "ERR key is longer than 65536 bytes");
    with(&[b"srandmember", b"s", b"-5"], |found| {
        let Ok(Request::Object { form: ReplyForm::Object(of), .. }) = found else {
            panic!("no request about an object");
        };
        let text = "ERR the reply is longer than 64 MiB: ask for fewer members";
        assert_eq!(of.errors, [(Status::TooLarge, text)]);
    });
}

#[test]
fn limits_are_named() {
    let (key, long) = (vec![b'k'; MAX_KEY_BYTES], vec![b'k'; MAX_KEY_BYTES + 1]);
    let (value, big) = (vec![b'v'; MAX_VALUE_BYTES], vec![b'v'; MAX_VALUE_BYTES + 1]);
    with(&[b"set", &key, &value], |found| assert!(found.is_ok()));
    let too_long = "ERR key is longer than 65536 bytes";
    for words in [
        &[&b"get"[..], &long][..],
        &[b"set", &long, b"v"],
        &[b"del", b"a", &long],
        &[b"mget", &long, b"a"],
        &[b"exists", b"a", &long],
        &[b"mset", b"a", b"b", &long, b"c"],
        &[b"incr", &long],
        &[b"decrby", &long, b"1"],
        &[b"expire", &long, b"1"],
        &[b"pttl", &long],
        &[b"append", &long, b"v"],
        &[b"strlen", &long],
        &[b"setrange", &long, b"1", b"v"],
        &[b"getrange", &long, b"1", b"2"],
        &[b"setbit", &long, b"1", b"1"],
        &[b"getbit", &long, b"1"],
        &[b"getdel", &long],
        &[b"getex", &long, b"persist"],
        &[b"setnx", &long, b"v"],
        &[b"psetex", &long, b"1", b"v"],
    ] {
        assert_eq!(outcome(words), too_long);
    }
    let too_big = "ERR value is longer than 67108864 bytes";
    assert_eq!(outcome(&[b"set", b"k", &big]), too_big);
    assert_eq!(outcome(&[b"mset", b"k", &big]), too_big);
    assert_eq!(outcome(&[b"setnx", b"k", &big]), too_big);
    assert_eq!(outcome(&[b"setex", b"k", b"1", &big]), too_big);
    let exceeds = "ERR string exceeds maximum allowed size (proto-max-bulk-len)";
    assert_eq!(outcome(&[b"append", b"k", &big]), exceeds);
    assert_eq!(outcome(&[b"setrange", b"k", b"0", &big]), exceeds);
    let mut names = vec![&b"command"[..], b"info"];
    names.resize(1027, b"get");
    assert_eq!(outcome(&names), "ERR more than 1024 command names");
    let (name, long) = ([b'n'; 1024], [b'n'; 1025]);
    for (words, what) in [
        (&[&b"client"[..], b"setname"][..], "client name"),
        (&[b"hello", b"3", b"setname"], "client name"),
        (&[b"client", b"setinfo", b"lib-name"], "lib-name"),
        (&[b"client", b"setinfo", b"LIB-VER"], "lib-ver"),
    ] {
        with(&[words, &[&name]].concat(), |found| assert!(found.is_ok()));
        let refused = format!("ERR {what} is longer than 1024 bytes");
        assert_eq!(outcome(&[words, &[&long]].concat()), refused);
    }
    let mut names = vec![&b"hdel"[..], b"h"];
    names.resize(2 + 65_537, b"f");
    let too_many = "ERR more than 65536 names and values in one command: use several";
    assert_eq!(outcome(&names), too_many);
    let mut pairs = vec![&b"mset"[..]];
    pairs.resize(1 + 65_538, b"k");
    assert_eq!(outcome(&pairs), too_many);
    let too_many = "ERR more than 8192 members in one command: use several";
    for name in [&b"zrem"[..], b"zmscore", b"geopos", b"geohash"] {
        let mut names = vec![name, b"g"];
        names.resize(2 + 8_193, b"m");
        assert_eq!(outcome(&names), too_many);
    }
    let mut names = vec![&b"geoadd"[..], b"g"];
    names.resize(2 + 3 * 8_193, b"1");
    assert_eq!(outcome(&names), too_many);
    let mut pairs = vec![&b"zadd"[..], b"z"];
    pairs.resize(2 + 2 * 8_193, b"1");
    assert_eq!(outcome(&pairs), too_many);
}

fn set_options(line: &str) -> (Condition, Expiry, bool) {
    with(&split(&format!("SET key value {line}")), |found| match found {
        Ok(Request::Key(Command::Set { key, value, condition, expiry, get }, render)) => {
            assert_eq!((key, value, render), (&b"key"[..], &b"value"[..], ReplyForm::Set { get }));
            (condition, expiry, get)
        }
        other => panic!("{line}: {other:?}"),
    })
}

/// The parsed form of the line, about one key.
fn about_a_key(line: &str, look: impl FnOnce(Command<'_>, ReplyForm)) {
    with(&split(line), |found| match found {
        Ok(Request::Key(command, render)) => look(command, render),
        other => panic!("{line}: {other:?}"),
    });
}

#[test]
fn set_with_all_its_options() {
    use Condition::{Always, IfAbsent, IfPresent};
    let cases = [
        ("NX", (IfAbsent, Expiry::Never, false)),
        ("nx nx", (IfAbsent, Expiry::Never, false)),
        ("Xx gEt", (IfPresent, Expiry::Never, true)),
        ("EX 10", (Always, Expiry::At(NOW + 10_000), false)),
        ("PX 10", (Always, Expiry::At(NOW + 10), false)),
        ("EXAT 1700000001", (Always, Expiry::At(NOW + 1_000), false)),
        ("EXAT 10", (Always, Expiry::At(1), false)),
        ("PXAT 10", (Always, Expiry::At(1), false)),
        ("EX 1 EX 2", (Always, Expiry::At(NOW + 2_000), false)),
        ("KEEPTTL KEEPTTL", (Always, Expiry::Keep, false)),
        ("GET NX PX 5", (IfAbsent, Expiry::At(NOW + 5), true)),
    ];
    for (line, expected) in cases {
        assert_eq!(set_options(line), expected, "{line}");
    }
    about_a_key("set a b", |command, _| {
        assert!(matches!(command, Command::Set { expiry: Expiry::Never, .. }));
    });
    let last = MAX_EXPIRES_AT_MS;
    assert_eq!(set_options(&format!("PXAT {last}")), (Always, Expiry::At(last), false));
    let invalid = "ERR invalid expire time in 'set' command";
    assert_eq!(error(&format!("set k v pxat {}", last + 1)), invalid);
    assert_eq!(error(&format!("set k v px {}", last - NOW + 1)), invalid);
}

#[test]
fn parts_of_values() {
    let (key, value) = (&b"k"[..], &b"v"[..]);
    let set = |condition, expiry, get| Command::Set { key, value, condition, expiry, get };
    let range = |start, end| (Command::GetRange { key, start, end }, ReplyForm::Value);
    let set_bit = |offset, bit| (Command::SetBit { key, offset, bit }, ReplyForm::Number("setbit"));
    let get_ex = |at_ms| (Command::GetEx { key, at_ms }, ReplyForm::Value);
    let ex =
        |at_ms| (set(Condition::Always, Expiry::At(at_ms), false), ReplyForm::Set { get: false });
    let cases = [
        ("get k", (Command::Get { key }, ReplyForm::Value)),
        ("append k v", (Command::Append { key, value }, ReplyForm::Number("append"))),
        (
            "setrange k 5 v",
            (Command::SetRange { key, offset: 5, value }, ReplyForm::Number("setrange")),
        ),
        ("getrange k -3 -1", range(-3, -1)),
        ("SUBSTR k 0 9223372036854775807", range(0, i32::MAX)),
        // Both before the first byte, in the wrong order: empty, however long.
        ("getrange k -9999999999 -99999999999", range(-1, -2)),
        ("setbit k 4294967295 1", set_bit(4294967295, true)),
        ("setbit k 0 0", set_bit(0, false)),
        ("getbit k 7", (Command::GetBit { key, offset: 7 }, ReplyForm::Number("getbit"))),
        ("strlen k", (Command::StrLen { key }, ReplyForm::Number("strlen"))),
        ("getdel k", (Command::GetDel { key }, ReplyForm::Value)),
        ("getex k", (Command::Get { key }, ReplyForm::Value)),
        ("getex k persist PERSIST", get_ex(None)),
        ("getex k ex 1 EX 2", get_ex(Some(NOW + 2_000))),
        ("getex k pxat 5", get_ex(Some(1))),
        ("setex k 3 v", ex(NOW + 3_000)),
        ("psetex k 3 v", ex(NOW + 3)),
        ("getset k v", (set(Condition::Always, Expiry::Never, true), ReplyForm::Set { get: true })),
    ];
    for (line, expected) in cases {
        about_a_key(line, |command, render| assert_eq!((command, render), expected, "{line}"));
    }
}

/// Replies that the commands write themselves, of one answer.
#[test]
fn replies_of_the_commands_own() {
    let key = &b"k"[..];
    let (set, ttl) = (
        Command::Set {
            key,
            value: b"v",
            condition: Condition::IfAbsent,
            expiry: Expiry::Never,
            get: false,
        },
        Command::Ttl { key },
    );
    let (exists, kind) = (Command::Exists { key }, Command::Type { key });
    let (encoding, at) = (Command::Encoding { key }, Command::ExpireTime { key });
    let no_integer = "-ERR value is not an integer or out of range\r\n";
    let invalid = "-ERR invalid expire time in 'getex' command\r\n";
    let no_idle_time =
        "-ERR idle time is not tracked: a client may read a key without asking the server\r\n";
    let not_counted = "-ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note \
         that when switching between policies at runtime LRU and LFU data will take some time to \
         adjust.\r\n";
    let wrong_type = "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n";
    let done = (Status::Ok, 0);
    for (line, asked, (status, number), told) in [
        ("setnx k v", set, done, ":1\r\n"),
        ("setnx k v", set, (Status::NotDone, 0), ":0\r\n"),
        ("ttl k", ttl, (Status::Ok, -2), ":-2\r\n"),
        ("ttl k", ttl, (Status::Ok, -1), ":-1\r\n"),
        ("ttl k", ttl, (Status::Ok, 1_499), ":1\r\n"),
        ("ttl k", ttl, (Status::Ok, 1_500), ":2\r\n"),
        ("ttl k", ttl, (Status::Ok, i64::MAX), ":9223372036854775\r\n"),
        ("pttl k", ttl, (Status::Ok, 1_499), ":1499\r\n"),
        ("expiretime k", at, (Status::Ok, 1_700_000_000_499), ":1700000000\r\n"),
        ("pexpiretime k", at, (Status::Ok, 1_700_000_000_499), ":1700000000499\r\n"),
        ("getex k px x", exists, (Status::Ok, 1), no_integer),
        ("getex k px 0", exists, (Status::Ok, 1), invalid),
        ("getex k exat 9223372036854775807", exists, (Status::Ok, 1), invalid),
        ("getex k px 0", exists, done, "$-1\r\n"),
        ("getex k px 0", exists, (Status::WrongType, 1), wrong_type),
        ("type k", kind, done, "+string\r\n"),
        ("type k", kind, (Status::NotFound, 0), "+none\r\n"),
        ("object refcount k", kind, done, ":1\r\n"),
        ("object refcount k", kind, (Status::NotFound, 0), "$-1\r\n"),
        ("object idletime k", kind, done, no_idle_time),
        ("object idletime k", kind, (Status::NotFound, 0), "$-1\r\n"),
        ("object freq k", encoding, (Status::Ok, 3), ":3\r\n"),
        ("object freq k", encoding, (Status::Ok, -1), not_counted),
        ("object freq k", encoding, (Status::NotFound, 0), "$-1\r\n"),
    ] {
        about_a_key(line, |command, form| {
            assert_eq!(command, asked, "{line}");
            let (mut out, answer) = (Vec::new(), ShardAnswer { status, number, value: None });
            form.write(&mut out, RespVersion::Resp2, &[answer]);
            assert_eq!(out.escape_ascii().to_string(), told.escape_default().to_string(), "{line}");
        });
    }
}

#[test]
fn replies_of_renames() {
    for (line, status, told) in [
        ("rename k o", Status::NotFound, "-ERR no such key\r\n"),
        ("rename k o", Status::Ok, "+OK\r\n"),
        ("renamenx k o", Status::NotFound, "-ERR no such key\r\n"),
        ("renamenx k o", Status::Ok, ":1\r\n"),
    ] {
        with(&split(line), |found| {
            let Ok(Request::Transfer(transfer)) = found else { panic!("{line}: {found:?}") };
            let mut out = Vec::new();
            let answer = ShardAnswer { status, number: 1, value: None };
            transfer.form.write(&mut out, RespVersion::Resp2, &[answer]);
            assert_eq!(out, told.as_bytes(), "{line}");
        });
    }
}

#[test]
fn expire_in_four_ways() {
    use ExpireCondition::{Always, IfEarlier, IfLater, IfNone, IfSome, IfSomeEarlier};
    let cases = [
        ("expire k 10", NOW + 10_000, Always),
        ("pexpire k 10 nx", NOW + 10, IfNone),
        ("expireat k 1700000001 XX", NOW + 1_000, IfSome),
        ("pexpireat k 1700000000001 gt", NOW + 1, IfLater),
        ("pexpireat k 1700000000001 xx gt gt", NOW + 1, IfLater),
        ("pexpireat k 1700000000001 lt xx", NOW + 1, IfSomeEarlier),
        // A time in the past is in the past for every clock.
        ("pexpire k 0", 1, Always),
        ("pexpireat k 1700000000000 gt", 1, IfLater),
        ("expireat k 10 XX", 1, IfSome),
        ("expire k -1 lt", 1, IfEarlier),
        ("pexpire k -9223372036854775808", 1, Always),
        ("expireat k -1", 1, Always),
        ("pexpireat k 0", 1, Always),
    ];
    for (line, expected_ms, expected) in cases {
        let expected = Command::Expire { key: b"k", at_ms: expected_ms, condition: expected };
        about_a_key(line, |command, render| {
            assert_eq!((command, render), (expected, ReplyForm::Number("expire")), "{line}");
        });
    }
}

#[test]
fn keys_and_pairs() {
    with(&split("mset a 1 b 2"), |found| {
        let Ok(Request::MSet(pairs)) = found else { panic!("{found:?}") };
        assert_eq!(pairs.len(), 2);
        assert_eq!(pairs.collect::<Vec<_>>(), [(&b"a"[..], &b"1"[..]), (b"b", b"2")]);
    });
    for command in ["del", "unlink", "exists", "mget"] {
        with(&split(&format!("{command} a b a")), |found| {
            let keys = match found {
                Ok(Request::Del(keys) | Request::Exists(keys) | Request::MGet(keys)) => keys,
                other => panic!("{other:?}"),
            };
            assert_eq!(keys.len(), 3);
            assert_eq!(keys.collect::<Vec<_>>(), [b"a", b"b", b"a"]);
        });
    }
}

#[test]
fn the_rest() {
    let incr = |line, by| {
        about_a_key(line, |command, render| {
            assert_eq!(
                (command, render),
                (Command::Incr { key: b"k", by }, ReplyForm::Number("incr"))
            );
        });
    };
    incr("incr k", 1);
    incr("decr k", -1);
    incr("incrby k -9223372036854775808", i64::MIN);
    incr("decrby k 5", -5);
    with(&split("hello 3 auth u p setname n"), |found| {
        let Ok(Request::Hello(hello)) = found else { panic!("{found:?}") };
        let version = Some(RespVersion::Resp3);
        let (auth, name) = (Some((&b"u"[..], &b"p"[..])), Some(&b"n"[..]));
        assert_eq!(hello, Hello { version, auth, name, command: hello.command });
    });
    with(&split("hello"), |found| {
        assert!(matches!(found, Ok(Request::Hello(Hello { version: None, .. }))));
    });
    with(&split("client setinfo Lib-Ver 1.0"), |found| {
        let attribute = ClientAttribute::LibraryVersion;
        assert!(matches!(found, Ok(Request::ClientSetInfo { attribute: a, value: b"1.0" })
            if a == attribute));
    });
    with(&split("config get MAX* p?rt"), |found| {
        let Ok(Request::ConfigGet(patterns)) = found else { panic!("{found:?}") };
        let mut reply = Vec::new();
        let parameters = [("maxmemory", "1"), ("port", "2"), ("save", "")];
        remora_resp::commands::server::write_config(
            &mut reply,
            RespVersion::Resp2,
            &patterns,
            &parameters,
        );
        assert_eq!(reply, b"*4\r\n$9\r\nmaxmemory\r\n$1\r\n1\r\n$4\r\nport\r\n$1\r\n2\r\n");
    });
    with(&split("info Server x"), |found| {
        let Ok(Request::Info(sections)) = found else { panic!("{found:?}") };
        assert!(sections.wants("server") && !sections.wants("clients"));
    });
    with(&split("info"), |found| {
        assert!(matches!(found, Ok(Request::Info(sections)) if sections.wants("clients")));
    });
}

fn answered(line: &str, version: RespVersion) -> String {
    with(&split(line), |found| {
        let mut reply = Vec::new();
        match found {
            Ok(Request::Command(query)) => answer(&mut reply, version, &query),
            Ok(Request::Help(name)) => write_help(&mut reply, name),
            other => panic!("{line}: {other:?}"),
        }
        match Value::parse(&reply) {
            Ok(remora_resp::wire::ParsedValue::Value { consumed, .. }) => {
                assert_eq!(consumed, reply.len(), "{line}");
            }
            other => panic!("{line}: {other:?}"),
        }
        String::from_utf8(reply).unwrap()
    })
}

#[test]
fn command_tells_the_table() {
    use RespVersion::{Resp2, Resp3};
    // These two replies are a Redis 7.0 server's own.
    let get = "*2\r\n*10\r\n$3\r\nget\r\n:2\r\n~2\r\n+readonly\r\n+fast\r\n:1\r\n:1\r\n:1\r\n~3\r\n\
        +@string\r\n+@read\r\n+@fast\r\n~0\r\n~1\r\n%3\r\n$5\r\nflags\r\n~2\r\n+RO\r\n+access\r\n\
        $12\r\nbegin_search\r\n%2\r\n$4\r\ntype\r\n$5\r\nindex\r\n$4\r\nspec\r\n%1\r\n$5\r\nindex\r\n\
        :1\r\n$9\r\nfind_keys\r\n%2\r\n$4\r\ntype\r\n$5\r\nrange\r\n$4\r\nspec\r\n%3\r\n$7\r\n\
        lastkey\r\n:0\r\n$7\r\nkeystep\r\n:1\r\n$5\r\nlimit\r\n:0\r\n*0\r\n_\r\n";
    assert_eq!(answered("command info get nosuch", Resp3), get);
    let id = "*1\r\n*10\r\n$9\r\nclient|id\r\n:2\r\n*3\r\n+noscript\r\n+loading\r\n+stale\r\n:0\r\n\
        :0\r\n:0\r\n*2\r\n+@connection\r\n+@slow\r\n*0\r\n*0\r\n*0\r\n";
    assert_eq!(answered("command info Client|ID", Resp2), id);
    assert_eq!(answered("command getkeys mset a 1 b 2", Resp2), "*2\r\n$1\r\na\r\n$1\r\nb\r\n");
    assert_eq!(answered("command getkeys get k", Resp2), "*1\r\n$1\r\nk\r\n");
    for (words, text) in [
        ("foo a", "Invalid command specified"),
        ("get a b", "Invalid number of arguments specified for command"),
        ("ping a", "The command has no key arguments"),
        ("client id", "The command has no key arguments"),
        ("client foo", "Invalid command specified"),
    ] {
        let told = answered(&format!("command getkeys {words}"), Resp2);
        assert_eq!(told, format!("-ERR {text}\r\n"), "{words}");
    }
    assert_eq!(answered("command docs nosuch", Resp3), "%0\r\n");
    assert_eq!(answered("command list filterby module x", Resp2), "*0\r\n");
    assert_eq!(answered("command list filterby aclcat nosuch", Resp2), "*0\r\n");
    let expiries = answered("command list filterby pattern *pire", Resp2);
    assert_eq!(expiries, "*2\r\n$6\r\nexpire\r\n$7\r\npexpire\r\n");
    assert!(answered("command docs set set", Resp3).starts_with("%1\r\n$3\r\nset\r\n%5\r\n"));
    let count = answered("command count", Resp2);
    for line in ["command", "command info"] {
        assert_eq!(answered(line, Resp2)[1..5], count[1..5]);
        answered(line, Resp3);
    }
    for line in ["command docs", "command list", "command list filterby aclcat READ"] {
        answered(line, Resp2);
        answered(line, Resp3);
    }
    assert!(answered("client help", Resp2).contains("+SETNAME connection-name\r\n"));
}
