//! Users and their rights over RESP: held against a real redis-server, and what an operator sees.

use remora_tests::{
    Bytes, Random, RedisServer, Resp, ServerProcess, Value, is_skipped, remora, remora_path,
    run_remora, wait_until,
};
use rustix::process::{Pid, Resource, Rlimit, Signal, kill_process, prlimit};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{PermissionsExt, chown};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;

/// Rules, most of which Redis takes.
const RULES: &[&str] = &[
    "on",
    "off",
    "nopass",
    ">one",
    ">two",
    "<one",
    "resetpass",
    "~*",
    "~a*",
    "~b",
    "%R~b*",
    "%W~c*",
    "%RW~d*",
    "resetkeys",
    "allkeys",
    "&*",
    "&news.*",
    "resetchannels",
    "+@all",
    "-@all",
    "+@read",
    "-@write",
    "+@string",
    "-@dangerous",
    "+@hash",
    "+@sortedset",
    "+get",
    "+set",
    "-set",
    "+mget",
    "+copy",
    "+rename",
    "+client|id",
    "-client|id",
    "+config|get",
    "+select|0",
    "+smove",
    "+zadd",
    "+zunionstore",
    "(+get ~x*)",
    "(+@write ~a* %R~c)",
    "(%W~b +copy",
    "%R~a)",
    "clearselectors",
    "reset",
    "~s*",
    "~z*",
    "%R~*",
    "+@geo",
    "+nosuch",
    "+@nosuch",
    "~a~b",
    "%X~a",
    "!00",
    "+get|x",
    "foo",
];

const KEYS: &[&str] = &["a1", "a2", "b", "b2", "c", "c2", "d", "x"];

/// A call whose reply is the same of both servers, but for what users may do.
fn draw(random: &mut Random) -> Vec<String> {
    let (one, two) = (random.pick(KEYS), random.pick(KEYS));
    let text = match random.below(30) {
        0 => format!("GET {one}"),
        1 => format!("SET {one} v"),
        2 => format!("SET {one} v GET"),
        3 => format!("MGET {one} {two}"),
        4 => format!("MSET {one} v {two} w"),
        5 => format!("DEL {one} {two}"),
        6 => format!("COPY {one} {two}"),
        7 => format!("RENAME {one} {two}"),
        8 => format!("EXISTS {one}"),
        9 => format!("HSET h{one} f v"),
        10 => format!("HGETALL h{one}"),
        11 => format!("SADD s{one} m"),
        12 => format!("SMOVE s{one} s{two} m"),
        13 => format!("SINTERSTORE s{one} s{two} s{one}"),
        14 => format!("LPUSH l{one} v"),
        15 => format!("LMOVE l{one} l{two} LEFT RIGHT"),
        16 => format!("LMPOP 2 l{one} l{two} LEFT"),
        17 => format!("ZADD z{one} 1 m"),
        18 => format!("ZUNIONSTORE z{one} 1 z{two}"),
        19 => format!("ZRANGE z{one} 0 -1"),
        20 => format!("APPEND {one} x"),
        21 => format!("GETRANGE {one} 0 0"),
        22 => format!("TTL {one}"),
        23 => random.pick(&["SORT sa1 ALPHA", "SORT sa1 BY w* GET #", "SORT sb GET w*"]).to_owned(),
        24 => format!("GEORADIUS z{one} 0 0 1 km STORE {two}"),
        25 => "SELECT 0".to_owned(),
        26 => "CONFIG GET nosuch".to_owned(),
        27 => "FLUSHALL".to_owned(),
        28 => format!("TOUCH {one} {two}"),
        _ => "PING".to_owned(),
    };
    text.split(' ').map(str::to_owned).collect()
}

fn bytes(words: &[String]) -> Vec<&[u8]> {
    words.iter().map(|word| word.as_bytes()).collect()
}

fn both(of: &mut [Bytes; 2], call: &[String], trace: &str) -> Vec<u8> {
    let [ours, theirs] = of;
    let [ours, theirs] = [ours, theirs].map(|of| of.call(&bytes(call)).unwrap());
    let shown = [&ours, &theirs].map(|reply| reply.escape_ascii().to_string());
    assert_eq!(shown[0], shown[1], "{trace}: {call:?}");
    ours
}

/// Random rules, then random calls by the user that they make: the same replies, and the same
/// verdicts of ACL DRYRUN.
#[test]
fn random_users_may_do_what_they_may_at_redis() {
    if is_skipped("redis-server") {
        return println!("not run: redis-server is missing, as REMORA_SKIP says");
    }
    let redis = RedisServer::start();
    let ours = ServerProcess::start(&["--max-memory=64MiB"]);
    let (mut allowed, mut refused, mut wrong) = (0, 0, 0);
    for seed in 0..40 {
        let mut random = Random::new(seed);
        let trace = format!("seed {seed}");
        let mut admin = Bytes::pair(&ours, &redis, "2");
        let name = format!("user{seed}");
        for _ in 0..3 {
            let rules = (0..1 + random.below(8)).map(|_| random.pick(RULES));
            let rules: Vec<String> =
                rules.flat_map(|rule| rule.split(' ').map(str::to_owned)).collect();
            // Redis 7.0 forgets the words of a selector in which another one begins.
            let mut is_open = false;
            let begins_within = rules.iter().any(|rule| {
                let begins_within = is_open && rule.starts_with('(');
                is_open = (is_open || rule.starts_with('(')) && !rule.ends_with(')');
                begins_within
            });
            if begins_within {
                continue;
            }
            let call = ["ACL", "SETUSER", &name].map(str::to_owned);
            let reply = both(&mut admin, &[&call[..], &rules].concat(), &trace);
            wrong += u32::from(reply.starts_with(b"-"));
        }
        let open = ["ACL", "SETUSER", &name, "on", ">pass"].map(str::to_owned);
        both(&mut admin, &open, &trace);
        let mut user = Bytes::pair(&ours, &redis, "2");
        both(&mut user, &["AUTH", &name, "wrong"].map(str::to_owned), &trace);
        both(&mut user, &["AUTH", &name, "pass"].map(str::to_owned), &trace);
        for step in 0..120 {
            let (call, trace) = (draw(&mut random), format!("{trace}, step {step}"));
            let dry = ["ACL", "DRYRUN", &name].map(str::to_owned);
            both(&mut admin, &[&dry[..], &call].concat(), &trace);
            let reply = both(&mut user, &call, &trace);
            match reply.starts_with(b"-NOPERM") {
                true => refused += 1,
                false => allowed += 1,
            }
        }
        both(&mut user, &["ACL", "WHOAMI"].map(str::to_owned), &trace);
    }
    assert!(allowed > 200 && refused > 500 && wrong > 20, "{allowed} {refused} {wrong}");
}

fn error(text: &str) -> Value {
    Value::Error(text.into())
}

const NO_AUTH: &str = "NOAUTH Authentication required.";
const WRONG: &str = "WRONGPASS invalid username-password pair or user is disabled.";

#[test]
fn whoever_does_not_log_in_gets_nothing() {
    let server = ServerProcess::start(&["--requirepass", "s3cret-word"]);
    let mut resp = server.resp();
    for text in ["GET k", "SET k v", "PING", "INFO", "CLIENT ID", "ACL WHOAMI", "COMMAND COUNT"] {
        assert_eq!(resp.call(text), error(NO_AUTH), "{text}");
    }
    assert!(matches!(resp.call("HELLO 3"), Value::Error(text) if text.starts_with("NOAUTH HELLO")));
    assert!(
        matches!(resp.call("NOSUCH"), Value::Error(text) if text.starts_with("ERR unknown command"))
    );
    for text in
        ["AUTH wrong", "AUTH default wrong", "AUTH nobody s3cret-word", "HELLO 2 AUTH default x"]
    {
        assert_eq!(resp.call(text), error(WRONG), "{text}");
    }
    assert_eq!(resp.call("GET k"), error(NO_AUTH));
    assert_eq!(resp.call("AUTH s3cret-word"), Value::ok());
    assert_eq!(resp.call("SET k v"), Value::ok());
    let mut other = server.resp();
    assert!(matches!(other.call("HELLO 2 AUTH default s3cret-word"), Value::Array(_)));
    assert_eq!(other.call("GET k"), Value::bulk("v"));
    assert_eq!(other.info("acl_access_denied_auth"), 4);
    let log = other.call("ACL LOG");
    assert!(matches!(&log, Value::Array(entries) if entries.len() == 3), "{log:?}");
    assert_eq!(other.call("ACL LOG RESET"), Value::ok());
    assert_eq!(other.call("ACL LOG"), Value::Array(Vec::new()));
    // Neither the list of processes nor the log shows the password.
    let title = std::fs::read(format!("/proc/{}/cmdline", server.pid())).unwrap();
    for text in [String::from_utf8_lossy(&title).into_owned(), server.log()] {
        assert!(!text.contains("s3cret"), "{text}");
    }
}

/// A connection that has not logged in makes the server keep little.
#[test]
fn an_unauthenticated_client_sends_short_requests() {
    let server = ServerProcess::start(&["--requirepass=top"]);
    for request in ["*2\r\n$4\r\nAUTH\r\n$1000000\r\n", "*3\r\n$3\r\nSET\r\n$21000\r\n"] {
        let mut stranger = server.resp();
        stranger.send_raw(request.as_bytes()).unwrap();
        let told = "ERR Protocol error: unauthenticated bulk length";
        assert_eq!(stranger.receive().unwrap(), error(told));
        assert!(stranger.rest().unwrap().is_empty(), "it is closed");
    }
    let mut client = server.resp();
    // In many words, too.
    client.send_raw(format!("*100000\r\n{}", "$1\r\nx\r\n".repeat(5_000)).as_bytes()).unwrap();
    assert!(
        matches!(client.receive().unwrap(), Value::Error(text) if text.contains("unauthenticated"))
    );
    let mut client = server.resp();
    let long = "x".repeat(16 << 10);
    assert!(client.call(&format!("AUTH {long}")).is_error(), "the longest password that there is");
    assert_eq!(client.call("AUTH top"), Value::ok());
    assert_eq!(client.call(&format!("SET k {}", "v".repeat(1 << 20))), Value::ok());
    // Without users all requests are of somebody.
    let open = ServerProcess::start(&[]);
    assert_eq!(open.resp().call(&format!("SET k {}", "v".repeat(1 << 20))), Value::ok());
}

#[test]
fn without_a_password_auth_says_so() {
    let server = ServerProcess::start(&[]);
    let mut resp = server.resp();
    assert!(
        matches!(resp.call("AUTH x"), Value::Error(text) if text.starts_with("ERR AUTH <password> called without any"))
    );
    assert_eq!(resp.call("AUTH default x"), Value::ok());
    assert_eq!(resp.call("AUTH nobody x"), error(WRONG));
    assert_eq!(resp.call("AUTH a b c"), error("ERR syntax error"));
    assert!(
        matches!(resp.call("CLIENT INFO"), Value::Bulk(text) if String::from_utf8_lossy(&text).contains(" user=default "))
    );
    assert!(
        matches!(resp.call("ACL SAVE"), Value::Error(text) if text.contains("not configured to use an ACL file"))
    );
    let Value::Bulk(password) = resp.call("ACL GENPASS") else { panic!("no password") };
    assert!(password.len() == 64 && password.iter().all(u8::is_ascii_hexdigit));
    assert_ne!(resp.call("ACL GENPASS"), Value::Bulk(password));
}

fn logged_in(server: &ServerProcess, name: &str) -> Resp {
    let mut resp = server.resp();
    assert_eq!(resp.call(&format!("AUTH {name} pass")), Value::ok());
    resp
}

/// A change holds for connections that are there, at every thread; those of a removed user end, also
/// while they wait.
#[test]
fn changed_rights_hold_at_once() {
    let server = ServerProcess::start(&["--shards=3"]);
    let mut admin = server.resp();
    let make = "ACL SETUSER u on >pass ~a* +@all";
    assert_eq!(admin.call(make), Value::ok());
    let mut users: Vec<Resp> = (0..6).map(|_| logged_in(&server, "u")).collect();
    for user in &mut users {
        assert_eq!(user.call("SET a1 v"), Value::ok());
        assert!(matches!(user.call("SET b v"), Value::Error(text) if text.starts_with("NOPERM")));
    }
    assert_eq!(admin.call("ACL SETUSER u -set"), Value::ok());
    for user in &mut users {
        assert!(
            matches!(user.call("SET a1 v"), Value::Error(text) if text.contains("'set' command"))
        );
        assert_eq!(user.call("GET a1"), Value::bulk("v"));
    }
    // A user that is off may go on, as at Redis, but not come again.
    assert_eq!(admin.call("ACL SETUSER u off"), Value::ok());
    assert_eq!(users[0].call("GET a1"), Value::bulk("v"));
    assert_eq!(server.resp().call("AUTH u pass"), error(WRONG));
    let mut waiting = users.pop().unwrap();
    waiting.send(&[b"BLPOP", b"a-list", b"0"]).unwrap();
    wait_until("it waits", || admin.info("blocked_clients") == 1);
    assert_eq!(admin.call("ACL DELUSER u nobody"), Value::Integer(1));
    assert!(waiting.receive().is_err(), "it is closed");
    for user in &mut users {
        let _ = user.send(&[b"GET", b"a1"]);
        assert!(user.receive().is_err(), "it is closed");
    }
    wait_until("nobody waits", || admin.info("blocked_clients") == 0);
    assert_eq!(admin.call("RPUSH a-list x"), Value::Integer(1));
    assert_eq!(admin.call("LLEN a-list"), Value::Integer(1));
    // Another user of the same name is not the one that logged in.
    assert_eq!(admin.call(make), Value::ok());
    let mut former = logged_in(&server, "u");
    let both: [&[&[u8]]; 2] = [
        &[b"ACL", b"DELUSER", b"u"],
        &[b"ACL", b"SETUSER", b"u", b"on", b">other", b"~*", b"+@all"],
    ];
    both.iter().for_each(|words| admin.send(words).unwrap());
    assert_eq!(admin.receive().unwrap(), Value::Integer(1));
    assert_eq!(admin.receive().unwrap(), Value::ok());
    let _ = former.send(&[b"GET", b"a1"]);
    assert!(former.receive().is_err(), "it is closed");
}

fn start_with(file: &Path) -> ServerProcess {
    ServerProcess::start(&["--users", file.to_str().unwrap()])
}

#[test]
fn users_come_from_a_file_and_go_to_it() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("users");
    std::fs::write(&file, "user default on nopass ~* &* +@all\nuser u on >pass ~a* +@read\n")
        .unwrap();
    let server = start_with(&file);
    let mut admin = server.resp();
    let mut user = logged_in(&server, "u");
    assert_eq!(user.call("GET a1"), Value::Null);
    assert!(matches!(user.call("SET a1 v"), Value::Error(text) if text.starts_with("NOPERM")));
    // A wrong file changes nothing, an edited one is read by itself.
    std::fs::write(&file, "user default on nopass ~* &* +@all\nuser u on +nosuch\n").unwrap();
    assert!(matches!(admin.call("ACL LOAD"), Value::Error(text) if text.contains("'+nosuch'")));
    assert_eq!(user.call("GET a1"), Value::Null);
    std::fs::write(&file, "user default on nopass ~* &* +@all\nuser u on >pass ~a* +@read +set\n")
        .unwrap();
    wait_until("the file is read again", || user.call("SET a1 v") == Value::ok());
    // Its own file undoes no later change, and one without `default` is not read by itself.
    assert_eq!(admin.call("ACL SAVE"), Value::ok());
    assert_eq!(admin.call("ACL SETUSER u -set"), Value::ok());
    std::thread::sleep(std::time::Duration::from_millis(1_300));
    assert!(matches!(user.call("SET a1 v"), Value::Error(text) if text.starts_with("NOPERM")));
    std::fs::write(&file, "").unwrap();
    wait_until("it is looked at", || server.log().contains("has no line of the user default"));
    assert_eq!(user.call("GET a1"), Value::bulk("v"));
    assert_eq!(admin.call("ACL SETUSER v on >pass +ping"), Value::ok());
    assert_eq!(admin.call("ACL SAVE"), Value::ok());
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600, "its owner's only");
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.contains("user v on") && !text.contains(">pass"), "{text}");
    drop(server);
    let again = start_with(&file);
    assert_eq!(logged_in(&again, "v").call("PING"), Value::Simple("PONG".into()));
}

#[test]
fn what_cannot_be_is_said_before_the_server_starts() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("users");
    std::fs::write(&file, "user u +nosuch\nfoo\n").unwrap();
    let file = file.to_str().unwrap();
    for (arguments, text) in [
        (vec!["serve", "--port=0", "--users", file], "Error in applying operation '+nosuch'"),
        (
            vec!["serve", "--port=0", "--users", "/nosuch/file"],
            "opening file '/nosuch/file': No such file",
        ),
    ] {
        let ended = run_remora(&arguments);
        assert_eq!(ended.code, Some(2), "{arguments:?}: {}", ended.err);
        assert!(ended.err.contains(text), "{arguments:?}: {}", ended.err);
    }
}

/// One address, and one user, have so many clients, and each that leaves makes room.
#[test]
fn an_address_and_a_user_have_so_many_clients() {
    let flags = ["--max-clients-per-address=5", "--max-clients-per-user=2", "--requirepass=top"];
    let server = ServerProcess::start(&flags);
    let mut admin = server.resp();
    assert_eq!(admin.call("AUTH top"), Value::ok());
    assert_eq!(admin.call("ACL SETUSER u on >pass ~* +@all"), Value::ok());
    let mut users: Vec<_> = (0..3).map(|_| server.resp()).collect();
    for of in &mut users[..2] {
        assert_eq!(of.call("AUTH u pass"), Value::ok());
        // Once more as the same user is no further login.
        assert_eq!(of.call("AUTH u pass"), Value::ok());
    }
    let too_many = Value::Error("ERR max number of logins of this user reached".into());
    assert_eq!(users[2].call("AUTH u pass"), too_many);
    assert_eq!(users[2].call("HELLO 3 AUTH u pass"), too_many);
    assert!(users[2].call("AUTH u wrong").is_error());
    assert_eq!(admin.info("rejected_logins_of_user"), 2);
    // Other rights are no other user.
    assert_eq!(admin.call("ACL SETUSER u -@dangerous"), Value::ok());
    assert_eq!(users[2].call("AUTH u pass"), too_many);
    users.remove(0);
    wait_until("a login is free", || users[1].call("AUTH u pass") == Value::ok());
    let _fourth = [server.resp(), server.resp()];
    let refused = Value::Error("ERR max number of clients of this address reached".into());
    assert_eq!(server.resp().receive().unwrap(), refused);
    assert_eq!(admin.info("rejected_connections_of_address"), 1);
}

/// Where there are passwords, no core dump has them.
#[test]
fn a_server_with_passwords_leaves_no_core_dump() {
    let dumps = |flags: &[&str]| {
        let place = TempDir::new().unwrap();
        let mut command = remora();
        command.args(["serve", "--port=0", "--max-memory=16MiB", "--socket"]);
        command.arg(place.path().join("socket")).args(flags).current_dir(place.path());
        let mut server = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        assert!(ready.starts_with("ready"), "{ready}");
        let pid = Pid::from_child(&server);
        let limit = Rlimit { current: None, maximum: None };
        prlimit(Some(pid), Resource::Core, limit).unwrap();
        kill_process(pid, Signal::ABORT).unwrap();
        server.wait().unwrap().core_dumped()
    };
    if !dumps(&["--requirepass=top", "--core-dumps"]) {
        let pattern = std::fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap();
        return println!("not tested: this kernel writes no core dumps ({})", pattern.trim());
    }
    assert!(dumps(&[]));
    assert!(!dumps(&["--requirepass=top"]));
}

/// An OS user without the rights of root: the one that runs the tests, or Debian's for processes without rights.
fn plain_user() -> u32 {
    const UNPRIVILEGED: u32 = 65_534;
    if is_root() { UNPRIVILEGED } else { rustix::process::geteuid().as_raw() }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// What this user reads in a file of a process; `None` if the kernel does not open it.
fn read_as(user: u32, pid: u32, file: &str) -> Option<String> {
    let mut command = Command::new("head");
    command.args(["-c", "65536", &format!("/proc/{pid}/{file}")]).current_dir("/");
    command.env("LC_ALL", "C").uid(user);
    if is_root() {
        command.gid(user);
    }
    let read = command.output().unwrap();
    let refused = String::from_utf8_lossy(&read.stderr).contains("Permission denied");
    (!refused).then(|| String::from_utf8_lossy(&read.stdout).into_owned())
}

/// Another process of the server's own OS user reads neither its memory nor its environment, where there are
/// passwords. The kernel asks for the same right at ptrace as at `mem`.
#[test]
fn the_servers_own_os_user_reads_neither_its_memory_nor_its_environment() {
    let user = plain_user();
    let reads = |flags: &[&str]| {
        let place = TempDir::new().unwrap();
        // As an ordinary user the server has to reach its binary too.
        let binary = place.path().join("remora");
        std::fs::copy(remora_path(), &binary).unwrap();
        chown(place.path(), Some(user), None).unwrap();
        let mut command = Command::new(binary);
        command.env_clear().args(["serve", "--port=0", "--max-memory=16MiB", "--pin=false"]);
        command.arg("--socket").arg(place.path().join("socket")).args(flags);
        command.current_dir(place.path()).uid(user);
        if is_root() {
            command.gid(user);
        }
        let mut server = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut ready = String::new();
        BufReader::new(server.stdout.take().unwrap()).read_line(&mut ready).unwrap();
        assert!(ready.starts_with("ready"), "{ready}");
        let read = ["environ", "mem", "maps"].map(|file| read_as(user, server.id(), file));
        server.kill().unwrap();
        server.wait().unwrap();
        read
    };
    assert_eq!(reads(&["--requirepass=top-secret"]), [None, None, None]);
    // The control: it is the same user, and the password lies there.
    let [environment, memory, maps] = reads(&["--requirepass=top-secret", "--core-dumps"]);
    assert!(environment.is_some_and(|text| text.contains("top-secret")));
    assert!(maps.is_some_and(|text| text.contains("[heap]")));
    // A kernel with Yama lets only a parent look into the memory.
    let yama = std::fs::read_to_string("/proc/sys/kernel/yama/ptrace_scope");
    if yama.is_ok_and(|scope| scope.trim() != "0") {
        return println!("not tested: this kernel refuses the memory of every process (Yama)");
    }
    assert!(memory.is_some(), "without the setting the memory can be opened");
}

/// A reply's texts.
fn text(value: &Value) -> String {
    match value {
        Value::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        Value::Array(parts) => parts.iter().map(text).collect::<Vec<_>>().join(" "),
        other => format!("{other:?}"),
    }
}

/// An operator sees hashes of passwords, refusals and changes, and no password.
#[test]
fn the_log_tells_of_users_and_refusals_without_passwords() {
    let server = ServerProcess::start(&["--log=info,audit=debug"]);
    let mut admin = server.resp();
    assert_eq!(admin.call("ACL SETUSER u on >s3cret-word ~a* +@read"), Value::ok());
    let listed = text(&admin.call("ACL LIST"));
    let hash = listed.split_once(" #").map(|(_, rest)| &rest[..64]);
    assert!(hash.is_some_and(|hash| hash.bytes().all(|byte| byte.is_ascii_hexdigit())), "{listed}");
    let mut user = server.resp();
    assert!(user.call("AUTH u s3cret-wrong").is_error());
    assert_eq!(user.call("AUTH u s3cret-word"), Value::ok());
    assert!(user.call("SET a1 v").is_error());
    assert!(user.call("GET b").is_error());
    let noted = admin.call("ACL LOG");
    assert!(matches!(&noted, Value::Array(entries) if entries.len() == 3), "{noted:?}");
    assert_eq!(admin.call("ACL DELUSER u"), Value::Integer(1));
    wait_until("the log has all of it", || {
        let log = server.log();
        let has = |text: &str| {
            log.lines().filter(|line| line.contains("audit") && line.contains(text)).count() == 1
        };
        has("a user was made or changed")
            && has("a user was removed")
            && ["auth", "command", "key"].iter().all(|why| has(&format!("reason=\"{why}\"")))
    });
    for text in [listed, text(&noted), server.log()] {
        assert!(!text.contains("s3cret"), "{text}");
    }
}
