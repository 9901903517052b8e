//! Commands to a server, or to the servers of a cluster: each goes to the primary of its key's slot.

use anyhow::{Context, bail};
use remora_command_line::Connection;
use remora_layout::slot::slot_of;
use remora_resp::Value;
use std::time::Duration;

/// A server that does not answer for so long is away: an acknowledgement waits for disk and replicas.
const REPLY_LIMIT: Duration = Duration::from_secs(60);
/// Keys of one step of a SCAN; those of them that are removed are under way together.
const SCAN_KEYS: &[u8] = b"1000";

/// A reply that is kept.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// Nothing.
    Null,
    /// A number.
    Number(i64),
    /// A text.
    Text(Vec<u8>),
    /// Several.
    List(Vec<Reply>),
}

/// A connection to a server, or one to each primary of a cluster.
pub struct Server {
    connections: Vec<Connection>,
    /// The slots of a cluster: first, last, and the number of the connection.
    slots: Vec<(u16, u16, usize)>,
}

impl Server {
    /// Connects to `HOST:PORT`, and to the other primaries if it is one of a cluster. If slots move to
    /// other servers later, the servers refuse.
    ///
    /// # Errors
    /// A server is away, or a cluster has slots without one.
    pub fn connect(address: &str) -> anyhow::Result<Self> {
        let mut server = Self { connections: vec![connect(address)?], slots: Vec::new() };
        let enabled = server.connections[0].info_of("cluster", "cluster_enabled")?;
        if enabled.as_deref() == Some("1") {
            let slots = server.ask(&[b"CLUSTER", b"SLOTS"])?;
            let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
            server.connect_to_all(host, slots)?;
        }
        Ok(server)
    }

    fn connect_to_all(&mut self, own_host: &str, slots: Reply) -> anyhow::Result<()> {
        let Reply::List(ranges) = slots else { bail!("CLUSTER SLOTS: unexpected reply") };
        let mut addresses: Vec<String> = Vec::new();
        self.connections.clear();
        for range in ranges {
            let (first, last, host, port) = primary_of(&range).context("CLUSTER SLOTS")?;
            let host = if host.is_empty() { own_host.to_owned() } else { host };
            let address = format!("{host}:{port}");
            let known = addresses.iter().position(|known| *known == address);
            let number = match known {
                Some(number) => number,
                None => {
                    self.connections.push(connect(&address)?);
                    addresses.push(address);
                    addresses.len() - 1
                }
            };
            self.slots.push((first, last, number));
        }
        Ok(())
    }

    /// The connections, on which nothing is awaited.
    pub fn connections(&mut self) -> &mut [Connection] {
        &mut self.connections
    }

    /// The number of the connection for a key.
    ///
    /// # Errors
    /// No server has its slot.
    pub fn number_of(&self, key: &[u8]) -> anyhow::Result<usize> {
        if self.slots.is_empty() {
            return Ok(0);
        }
        let slot = slot_of(key);
        let mut ranges = self.slots.iter();
        let range = ranges.find(|(first, last, _)| (*first..=*last).contains(&slot));
        range.map(|(.., number)| *number).with_context(|| format!("no server has slot {slot}"))
    }

    /// Asks, and waits for the reply. The second word is the key.
    ///
    /// # Errors
    /// The server is away, or refuses.
    pub fn ask(&mut self, words: &[&[u8]]) -> anyhow::Result<Reply> {
        let number = self.number_of(words[1])?;
        ask(&mut self.connections[number], words)
    }

    /// The same for a number.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub fn ask_number(&mut self, words: &[&[u8]]) -> anyhow::Result<i64> {
        match self.ask(words)? {
            Reply::Number(number) => Ok(number),
            other => bail!("unexpected reply: {other:?}"),
        }
    }

    /// The same for a text, or none.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub fn ask_text(&mut self, words: &[&[u8]]) -> anyhow::Result<Option<String>> {
        match self.ask(words)? {
            Reply::Text(text) => Ok(Some(String::from_utf8_lossy(&text).into_owned())),
            Reply::Null => Ok(None),
            other => bail!("unexpected reply: {other:?}"),
        }
    }

    /// Removes the keys of a pattern that `wanted` says, some at a time; returns how many. `pause` is
    /// called between.
    ///
    /// # Errors
    /// As [`Self::ask`], or what `pause` returns.
    pub fn remove(
        &mut self,
        pattern: &str,
        wanted: impl Fn(&[u8]) -> bool,
        mut pause: impl FnMut(&mut Self) -> anyhow::Result<()>,
    ) -> anyhow::Result<u64> {
        let mut removed = 0;
        for number in 0..self.connections.len() {
            let mut cursor = b"0".to_vec();
            loop {
                let connection = &mut self.connections[number];
                cursor = remove_some(connection, pattern, &cursor, &wanted, &mut removed)?;
                if cursor == b"0" {
                    break;
                }
                pause(self)?;
            }
        }
        Ok(removed)
    }
}

fn connect(address: &str) -> anyhow::Result<Connection> {
    let connection = Connection::connect(address)?;
    connection.limit_waiting(REPLY_LIMIT)?;
    Ok(connection)
}

/// A range of CLUSTER SLOTS: first and last slot, host and port of the primary.
fn primary_of(range: &Reply) -> Option<(u16, u16, String, i64)> {
    let Reply::List(parts) = range else { return None };
    let [Reply::Number(first), Reply::Number(last), Reply::List(primary), ..] = &parts[..] else {
        return None;
    };
    let [Reply::Text(host), Reply::Number(port), ..] = &primary[..] else { return None };
    let host = String::from_utf8_lossy(host).into_owned();
    Some(((*first).try_into().ok()?, (*last).try_into().ok()?, host, *port))
}

fn ask(connection: &mut Connection, words: &[&[u8]]) -> anyhow::Result<Reply> {
    connection.push(words);
    connection.flush()?;
    let shown = || words[..words.len().min(2)].join(&b' ').escape_ascii().to_string();
    keep(connection.reply()?).with_context(shown)
}

/// A step of a scan, and the removal of what it finds. Returns the next cursor.
fn remove_some(
    connection: &mut Connection,
    pattern: &str,
    cursor: &[u8],
    wanted: impl Fn(&[u8]) -> bool,
    removed: &mut u64,
) -> anyhow::Result<Vec<u8>> {
    let scan: [&[u8]; 6] = [b"SCAN", cursor, b"MATCH", pattern.as_bytes(), b"COUNT", SCAN_KEYS];
    let Reply::List(parts) = ask(connection, &scan)? else { bail!("SCAN: unexpected reply") };
    let [Reply::Text(next), Reply::List(keys)] = &parts[..] else {
        bail!("SCAN: unexpected reply");
    };
    let mut under_way = 0;
    for key in keys {
        if let Reply::Text(key) = key
            && wanted(key)
        {
            // One by one: in a cluster a command has keys of one slot.
            connection.push(&[b"UNLINK", key]);
            under_way += 1;
        }
    }
    connection.flush()?;
    for _ in 0..under_way {
        let reply = keep(connection.reply()?).context("UNLINK")?;
        *removed += u64::from(reply == Reply::Number(1));
    }
    Ok(next.clone())
}

fn keep(value: Value<'_>) -> anyhow::Result<Reply> {
    Ok(match value {
        Value::Null => Reply::Null,
        Value::Integer(number) => Reply::Number(number),
        Value::Bulk(text) | Value::Simple(text) => Reply::Text(text.to_vec()),
        Value::Array(values) => {
            Reply::List(values.into_iter().map(keep).collect::<Result<_, _>>()?)
        }
        Value::Error(text) => bail!("the server says: {}", String::from_utf8_lossy(text)),
        other => bail!("unexpected reply: {other:?}"),
    })
}
