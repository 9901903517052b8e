//! The graph as sets over RESP, as Redis users store one: a set of numbers for each vertex, and a
//! search that sends the SMEMBERS of a level in a pipeline.

use super::graph::{Graph, Levels};
use crate::costs::Costs;
use crate::meter::Meter;
use anyhow::{bail, ensure};
use remora_command_line::{Connection, unavailable};
use remora_resp::Value;

/// Members of one SADD, and SADDs that are sent together.
const MEMBERS: usize = 1_000;
const LOADED_TOGETHER: usize = 64;
/// Batches of a level whose replies are awaited at a time: the server works on one while the client
/// takes the replies to another.
const BATCHES_UNDER_WAY: usize = 2;

/// A connection to a server with the graph's sets.
#[derive(Debug)]
pub struct Sets {
    connection: Connection,
    asked: u64,
}

impl Sets {
    /// Connects to `HOST:PORT`.
    pub fn open(address: &str) -> anyhow::Result<Self> {
        let connection = Connection::connect(address)
            .map_err(|error| unavailable(format!("RESP over tcp: {error:#}")))?;
        Ok(Self { connection, asked: 0 })
    }

    /// Stores the graph.
    pub fn store(&mut self, graph: &Graph) -> anyhow::Result<()> {
        let mut sent = 0;
        for (at, id) in graph.ids().iter().enumerate() {
            let members: Vec<String> = graph.follows(at).map(|to| to.to_string()).collect();
            for members in members.chunks(MEMBERS) {
                self.connection.push_header(2 + members.len());
                self.connection.push_part(b"SADD");
                self.connection.push_part(key(*id).as_bytes());
                members.iter().for_each(|member| self.connection.push_part(member.as_bytes()));
                sent += 1;
            }
            if sent >= LOADED_TOGETHER {
                self.take_stored(std::mem::take(&mut sent))?;
            }
        }
        self.take_stored(sent)
    }

    fn take_stored(&mut self, sent: usize) -> anyhow::Result<()> {
        self.connection.flush()?;
        for _ in 0..sent {
            match self.connection.reply()? {
                Value::Integer(_) => {}
                other => bail!("unexpected reply to SADD: {other:?}"),
            }
        }
        Ok(())
    }

    /// Searches the graph; up to `batch` requests are sent together.
    pub fn search(
        &mut self,
        graph: &Graph,
        source: u32,
        batch: usize,
        meter: &mut Meter,
    ) -> anyhow::Result<Levels> {
        let most = graph.ids().last().map_or(0, |id| *id as usize);
        let mut seen = vec![false; most + 1];
        seen[source as usize] = true;
        let (mut level, mut levels) = (vec![source], Levels::default());
        while !level.is_empty() {
            levels.0.push(level.len() as u64);
            let mut next = Vec::new();
            let mut sent = level.chunks(batch);
            let mut under_way = std::collections::VecDeque::new();
            loop {
                while under_way.len() < BATCHES_UNDER_WAY {
                    let Some(users) = sent.next() else { break };
                    self.ask(users)?;
                    under_way.push_back(users.len());
                }
                let Some(users) = under_way.pop_front() else { break };
                meter.measure(users as u64, |_| {
                    (0..users).try_for_each(|_| self.take_members(&mut seen, &mut next))
                })?;
            }
            level = next;
        }
        Ok(levels)
    }

    fn ask(&mut self, users: &[u32]) -> anyhow::Result<()> {
        for id in users {
            self.connection.push(&[b"SMEMBERS", key(*id).as_bytes()]);
        }
        self.asked += users.len() as u64;
        self.connection.flush()
    }

    fn take_members(&mut self, seen: &mut [bool], next: &mut Vec<u32>) -> anyhow::Result<()> {
        let members = match self.connection.reply()? {
            Value::Array(members) => members,
            other => bail!("unexpected reply to SMEMBERS: {other:?}"),
        };
        for member in members {
            let Value::Bulk(text) = member else { bail!("a member that is no bulk string") };
            let id: u32 = std::str::from_utf8(text)?.parse()?;
            ensure!((id as usize) < seen.len(), "a member that nothing stored");
            if !std::mem::replace(&mut seen[id as usize], true) {
                next.push(id);
            }
        }
        Ok(())
    }

    /// Its costs so far.
    pub fn costs(&self) -> Costs {
        Costs {
            round_trips: self.connection.flushes(),
            bytes: self.connection.bytes(),
            asked: self.asked,
            ..Costs::default()
        }
    }
}

fn key(id: u32) -> String {
    format!("follow:{id}")
}
