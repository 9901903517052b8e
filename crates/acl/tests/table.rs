//! Tables of commands: a small one with Redis's categories, and one that a redis-server gives.

use crate::redis::{Connection, Reply};
use remora_acl::{Access, CommandId, Commands};

/// The categories of Redis 7.0.
const CATEGORIES: [&str; 21] = [
    "keyspace",
    "read",
    "write",
    "set",
    "sortedset",
    "list",
    "hash",
    "string",
    "bitmap",
    "hyperloglog",
    "geo",
    "stream",
    "pubsub",
    "admin",
    "fast",
    "slow",
    "blocking",
    "dangerous",
    "connection",
    "transaction",
    "scripting",
];

/// Commands with the categories of Redis 7.0.
const SMALL: [(&str, &str); 20] = [
    ("get", "read string fast"),
    ("set", "write string slow"),
    ("mget", "read string fast"),
    ("del", "keyspace write slow"),
    ("exists", "keyspace read fast"),
    ("keys", "keyspace read slow dangerous"),
    ("flushall", "keyspace write slow dangerous"),
    ("ping", "fast connection"),
    ("auth", "fast connection"),
    ("select", "fast connection"),
    ("publish", "pubsub fast"),
    ("subscribe", "pubsub slow"),
    ("psubscribe", "pubsub slow"),
    ("client", "slow"),
    ("client|id", "slow connection"),
    ("client|kill", "admin slow dangerous connection"),
    ("client|list", "admin slow dangerous connection"),
    ("config", "slow"),
    ("config|get", "admin slow dangerous"),
    ("config|set", "admin slow dangerous"),
];

/// The commands that are compared with a redis-server, beside their subcommands.
const COMPARED: [&str; 44] = [
    "get",
    "set",
    "del",
    "mget",
    "mset",
    "append",
    "incr",
    "exists",
    "type",
    "strlen",
    "rename",
    "copy",
    "lpush",
    "lpop",
    "blpop",
    "hget",
    "hset",
    "sadd",
    "sinterstore",
    "zadd",
    "zrange",
    "expire",
    "touch",
    "getdel",
    "keys",
    "flushall",
    "dbsize",
    "ping",
    "auth",
    "hello",
    "select",
    "publish",
    "spublish",
    "subscribe",
    "psubscribe",
    "client",
    "config",
    "object",
    "setbit",
    "pfadd",
    "geoadd",
    "xadd",
    "multi",
    "eval",
];

struct Entry {
    name: String,
    categories: Vec<String>,
    needs_no_auth: bool,
    /// The access to the keys of each key specification.
    keys: Vec<Access>,
}

/// A table of commands.
pub struct Table {
    entries: Vec<Entry>,
    keeps_scram_keys: bool,
}

impl Table {
    /// The small one.
    pub fn small() -> Self {
        let entry = |&(name, categories): &(&str, &str)| Entry {
            name: name.into(),
            categories: categories.split(' ').map(String::from).collect(),
            needs_no_auth: name == "auth",
            keys: Vec::new(),
        };
        Self { entries: SMALL.iter().map(entry).collect(), keeps_scram_keys: false }
    }

    /// That of a server with logins by SCRAM. Its keys of a password tell it, as no others would.
    pub fn with_scram_keys() -> Self {
        Self { keeps_scram_keys: true, ..Self::small() }
    }

    /// What a redis-server says of some of its commands.
    pub fn of_redis(redis: &mut Connection) -> Self {
        let known = redis.call(&["ACL", "CAT"]).list().iter().map(Reply::text).collect::<Vec<_>>();
        assert_eq!(known, CATEGORIES);
        let mut entries = Vec::new();
        let words = ["COMMAND", "INFO"].into_iter().chain(COMPARED).collect::<Vec<_>>();
        for info in redis.call(&words).list() {
            entries.push(Entry::of(info));
            entries.extend(info.list()[9].list().iter().map(Entry::of));
        }
        Self { entries, keeps_scram_keys: false }
    }

    /// The access to the key of a key specification.
    pub fn access(&self, id: CommandId, specification: usize) -> Access {
        self.entries[usize::from(id.0)].keys[specification]
    }

    fn ids(&self) -> impl Iterator<Item = (CommandId, &Entry)> {
        self.entries.iter().enumerate().map(|(at, entry)| (CommandId(at as u16), entry))
    }
}

impl Entry {
    /// From an element of COMMAND INFO's reply.
    fn of(info: &Reply) -> Self {
        let info = info.list();
        let words = |list: &Reply| list.list().iter().map(Reply::text).collect::<Vec<_>>();
        let access = |specification: &Reply| {
            let fields = specification.list();
            let at = fields.iter().position(|field| field.text() == "flags").unwrap();
            let flags = words(&fields[at + 1]);
            Access::from_flags(&flags.iter().map(String::as_str).collect::<Vec<_>>())
        };
        Self {
            name: info[0].text(),
            categories: words(&info[6]).iter().map(|name| name.replace('@', "")).collect(),
            needs_no_auth: words(&info[2]).contains(&"no_auth".to_string()),
            keys: info[8].list().iter().map(access).collect(),
        }
    }
}

impl Commands for Table {
    fn count(&self) -> usize {
        self.entries.len()
    }

    fn find(&self, name: &[u8], subcommand: Option<&[u8]>) -> Option<CommandId> {
        let full = match subcommand {
            Some(subcommand) => [name, b"|", subcommand].concat(),
            None if name.contains(&b'|') => return None,
            None => name.to_vec(),
        };
        let is = |entry: &Entry| full.eq_ignore_ascii_case(entry.name.as_bytes());
        self.ids().find(|(_, entry)| is(entry)).map(|(id, _)| id)
    }

    fn name(&self, id: CommandId) -> &str {
        &self.entries[usize::from(id.0)].name
    }

    fn subcommands(&self, id: CommandId) -> impl Iterator<Item = CommandId> {
        let start = format!("{}|", self.name(id));
        self.ids().filter(move |(_, entry)| entry.name.starts_with(&start)).map(|(id, _)| id)
    }

    fn categories(&self) -> &[&str] {
        &CATEGORIES
    }

    fn is_in(&self, id: CommandId, category: &str) -> bool {
        self.entries[usize::from(id.0)].categories.iter().any(|known| known == category)
    }

    fn needs_no_auth(&self, id: CommandId) -> bool {
        self.entries[usize::from(id.0)].needs_no_auth
    }

    fn scram_keys(&self, password: &[u8]) -> Option<Vec<u8>> {
        self.keeps_scram_keys.then(|| [b"15000:of:", password].concat())
    }
}
