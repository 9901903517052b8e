//! A RESP connection over TCP, as any Redis client has it.

use super::target::{Request, Target};
use crate::costs::Costs;
use anyhow::{bail, ensure};
use remora_command_line::{Connection, unavailable};
use remora_resp::Value;

/// A connection and the count of its requests.
#[derive(Debug)]
pub struct RespTarget {
    connection: Connection,
    asked: u64,
}

impl RespTarget {
    /// Connects to `HOST:PORT`.
    pub fn open(address: &str) -> anyhow::Result<Self> {
        let connection = Connection::connect(address)
            .map_err(|error| unavailable(format!("RESP over tcp: {error:#}")))?;
        Ok(Self { connection, asked: 0 })
    }

    fn see_bulk(&mut self, see: impl FnOnce(Option<&[u8]>)) -> anyhow::Result<()> {
        match self.connection.reply()? {
            Value::Bulk(value) => see(Some(value)),
            Value::Null => see(None),
            other => return refuse(&other),
        }
        Ok(())
    }
}

fn refuse(reply: &Value<'_>) -> anyhow::Result<()> {
    match reply {
        Value::Error(text) => bail!("the server says: {}", String::from_utf8_lossy(text)),
        other => bail!("unexpected reply: {other:?}"),
    }
}

impl Target for RespTarget {
    const IS_SHORT: bool = false;

    fn get(&mut self, key: &[u8], see: impl FnOnce(Option<&[u8]>)) -> anyhow::Result<()> {
        self.send(Request::Get(key))?;
        self.flush()?;
        self.see_bulk(see)
    }

    fn set(&mut self, key: &[u8], value: &[u8]) -> anyhow::Result<()> {
        self.send(Request::Set(key, value))?;
        self.flush()?;
        self.receive(false, |_| {})
    }

    fn get_batch(
        &mut self,
        keys: &[&[u8]],
        see: &mut dyn FnMut(usize, Option<&[u8]>),
    ) -> anyhow::Result<()> {
        self.connection.push_header(keys.len() + 1);
        self.connection.push_part(b"MGET");
        for key in keys {
            self.connection.push_part(key);
        }
        self.asked += keys.len() as u64;
        self.flush()?;
        let values = match self.connection.reply()? {
            Value::Array(values) => values,
            other => return refuse(&other),
        };
        ensure!(values.len() == keys.len(), "a reply of another length");
        for (position, value) in values.iter().enumerate() {
            match value {
                Value::Bulk(value) => see(position, Some(value)),
                Value::Null => see(position, None),
                other => return refuse(other),
            }
        }
        Ok(())
    }

    fn send(&mut self, request: Request<'_>) -> anyhow::Result<()> {
        self.asked += 1;
        match request {
            Request::Get(key) => self.connection.push(&[b"GET", key]),
            Request::Set(key, value) => self.connection.push(&[b"SET", key, value]),
        }
        Ok(())
    }

    fn flush(&mut self) -> anyhow::Result<()> {
        self.connection.flush()
    }

    fn receive(&mut self, is_get: bool, see: impl FnOnce(Option<&[u8]>)) -> anyhow::Result<()> {
        if is_get {
            return self.see_bulk(see);
        }
        match self.connection.reply()? {
            Value::Simple(b"OK") => Ok(()),
            other => refuse(&other),
        }
    }

    /// None: a pipeline is sent whole and its replies are taken whole, as
    /// `redis-benchmark -P` does it.
    fn kept_outstanding(_depth: usize) -> usize {
        0
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
