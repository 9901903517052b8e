//! Hashes: small ones lie in one record, larger ones in many.

use super::key_type::{KeyType, ask, bytes, draw_parts, parts};
use crate::state::{Change, HEAD, State};
use anyhow::bail;
use rand::rngs::ChaCha8Rng;
use remora_client::{Error, Session};
use remora_command_line::Connection;
use remora_resp::Value;

/// Enough that a hash leaves its record.
const FIELDS: u32 = 48;
const MOST_VALUE_BYTES: usize = 2048;

pub struct Hashes;

impl KeyType for Hashes {
    fn name(&self) -> &'static str {
        "hash"
    }

    fn draw(&self, state: &State, rng: &mut ChaCha8Rng) -> Change {
        draw_parts(state, rng, FIELDS, |rng| bytes(rng, MOST_VALUE_BYTES))
    }

    fn command(&self, key: &[u8], change: &Change) -> Vec<Vec<u8>> {
        match change {
            Change::Put(fields) => {
                let mut command = parts(&[b"HSET", key]);
                for (name, value) in fields {
                    command.extend([name.clone(), value.clone()]);
                }
                command
            }
            Change::Take(name) => parts(&[b"HDEL", key, name]),
            other => unreachable!("no change of a hash: {other:?}"),
        }
    }

    fn change(&self, session: &mut Session, key: &[u8], change: &Change) -> Result<(), Error> {
        let mut hash = session.hash(key)?;
        match change {
            Change::Put(fields) => {
                let fields: Vec<(&[u8], &[u8])> =
                    fields.iter().map(|(name, value)| (&name[..], &value[..])).collect();
                hash.set(&fields).map(drop)
            }
            Change::Take(name) => hash.remove(&[name]).map(drop),
            other => unreachable!("no change of a hash: {other:?}"),
        }
    }

    fn parts(&self, resp: &mut Connection, key: &[u8]) -> anyhow::Result<State> {
        let Value::Array(list) = ask(resp, &[b"HGETALL", key])? else {
            bail!("HGETALL is not answered by an array");
        };
        let mut state = State::default();
        for pair in list.chunks(2) {
            let [Value::Bulk(name), Value::Bulk(value)] = pair else {
                bail!("HGETALL gives no names and values: {pair:?}");
            };
            state.parts.insert(name.to_vec(), value.to_vec());
        }
        Ok(state)
    }

    fn head(&self, resp: &mut Connection, key: &[u8]) -> anyhow::Result<Option<Vec<u8>>> {
        match ask(resp, &[b"HGET", key, HEAD])? {
            Value::Bulk(value) => Ok(Some(value.to_vec())),
            Value::Null => Ok(None),
            other => bail!("unexpected reply to HGET: {other:?}"),
        }
    }

    fn head_by_client(&self, session: &mut Session, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        Ok(session.hash(key)?.get(HEAD)?.value.map(<[u8]>::to_vec))
    }
}
