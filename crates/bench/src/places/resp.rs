//! A tree over RESP, as any Redis client has it.

use super::target::Places;
use crate::costs::Costs;
use anyhow::{Context, bail};
use remora_client_core::Rect;
use remora_command_line::{Connection, unavailable};
use remora_resp::Value;

/// A connection and the count of its requests.
pub struct RespPlaces {
    connection: Connection,
    tree: &'static [u8],
    asked: u64,
}

impl RespPlaces {
    /// Connects to `HOST:PORT`; the tree is there.
    pub fn open(address: &str, tree: &'static [u8]) -> anyhow::Result<Self> {
        let connection = Connection::connect(address)
            .map_err(|error| unavailable(format!("RESP over tcp: {error:#}")))?;
        Ok(Self { connection, tree, asked: 0 })
    }

    /// Sends a command about the tree, with a rectangle behind it.
    fn ask(&mut self, parts: &[&[u8]], rect: &Rect) -> anyhow::Result<()> {
        self.connection.push_header(parts.len() + 4);
        parts.iter().for_each(|part| self.connection.push_part(part));
        for edge in [rect.min_x, rect.min_y, rect.max_x, rect.max_y] {
            // The shortest text that is exactly this number.
            self.connection.push_part(format!("{edge:?}").as_bytes());
        }
        self.asked += 1;
        self.connection.flush()
    }
}

/// An id: an integer, or text if it is beyond one of RESP's.
fn id(value: &Value<'_>) -> anyhow::Result<u64> {
    match value {
        Value::Integer(id) => Ok(u64::try_from(*id)?),
        Value::Bulk(text) => Ok(std::str::from_utf8(text)?.parse()?),
        other => bail!("an id was expected: {other:?}"),
    }
}

fn refuse(reply: &Value<'_>) -> anyhow::Error {
    match reply {
        Value::Error(text) => anyhow::anyhow!("the server says: {}", String::from_utf8_lossy(text)),
        other => anyhow::anyhow!("unexpected reply: {other:?}"),
    }
}

impl Places for RespPlaces {
    fn search(
        &mut self,
        window: &Rect,
        see: &mut dyn FnMut(u64, Option<&Rect>),
    ) -> anyhow::Result<Option<u64>> {
        self.ask(&[b"RTREE.SEARCH", self.tree], window)?;
        match self.connection.reply()? {
            Value::Array(ids) => {
                for value in &ids {
                    see(id(value).context("RTREE.SEARCH")?, None);
                }
                Ok(None)
            }
            other => Err(refuse(&other)),
        }
    }

    fn put(&mut self, id: u64, rect: Rect) -> anyhow::Result<bool> {
        self.ask(&[b"RTREE.ADD", self.tree, id.to_string().as_bytes()], &rect)?;
        match self.connection.reply()? {
            Value::Integer(added) => Ok(added == 1),
            other => Err(refuse(&other)),
        }
    }

    fn costs(&self) -> Costs {
        Costs {
            round_trips: self.connection.flushes(),
            bytes: self.connection.bytes(),
            asked: self.asked,
            ..Costs::default()
        }
    }
}
