//! Strings: values of any size, counters, values that grow.

use super::key_type::{FAR_MS, KeyType, ask, bytes, parts};
use crate::state::{Change, State, WHOLE};
use anyhow::bail;
use rand::RngExt;
use rand::rngs::ChaCha8Rng;
use remora_client::{Error, Session};
use remora_command_line::Connection;
use remora_resp::Value;

/// A value that is longer than this does not grow any more.
const MOST_APPENDED: usize = 8 << 10;
/// A value that goes in pieces.
const LARGE_BYTES: usize = 400 << 10;

pub struct Strings;

impl KeyType for Strings {
    fn name(&self) -> &'static str {
        "string"
    }

    fn draw(&self, state: &State, rng: &mut ChaCha8Rng) -> Change {
        let Some(value) = state.string() else {
            let is_counter = rng.random_bool(0.3);
            return if is_counter { Change::Add(1) } else { Change::Set(bytes(rng, 1 << 16)) };
        };
        match rng.random_range(0..1000) {
            0..30 => Change::Delete,
            30..70 => Change::ExpireAt(FAR_MS + rng.random_range(0..1000)),
            70..73 => Change::Set(vec![rng.random(); LARGE_BYTES + rng.random_range(0..65536)]),
            _ if state.integer().is_some() => Change::Add(rng.random_range(-9..100)),
            73..300 if value.len() < MOST_APPENDED => Change::Append(bytes(rng, 256)),
            _ => Change::Set(bytes(rng, 1 << 16)),
        }
    }

    fn command(&self, key: &[u8], change: &Change) -> Vec<Vec<u8>> {
        match change {
            Change::Append(bytes) => parts(&[b"APPEND", key, bytes]),
            Change::Add(by) => parts(&[b"INCRBY", key, by.to_string().as_bytes()]),
            Change::Set(value) => parts(&[b"SET", key, value]),
            other => unreachable!("no change of a string: {other:?}"),
        }
    }

    fn change(&self, session: &mut Session, key: &[u8], change: &Change) -> Result<(), Error> {
        match change {
            Change::Append(bytes) => session.string(key).append(bytes).map(drop),
            Change::Add(by) => session.string(key).increment(*by).map(drop),
            Change::Set(value) => session.set(key, value),
            other => unreachable!("no change of a string: {other:?}"),
        }
    }

    fn parts(&self, resp: &mut Connection, key: &[u8]) -> anyhow::Result<State> {
        let value = self.head(resp, key)?;
        let parts = value.map(|value| (WHOLE.to_vec(), value)).into_iter().collect();
        Ok(State { parts, expires_at_ms: None })
    }

    fn head(&self, resp: &mut Connection, key: &[u8]) -> anyhow::Result<Option<Vec<u8>>> {
        match ask(resp, &[b"GET", key])? {
            Value::Bulk(value) => Ok(Some(value.to_vec())),
            Value::Null => Ok(None),
            other => bail!("unexpected reply to GET: {other:?}"),
        }
    }

    fn head_by_client(&self, session: &mut Session, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        Ok(session.get(key)?.value.map(<[u8]>::to_vec))
    }
}
