//! A map that foretells the replies to the plain commands. What depends on
//! time it does not foretell, nor what it knows of a key that ever expires.

use remora_layout::database::Database;
use remora_protocol::{Command, Condition, Expiry};
use remora_resp::ReplyForm;
use remora_resp::request::Request;
use remora_resp::{Args, Made, RespVersion, Value, request};
use std::collections::{BTreeMap, BTreeSet};

/// Strings by their keys.
type Values = BTreeMap<Vec<u8>, Vec<u8>>;

/// Expiries are counted from here; keys that have one are unknown anyway.
const NOW_UNIX_MS: u64 = 1_700_000_000_000;

/// The map, and what it does not know.
pub struct Model {
    values: BTreeMap<Vec<u8>, Vec<u8>>,
    /// Keys that may have any value, or none.
    unknown: BTreeSet<Vec<u8>>,
    /// Both of the databases that are not selected.
    others: BTreeMap<Database, (Values, BTreeSet<Vec<u8>>)>,
    selected: Database,
    version: RespVersion,
    /// Replies that were foretold.
    pub foretold: usize,
}

/// What a reply must be.
enum Reply {
    Number(i64),
    Bytes(Option<Vec<u8>>),
    Done,
    NotDone,
}

impl Reply {
    fn is(&self, value: &Value<'_>) -> bool {
        match self {
            Self::Number(number) => *value == Value::Integer(*number),
            Self::Bytes(None) | Self::NotDone => *value == Value::Null,
            Self::Bytes(Some(bytes)) => *value == Value::Bulk(bytes),
            Self::Done => *value == Value::Simple(b"OK"),
        }
    }
}

/// Whether the reply has a form of this command's own.
fn is_of(command: &str, form: ReplyForm) -> bool {
    matches!(form, ReplyForm::Object(own) if own.command == command)
}

fn length(value: Option<&Vec<u8>>) -> i64 {
    value.map_or(0, |value| value.len() as i64)
}

impl Model {
    /// An empty map.
    pub fn new() -> Self {
        let (values, unknown) = (BTreeMap::new(), BTreeSet::new());
        let (others, selected) = (BTreeMap::new(), Database::ZERO);
        Self { values, unknown, others, selected, version: RespVersion::Resp2, foretold: 0 }
    }

    /// Keys that there must be in the selected database, if that is known.
    fn keys(&self) -> Option<usize> {
        self.unknown.is_empty().then_some(self.values.len())
    }

    /// Keys that there must be in database 0, if that is known.
    pub fn keys_of_first(&self) -> Option<usize> {
        if self.selected == Database::ZERO {
            return self.keys();
        }
        self.others
            .get(&Database::ZERO)
            .map_or(Some(0), |(values, unknown)| unknown.is_empty().then_some(values.len()))
    }

    fn select(&mut self, database: Database) {
        let (values, unknown) = self.others.remove(&database).unwrap_or_default();
        let values = std::mem::replace(&mut self.values, values);
        let unknown = std::mem::replace(&mut self.unknown, unknown);
        let left = std::mem::replace(&mut self.selected, database);
        if left == database {
            (self.values, self.unknown) = (values, unknown);
        } else {
            self.others.insert(left, (values, unknown));
        }
    }

    /// Holds a reply against the request that it answers. Whether the same
    /// request gets the same reply another time. `raw` is the reply's bytes.
    pub fn check(&mut self, args: &Args, bytes: &[u8], reply: &Value<'_>, raw: &[u8]) -> bool {
        let made = Made::default();
        let Ok(request) = request(args, bytes, &made, NOW_UNIX_MS) else {
            assert!(reply.error().is_some(), "a refusal, and not {reply:?}");
            return true;
        };
        let is_of_object = matches!(
            request,
            Request::Object { .. } | Request::EachPart { .. } | Request::Steps { .. }
        );
        if is_of_object {
            // Trees are keys that it does not count.
            self.unknown.insert(b"some tree".to_vec());
        }
        if let (Request::Hello(hello), None) = (&request, reply.error()) {
            self.version = hello.version.unwrap_or(self.version);
        }
        let is_of_other = match self.version {
            RespVersion::Resp2 => b"_%~,#(=>|".contains(&raw[0]),
            RespVersion::Resp3 => raw.starts_with(b"$-1") || raw.starts_with(b"*-1"),
        };
        assert!(!is_of_other, "a reply of the other protocol: {}", raw.escape_ascii());
        let is_known = self.knows_keys_of(&request);
        if let Some(expected) = self.foretell(&request, reply) {
            let (asked, got) = (bytes.escape_ascii(), format!("{reply:?}"));
            assert!(expected.is(reply), "to {asked:.200} the map says no {got:.200}");
            self.foretold += 1;
        }
        is_known && self.knows_keys_of(&request)
    }

    /// Whether the reply depends on nothing that the map does not know.
    fn knows_keys_of(&self, request: &Request<'_>) -> bool {
        let knows = |key: &[u8]| !self.unknown.contains(key);
        match request {
            Request::Key(command, _) => command.key().is_some_and(knows),
            Request::Del(keys) | Request::Exists(keys) | Request::MGet(keys) => {
                keys.clone().all(knows)
            }
            Request::MSet(pairs) => pairs.clone().all(|(key, _)| knows(key)),
            Request::DbSize => self.unknown.is_empty(),
            // Of trees it knows nothing.
            Request::Object { .. } | Request::EachPart { .. } | Request::Steps { .. } => false,
            // They tell of the connection, or of the server's state.
            Request::Hello(_) | Request::ClientId | Request::ClientInfo | Request::Info(_) => false,
            Request::Digest | Request::DigestValues(_) => false,
            _ => true,
        }
    }

    fn foretell(&mut self, request: &Request<'_>, reply: &Value<'_>) -> Option<Reply> {
        // Memory may be short by what earlier sessions left to its leases.
        let is_refused = reply.error().is_some();
        match request {
            Request::Key(command, render) => {
                let key = command.key().expect("a command of one key");
                if reply.error().is_some_and(|text| text.starts_with(b"OOM")) {
                    self.forget(key);
                }
                self.key(key, command, *render, is_refused)
            }
            Request::Del(keys) => {
                let mut sum = 0;
                for key in keys.clone() {
                    self.unknown.remove(key).then(|| sum = i64::MIN);
                    sum += self.values.remove(key).is_some() as i64;
                }
                (sum >= 0).then_some(Reply::Number(sum))
            }
            Request::Exists(keys) => {
                let known = keys.clone().all(|key| !self.unknown.contains(key));
                let sum = keys.clone().filter(|key| self.values.contains_key(*key)).count();
                known.then_some(Reply::Number(sum as i64))
            }
            Request::MGet(keys) => {
                let Value::Array(found) = reply else { panic!("an array, and not {reply:?}") };
                assert_eq!(found.len(), keys.len());
                for (key, found) in keys.clone().zip(found) {
                    let value = self.values.get(key).cloned();
                    assert!(self.unknown.contains(key) || Reply::Bytes(value).is(found), "MGET");
                }
                None
            }
            Request::MSet(pairs) => {
                for (key, value) in pairs.clone() {
                    if is_refused {
                        self.forget(key);
                    } else {
                        self.set(key, value.to_vec());
                    }
                }
                (!is_refused).then_some(Reply::Done)
            }
            Request::DbSize => self.keys().map(|keys| Reply::Number(keys as i64)),
            Request::FlushAll => {
                self.values.clear();
                self.unknown.clear();
                self.others.clear();
                Some(Reply::Done)
            }
            Request::Ping(Some(text)) | Request::Echo(text) => {
                Some(Reply::Bytes(Some(text.to_vec())))
            }
            Request::Select(database) => {
                self.select(*database);
                Some(Reply::Done)
            }
            Request::Quit | Request::ClientSetName(_) => Some(Reply::Done),
            _ => None,
        }
    }

    fn set(&mut self, key: &[u8], value: Vec<u8>) {
        self.unknown.remove(key);
        self.values.insert(key.to_vec(), value);
    }

    fn forget(&mut self, key: &[u8]) {
        self.values.remove(key);
        self.unknown.insert(key.to_vec());
    }

    fn key(
        &mut self,
        key: &[u8],
        command: &Command<'_>,
        render: ReplyForm,
        is_refused: bool,
    ) -> Option<Reply> {
        let has_time = matches!(
            command,
            Command::Set { expiry: Expiry::At(_), .. }
                | Command::GetEx { .. }
                | Command::Expire { .. }
        );
        if has_time {
            self.forget(key);
            return None;
        }
        let plain = matches!(
            command,
            Command::Set { condition: Condition::Always, expiry: Expiry::Never, .. }
        );
        if is_refused || self.unknown.contains(key) {
            if plain
                && !is_refused
                && let Command::Set { value, .. } = *command
            {
                self.set(key, value.to_vec());
            }
            return None;
        }
        let old = self.values.get(key);
        if is_of("getex", render) {
            // Not refused: then there is no such key.
            return Some(if old.is_none() { Reply::NotDone } else { Reply::Done });
        }
        self.whole(key, command, render)
    }

    /// What concerns a value as a whole.
    fn whole(&mut self, key: &[u8], command: &Command<'_>, render: ReplyForm) -> Option<Reply> {
        let old = self.values.get(key);
        match *command {
            Command::Get { .. } => Some(Reply::Bytes(old.cloned())),
            Command::Exists { .. } => Some(Reply::Number(old.is_some().into())),
            Command::StrLen { .. } => Some(Reply::Number(length(old))),
            Command::Ttl { .. } => Some(Reply::Number(if old.is_some() { -1 } else { -2 })),
            Command::GetDel { .. } => Some(Reply::Bytes(self.values.remove(key))),
            Command::Append { value, .. } => {
                let value = [old.map_or(&[][..], Vec::as_slice), value].concat();
                let length = value.len() as i64;
                self.set(key, value);
                Some(Reply::Number(length))
            }
            Command::Set { value, condition, get, .. } => {
                let old = old.cloned();
                let is_set = match condition {
                    Condition::Always => true,
                    Condition::IfAbsent => old.is_none(),
                    Condition::IfPresent => old.is_some(),
                };
                if is_set {
                    self.set(key, value.to_vec());
                }
                Some(match (render, is_set) {
                    _ if is_of("setnx", render) => Reply::Number(is_set.into()),
                    _ if get => Reply::Bytes(old),
                    (_, true) => Reply::Done,
                    (_, false) => Reply::NotDone,
                })
            }
            Command::Incr { by, .. } => {
                let text = old.map_or(&b"0"[..], Vec::as_slice);
                let number: i64 = std::str::from_utf8(text).ok()?.parse().ok()?;
                let sum = number.checked_add(by).expect("it was not refused");
                self.set(key, sum.to_string().into_bytes());
                Some(Reply::Number(sum))
            }
            _ => self.part(key, command),
        }
    }

    /// What concerns a part of a value.
    fn part(&mut self, key: &[u8], command: &Command<'_>) -> Option<Reply> {
        let old = self.values.get(key);
        match *command {
            Command::SetRange { offset, value, .. } => {
                let mut whole = old.cloned().unwrap_or_default();
                if !value.is_empty() {
                    let (from, to) = (offset as usize, offset as usize + value.len());
                    whole.resize(whole.len().max(to), 0);
                    whole[from..to].copy_from_slice(value);
                    self.set(key, whole.clone());
                }
                Some(Reply::Number(whole.len() as i64))
            }
            Command::SetBit { offset, bit, .. } => {
                let mut whole = old.cloned().unwrap_or_default();
                let (byte, mask) = (offset as usize / 8, 128 >> (offset % 8));
                whole.resize(whole.len().max(byte + 1), 0);
                let before = whole[byte] & mask != 0;
                whole[byte] = if bit { whole[byte] | mask } else { whole[byte] & !mask };
                self.set(key, whole);
                Some(Reply::Number(before.into()))
            }
            Command::GetRange { start, end, .. } => {
                let value = old.map_or(&[][..], Vec::as_slice);
                let length = value.len() as i64;
                let from_end = |at: i32| at as i64 + if at < 0 { length } else { 0 };
                // Where both count from the end, and the wrong way round.
                let is_none = start < 0 && end < 0 && start > end;
                let (from, to) = (from_end(start).max(0), from_end(end).max(0) + 1);
                let (from, to) = (from.min(length), to.min(length));
                let part =
                    if is_none || from >= to { &[] } else { &value[from as usize..to as usize] };
                Some(Reply::Bytes(Some(part.to_vec())))
            }
            Command::GetBit { offset, .. } => {
                let byte = old.and_then(|value| value.get(offset as usize / 8)).unwrap_or(&0);
                Some(Reply::Number((byte & 128 >> (offset % 8) != 0).into()))
            }
            _ => None,
        }
    }
}
