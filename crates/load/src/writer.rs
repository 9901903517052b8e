//! Writes to the server, many of them under way, each known by the row that it comes from.

use crate::convert::Write;
use crate::server::Server;
use anyhow::bail;
use remora_resp::Value;
use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::VecDeque;
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

/// Commands under way at most on a connection; half of them are left when replies are taken, so that the server has
/// work meanwhile.
const OUTSTANDING: usize = 2048;
/// Commands are sent when so many bytes have come together.
const SEND_BYTES: usize = 64 << 10;
/// Elements of one command: a chunk of a list, so that a hub's list delays no other client.
const PUSH_ELEMENTS: usize = 100;
/// Bytes of elements that wait for others of their lists.
const WAITING_BYTES: usize = 4 << 20;
/// Bytes that count for a list that waits, and for an element, beside their texts.
const WAITING_PART_BYTES: usize = 64;
/// Items of which it is known that they were written: 4 MiB.
const KNOWN_ITEMS: usize = 1 << 18;

/// What was written.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug, serde::Serialize)]
pub struct Counts {
    /// Writes of plain fields. An item that several rows write alike may count once or several times.
    pub items: u64,
    /// Links in fields.
    pub links: u64,
    /// Elements of lists.
    pub elements: u64,
}

/// The row that a command comes from: the number of its table, and its own.
pub type Origin = (usize, u64);

/// A refused command.
#[derive(Debug, thiserror::Error)]
#[error("the server says: {text}")]
pub struct Refused {
    /// The row that it came from.
    pub origin: Origin,
    /// The server's words.
    pub text: String,
}

/// Writes to a server, or to those of a cluster.
pub struct Writer<'s> {
    server: &'s mut Server,
    /// For each of its connections.
    lanes: Vec<Lane>,
    waiting: Waiting,
    known: Known,
    counts: Counts,
}

/// What is under way on a connection.
#[derive(Default)]
struct Lane {
    /// The rows of commands without a reply.
    outstanding: VecDeque<Origin>,
    /// Bytes since commands were last sent.
    unsent: usize,
}

impl<'s> Writer<'s> {
    /// A writer to a server from which nothing is awaited.
    pub fn new(server: &'s mut Server) -> Self {
        let lanes = server.connections().iter().map(|_| Lane::default()).collect();
        let (waiting, counts) = Default::default();
        Self { server, lanes, waiting, known: Known::new(), counts }
    }

    /// Writes. An error may be that of a write before.
    ///
    /// # Errors
    /// The server is away, or [`Refused`] one.
    pub fn write(&mut self, origin: Origin, write: &Write<'_>) -> anyhow::Result<()> {
        match write {
            Write::Fields(key, pairs) => {
                if self.known.is_new(b"HSET", key, pairs) {
                    self.counts.items += 1;
                    self.send_pairs(origin, b"HSET", key, pairs)?;
                }
            }
            Write::Links(key, pairs) => {
                if self.known.is_new(b"LINK.SET", key, pairs) {
                    self.counts.links += pairs.len() as u64 / 2;
                    self.send_pairs(origin, b"LINK.SET", key, pairs)?;
                }
            }
            Write::Push(key, target) => {
                self.counts.elements += 1;
                if let Some((origin, elements)) = self.waiting.add(origin, key, target) {
                    self.send_list(origin, key, &elements)?;
                }
                if self.waiting.bytes > WAITING_BYTES {
                    self.send_lists()?;
                }
            }
        }
        Ok(())
    }

    fn send_pairs(
        &mut self,
        origin: Origin,
        command: &[u8],
        key: &[u8],
        pairs: &[Cow<'_, [u8]>],
    ) -> anyhow::Result<()> {
        let parts = pairs.iter().map(|part| &**part);
        self.send(origin, command, key, parts)
    }

    /// Adds elements to a list.
    fn send_list(
        &mut self,
        origin: Origin,
        key: &[u8],
        elements: &[Vec<u8>],
    ) -> anyhow::Result<()> {
        let parts = elements.iter().map(|element| &element[..]);
        self.send(origin, PUSH, key, parts)
    }

    /// Sends all elements that wait.
    fn send_lists(&mut self) -> anyhow::Result<()> {
        for (key, (origin, elements)) in std::mem::take(&mut self.waiting).lists {
            self.send_list(origin, &key, &elements)?;
        }
        Ok(())
    }

    fn send<'a>(
        &mut self,
        origin: Origin,
        command: &'a [u8],
        key: &'a [u8],
        parts: impl ExactSizeIterator<Item = &'a [u8]>,
    ) -> anyhow::Result<()> {
        let number = self.server.number_of(key)?;
        let connection = &mut self.server.connections()[number];
        let lane = &mut self.lanes[number];
        connection.push_header(2 + parts.len());
        for part in [command, key].into_iter().chain(parts) {
            connection.push_part(part);
            lane.unsent += part.len();
        }
        lane.outstanding.push_back(origin);
        if lane.outstanding.len() >= OUTSTANDING {
            self.take_replies(number, OUTSTANDING / 2)?;
        } else if lane.unsent >= SEND_BYTES {
            self.flush(number)?;
        }
        Ok(())
    }

    fn flush(&mut self, number: usize) -> anyhow::Result<()> {
        self.lanes[number].unsent = 0;
        self.server.connections()[number].flush()
    }

    /// Takes replies until so many are left. Reports the first refusal.
    fn take_replies(&mut self, number: usize, left: usize) -> anyhow::Result<()> {
        self.flush(number)?;
        let outstanding = &mut self.lanes[number].outstanding;
        while outstanding.len() > left {
            let reply = self.server.connections()[number].reply()?;
            let origin = outstanding.pop_front().expect("there are more than are left");
            match reply {
                Value::Integer(_) => {}
                Value::Error(text) => {
                    let text = String::from_utf8_lossy(text).into_owned();
                    return Err(Refused { origin, text }.into());
                }
                other => bail!("unexpected reply: {other:?}"),
            }
        }
        Ok(())
    }

    /// Sends what waits, and waits until all is acknowledged.
    ///
    /// # Errors
    /// The server is away, or [`Refused`] a write.
    pub fn settle(&mut self) -> anyhow::Result<()> {
        self.send_lists()?;
        (0..self.lanes.len()).try_for_each(|number| self.take_replies(number, 0))
    }

    /// Waits until all that was sent is answered, whatever the answers are. Elements that wait are not
    /// sent.
    pub fn drain(&mut self) {
        for (lane, connection) in self.lanes.iter_mut().zip(self.server.connections()) {
            let mut is_there = connection.flush().is_ok();
            while is_there && lane.outstanding.pop_front().is_some() {
                is_there = connection.reply().is_ok();
            }
        }
    }

    /// What was written.
    pub fn counts(&self) -> Counts {
        self.counts
    }
}

/// Adds links to the end of a list.
const PUSH: &[u8] = b"LINK.PUSH";

/// Elements that wait for others of their lists, in the order of their rows.
#[derive(Default)]
struct Waiting {
    /// For each list the row of its first element, and the elements.
    lists: HashMap<Vec<u8>, (Origin, Vec<Vec<u8>>)>,
    bytes: usize,
}

impl Waiting {
    /// Adds an element. Returns those of its list once they are enough for a command.
    fn add(&mut self, origin: Origin, key: &[u8], target: &[u8]) -> Option<(Origin, Vec<Vec<u8>>)> {
        self.bytes += target.len() + WAITING_PART_BYTES;
        let Some((_, elements)) = self.lists.get_mut(key) else {
            self.bytes += key.len() + WAITING_PART_BYTES;
            self.lists.insert(key.to_vec(), (origin, vec![target.to_vec()]));
            return None;
        };
        elements.push(target.to_vec());
        if elements.len() < PUSH_ELEMENTS {
            return None;
        }
        let all = self.lists.remove(key)?;
        let texts: usize = all.1.iter().map(|target| target.len() + WAITING_PART_BYTES).sum();
        self.bytes = self.bytes.saturating_sub(texts + key.len() + WAITING_PART_BYTES);
        Some(all)
    }
}

/// Items that were written lately: a list of edges names each of its users in many rows.
struct Known {
    /// A place for each remainder of a key's hash: the hash of the last write there.
    writes: Vec<u128>,
}

impl Known {
    fn new() -> Self {
        Self { writes: vec![0; KNOWN_ITEMS] }
    }

    /// Whether the same was not written before. A write that differs takes the place of the one before,
    /// so that the last one counts.
    fn is_new(&mut self, command: &[u8], key: &[u8], pairs: &[Cow<'_, [u8]>]) -> bool {
        let mut write = Xxh3::new();
        for part in [command, key].into_iter().chain(pairs.iter().map(|part| &**part)) {
            write.update(&part.len().to_le_bytes());
            write.update(part);
        }
        let write = write.digest128();
        let place = &mut self.writes[xxh3_64(key) as usize % KNOWN_ITEMS];
        std::mem::replace(place, write) != write
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_of_different_writes_is_never_left_out() {
        let mut known = Known::new();
        let one = [Cow::from(&b"n"[..]), Cow::from(&b"1"[..])];
        let two = [Cow::from(&b"n"[..]), Cow::from(&b"2"[..])];
        let is_new = [&one, &one, &two, &one, &one].map(|pairs| known.is_new(b"HSET", b"k", pairs));
        assert_eq!(is_new, [true, false, true, true, false]);
        assert!(known.is_new(b"LINK.SET", b"k", &one));
    }

    #[test]
    fn elements_wait_for_their_chunk_and_what_waits_is_counted() {
        let mut waiting = Waiting::default();
        for number in 1..PUSH_ELEMENTS as u64 {
            assert!(waiting.add((0, number), b"hub", b"t").is_none());
            assert!(waiting.add((0, number), format!("l{number}").as_bytes(), b"t").is_none());
        }
        let (origin, elements) = waiting.add((0, 500), b"hub", b"t").unwrap();
        assert_eq!((origin, elements.len()), ((0, 1), PUSH_ELEMENTS));
        let lists: usize = waiting
            .lists
            .iter()
            .map(|(key, (_, elements))| {
                let elements = elements.iter().map(|text| text.len() + WAITING_PART_BYTES);
                key.len() + WAITING_PART_BYTES + elements.sum::<usize>()
            })
            .sum();
        assert_eq!(waiting.bytes, lists);
    }
}
