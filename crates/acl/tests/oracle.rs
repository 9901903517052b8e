//! Random users against a real redis-server 7.0: errors, lines, rights and the verdicts of calls.

use crate::calls::Words;
use crate::redis::{Connection, Redis, Reply};
use crate::table::Table;
use remora_acl::{Call, Commands, Context, DeleteError, Denied, Log, Reason, Refusal};
use remora_acl::{Rights, User, Users, WRONG_PASSWORD};
use remora_testing::Random;

/// Changes of users in a run.
const CHANGES: usize = 1_500;
const USERS: [&str; 3] = ["u0", "u1", "u2"];

/// Calls; see [`Words::from_template`].
const CALLS: [&str; 43] = [
    "get K0",
    "set KW v",
    "set KX v get",
    "del K0 K0",
    "mget K0 K0",
    "mset K0 v K0 v",
    "append K0 v",
    "incr K0",
    "exists K0",
    "type K0",
    "strlen K0",
    "rename K0 K1",
    "copy K0 K1",
    "lpush K0 v",
    "lpop K0",
    "blpop K0 K0 1",
    "hget K0 f",
    "hset K0 f v",
    "sadd K0 m",
    "sinterstore K0 K1 K1",
    "zadd K0 1 m",
    "zrange K0 0 1",
    "expire K0 1",
    "touch K0 K0",
    "getdel K0",
    "keys x",
    "flushall",
    "dbsize",
    "ping",
    "auth x",
    "hello",
    "select 0",
    "select ab",
    "publish C m",
    "spublish C m",
    "subscribe C C",
    "psubscribe P P",
    "client id",
    "client list",
    "config get x",
    "object encoding K0",
    "geoadd K0 1 1 m",
    "ping m",
];

/// Rules without a password.
const RULES: [&str; 58] = [
    "on",
    "off",
    "ON",
    "reset",
    "clearselectors",
    "nopass",
    "resetpass",
    "sanitize-payload",
    "skip-sanitize-payload",
    "allkeys",
    "resetkeys",
    "allchannels",
    "resetchannels",
    "allcommands",
    "nocommands",
    "+@all",
    "-@all",
    "~*",
    "&*",
    "&c*",
    "&c1",
    "~k*",
    "~k1",
    "~[jk]?",
    "%R~k*",
    "%W~k2",
    "%rw~j*",
    "%R~*",
    "%RW~*",
    "%R",
    "%~k",
    "%RR~k",
    "%Q~k",
    "~",
    "&",
    "~a b",
    "&a b",
    "nope",
    "",
    "~k)",
    "+nope",
    "-nope",
    "+",
    "-",
    "+@",
    "+@nope",
    "-@nope",
    "+|",
    "+get|",
    "-select|0",
    "+select|0",
    "+select|Ab",
    "+SELECT|aB",
    "+ping|m",
    "+config|",
    "+config|nope",
    "+config|get|x",
    "+client|id|",
];

const PASSWORDS: [&str; 3] = ["one", "two", ""];
/// The hashes of `one` and of an empty password, and three that are none.
const HASHES: [&str; 5] = [
    "7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed",
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "7692C3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed",
    "7692",
    "",
];

struct Oracle {
    redis: Redis,
    connection: Connection,
    table: Table,
    users: Users,
    log: Log,
    random: Random,
}

/// Words of rules about commands, which Redis 7.0 orders by a hash table.
fn sorted(text: &str) -> Vec<String> {
    let mut words = text.split(' ').map(str::to_ascii_lowercase).collect::<Vec<_>>();
    words.sort();
    words
}

/// Without the words about commands, and with `*` as Redis writes it.
fn without_commands(line: &str) -> String {
    let mut kept = String::new();
    for word in line.split(' ') {
        match word.trim_start_matches('(').starts_with(['+', '-']) {
            true => kept += if word.ends_with(')') { ")" } else { "" },
            false => kept = kept + " " + word,
        }
    }
    kept.replace("%RW~*", "~*")
}

impl Oracle {
    fn pick(&mut self, of: &[&str]) -> String {
        of[self.random.below(of.len())].into()
    }

    /// A rule that adds or removes a command, a subcommand or a category of the table.
    fn command_rule(&mut self) -> String {
        let sign = self.pick(&["+", "-"]);
        let name = match self.random.below(3) {
            0 => format!("@{}", self.category()),
            _ => {
                let all = self.table.all().collect::<Vec<_>>();
                self.table.name(all[self.random.below(all.len())]).to_string()
            }
        };
        let name = if self.random.one_in(8) { name.to_ascii_uppercase() } else { name };
        sign + &name
    }

    fn category(&mut self) -> String {
        let categories = self.table.categories();
        categories[self.random.below(categories.len())].into()
    }

    fn password_rule(&mut self) -> String {
        match self.random.below(4) {
            0 => self.pick(&[">", ">", "<"]) + &self.pick(&PASSWORDS),
            _ => self.pick(&["#", "#", "!"]) + &self.pick(&HASHES),
        }
    }

    /// One rule, or the words of a selector.
    fn rules(&mut self) -> Vec<String> {
        match self.random.below(12) {
            0..5 => vec![self.command_rule()],
            5..9 => vec![self.pick(&RULES)],
            9 => vec![self.password_rule()],
            _ => {
                let count = self.random.below(5);
                let mut words = Vec::new();
                for _ in 0..count {
                    let word = match self.random.below(2) {
                        0 => self.command_rule(),
                        _ => {
                            self.pick(&["~k*", "%R~j*", "%W~*", "&c*", "+@all", "~*", "+select|0"])
                        }
                    };
                    words.push(word);
                }
                if self.random.one_in(20) {
                    words.push(self.pick(&["on", "nope", "+nope", ">one"]));
                }
                let end = if self.random.one_in(30) { "" } else { ")" };
                let text = format!("({}{end}", words.join(" "));
                match self.random.one_in(2) {
                    true => text.split(' ').map(String::from).collect(),
                    false => vec![text],
                }
            }
        }
    }

    /// Changes a user in both.
    fn change(&mut self) {
        let name = self.pick(&USERS);
        if self.random.one_in(20) {
            let removed = self.users.del_users([name.as_bytes()]).unwrap().len();
            let reply = self.connection.call(&["ACL", "DELUSER", &name]);
            assert_eq!(reply, Reply::Integer(removed as i64));
            return;
        }
        let mut rules = Vec::new();
        for _ in 0..1 + self.random.below(4) {
            rules.extend(self.rules());
            // Redis 7.0 forgets a selector without an end if another begins.
            if rules.iter().any(|rule| rule.starts_with('(')) && !rules.concat().ends_with(')') {
                break;
            }
        }
        let words = rules.iter().map(String::as_bytes);
        let ours = match self.users.set_user(&self.table, name.as_bytes(), words) {
            Ok(_) => "OK".to_string(),
            Err(error) => format!("ERR {error}"),
        };
        let words = ["ACL", "SETUSER", &name].into_iter().chain(rules.iter().map(String::as_str));
        let theirs = self.connection.call(&words.collect::<Vec<_>>()).text();
        assert_eq!(ours, theirs, "{rules:?}");
    }

    /// Compares a user with Redis's of the same name.
    fn compare(&mut self, name: &str) {
        let reply = self.connection.call(&["ACL", "GETUSER", name]);
        let Some(user) = self.users.get(name.as_bytes()).cloned() else {
            return assert_eq!(reply, Reply::Nil);
        };
        let words =
            |name: &str| reply.field(name).list().iter().map(Reply::text).collect::<Vec<_>>();
        assert_eq!(user.flags().collect::<Vec<_>>(), words("flags"));
        assert_eq!(user.password_hashes().collect::<Vec<_>>(), words("passwords"));
        self.compare_rights(user.root(), &reply);
        let theirs = reply.field("selectors").list();
        assert_eq!(user.selectors().len(), theirs.len());
        for (ours, theirs) in user.selectors().iter().zip(theirs) {
            self.compare_rights(ours, theirs);
        }
        let start = format!("user {name} ");
        let lines = self.connection.call(&["ACL", "LIST"]);
        let mut lines = lines.list().iter().map(Reply::text);
        let theirs = lines.find(|line| line.starts_with(&start)).expect("a line of the user");
        let ours = String::from_utf8(user.describe()).unwrap();
        assert_eq!(without_commands(&ours), without_commands(&theirs));
        self.compare_copy(&user, &reply);
        self.compare_read(&user, &theirs);
        for _ in 0..5 {
            self.dry_run(&user);
        }
    }

    /// Compares patterns.
    fn compare_rights(&self, ours: &Rights, theirs: &Reply) {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let keys = text(ours.key_patterns()).replace("%RW~*", "~*");
        assert_eq!(keys, theirs.field("keys").text());
        assert_eq!(text(ours.channel_patterns()), theirs.field("channels").text());
    }

    /// Redis makes the same user of our line: it finds the same rules for both.
    fn compare_copy(&mut self, user: &User, original: &Reply) {
        self.connection.call(&["ACL", "DELUSER", "copy"]);
        let line = String::from_utf8(user.describe()).unwrap();
        let words = ["ACL", "SETUSER", "copy"].into_iter().chain(line.split(' ').skip(2));
        let reply = self.connection.call(&words.collect::<Vec<_>>());
        assert_eq!(reply.text(), "OK", "{line}");
        let copy = self.connection.call(&["ACL", "GETUSER", "copy"]);
        let commands = |of: &Reply| sorted(&of.field("commands").text());
        assert_eq!(commands(&copy), commands(original), "{line}");
        let selectors = copy.field("selectors").list().iter();
        for (copy, original) in selectors.zip(original.field("selectors").list()) {
            assert_eq!(commands(copy), commands(original), "{line}");
        }
    }

    /// We make the same user of Redis's line, without the commands that the table has not.
    fn compare_read(&mut self, user: &User, line: &str) {
        let table = &self.table;
        let known = line.split(' ').skip(2).map(|word| {
            let name = word.trim_end_matches(')');
            let command = name.strip_prefix(['+', '-']).unwrap_or("@");
            let mut parts = command.split('|').map(str::as_bytes);
            let first = table.find(parts.next().unwrap_or_default(), None);
            match command.starts_with('@') || first.is_some() {
                true => word.as_bytes(),
                false => &word.as_bytes()[name.len()..],
            }
        });
        // Redis writes `~*` for `%RW~*`, and reads nothing behind it.
        let has_late_pattern = line.contains("~* ~") || line.contains("~* %");
        let copy = match self.users.clone().set_user(table, b"copy", known) {
            Err(_) if has_late_pattern => return,
            copy => copy.expect("a line of Redis"),
        };
        for command in table.all() {
            let (keys, channels) = (std::iter::empty(), std::iter::empty());
            let call = Call { command, first_argument: Some(b"0"), keys, channels };
            assert_eq!(copy.check(table, &call), user.check(table, &call), "{line}");
        }
    }

    fn words(&mut self) -> Words {
        let template = self.pick(&CALLS);
        let random = &mut self.random;
        let name = || ["k1", "k2", "j1", "c1", "d1", "c*"][random.below(6usize)].to_string();
        Words::from_template(&self.table, &template, name)
    }

    /// Compares the verdict of a random call.
    fn dry_run(&mut self, user: &User) {
        let call = self.words();
        let name = std::str::from_utf8(user.name()).unwrap();
        let words = ["ACL", "DRYRUN", name].into_iter().map(String::from);
        let words = words.chain(call.words.iter().map(|(word, _)| word.clone()));
        let theirs = self.connection.call(&words.collect::<Vec<_>>()).text();
        let ours = call.dry_run(&self.table, user);
        assert_eq!(ours, theirs, "{:?}: {}", call.words, user.describe().escape_ascii());
    }

    /// Logs in, and makes a call if it is refused.
    fn log_in(&mut self, name: &str) {
        let password = self.pick(&PASSWORDS);
        let mut connection = self.redis.connect();
        let reply = connection.call(&["AUTH", name, &password]).text();
        let user = self.users.authenticate(name.as_bytes(), password.as_bytes()).cloned();
        let Some(user) = user else {
            self.refused(Reason::Auth, name, "AUTH");
            return assert_eq!(reply, format!("WRONGPASS {WRONG_PASSWORD}"));
        };
        assert_eq!(reply, "OK");
        let call = self.words();
        if let Err(denied) = call.check(&self.table, &user) {
            let words = call.words.iter().map(|(word, _)| word).collect::<Vec<_>>();
            let theirs = connection.call(&words).text();
            let command = self.table.name(call.command).to_string();
            assert_eq!(theirs, format!("NOPERM {}", denied.error_text(&command)));
            let object = match denied {
                Denied::Command => &command,
                Denied::Key { at } | Denied::Channel { at } => words[at],
            };
            self.refused(denied.into(), name, object);
        }
    }

    /// Logs a refusal as Redis has. No ten of them take a minute, so the time does not matter.
    fn refused(&mut self, reason: Reason, user: &str, object: &str) {
        let (object, user) = (object.as_bytes(), user.as_bytes());
        let context = Context::TopLevel;
        self.log.add(&Refusal { reason, context, object, user, client: b"" }, 0);
    }

    /// Compares the logs, and gives the sum of their counts.
    fn compare_logs(&mut self) -> u64 {
        let reply = self.connection.call(&["ACL", "LOG", "1000"]);
        let ours = self.log.entries().map(|entry| {
            let words = [entry.reason.name(), entry.context.name()].map(String::from);
            let names = [&entry.object, &entry.user].map(|name| name.escape_ascii().to_string());
            (Reply::Integer(entry.count as i64), words, names)
        });
        let theirs = reply.list().iter().map(|entry| {
            let text = |field: &str| entry.field(field).text();
            let words = [text("reason"), text("context")];
            (entry.field("count").clone(), words, [text("object"), text("username")])
        });
        assert_eq!(ours.collect::<Vec<_>>(), theirs.collect::<Vec<_>>());
        self.log.entries().map(|entry| entry.count).sum()
    }
}

/// A redis-server with its table, and no user but `default`.
fn start(name: &str, seed: u64) -> Option<Oracle> {
    let redis = Redis::start(name)?;
    let mut connection = redis.connect();
    let table = Table::of_redis(&mut connection);
    let users = Users::new(&table);
    Some(Oracle { redis, connection, table, users, log: Log::default(), random: Random::new(seed) })
}

#[test]
fn random_users_have_the_rights_that_redis_gives_them() {
    let Some(mut oracle) = start("users", 7) else { return };
    let mut lines = std::collections::BTreeSet::new();
    for at in 0..CHANGES {
        if at % 50 == 0 {
            oracle.compare_logs();
        }
        oracle.change();
        let name = oracle.pick(&USERS);
        oracle.compare(&name);
        oracle.log_in(&name);
        lines.extend(oracle.users.get(name.as_bytes()).map(|user| user.describe()));
    }
    assert!(lines.len() > CHANGES / 4, "{} different users", lines.len());
    assert!(oracle.compare_logs() > 150, "entries that were counted together");
    let theirs = oracle.connection.call(&["ACL", "DELUSER", "default"]).text();
    assert_eq!(theirs, format!("ERR {}", DeleteError::Default));
}

/// Each reads the other's file; wrong files have the same error.
#[test]
fn files_are_read_by_both() {
    let Some(mut oracle) = start("files", 8) else { return };
    let path = oracle.redis.users_file();
    for _ in 0..200 {
        oracle.change();
        std::fs::write(&path, oracle.users.to_file()).unwrap();
        assert_eq!(oracle.connection.call(&["ACL", "LOAD"]).text(), "OK");
        for name in USERS {
            oracle.compare(name);
        }
    }
    let mut wrong = 0;
    for _ in 0..500 {
        let mut text = String::new();
        for _ in 0..4 {
            let start =
                oracle.pick(&["user u0", "user u1", "user u2", "user  ", "usr u3", "user", ""]);
            let rules = oracle.rules().into_iter().chain(oracle.rules()).collect::<Vec<_>>();
            text += &format!("{start} {}\r\n", rules.join(" "));
        }
        // Redis reads behind its array if a line has rules and a selector without an end.
        if text.matches('(').count() != text.matches(')').count() || text.contains("~k)") {
            continue;
        }
        std::fs::write(&path, &text).unwrap();
        let theirs = oracle.connection.call(&["ACL", "LOAD"]).text();
        let ours = match Users::parse_file(&oracle.table, "users", text.as_bytes()) {
            Ok(_) => "OK".into(),
            Err(error) => format!("ERR {error}"),
        };
        wrong += usize::from(ours != "OK");
        assert_eq!(ours, theirs, "{text}");
    }
    assert!(wrong > 100, "{wrong} wrong files");
}
