//! Ordered trees: keys in order with values. Keys and values have all lengths that a tree takes, so that nodes
//! are divided and joined.

use super::key_type::{KeyType, ask, draw_parts, parts};
use crate::state::{Change, HEAD, State};
use anyhow::bail;
use rand::RngExt;
use rand::rngs::ChaCha8Rng;
use remora_client::{Error, Session};
use remora_command_line::Connection;
use remora_resp::Value;

/// Enough for some levels.
const KEYS: u32 = 600;
/// Of values in leaves: the default of `BTREE.CREATE`.
const VALUE_BYTES: usize = 256;

pub struct OrderedTrees;

impl KeyType for OrderedTrees {
    fn name(&self) -> &'static str {
        "ordered"
    }

    fn draw(&self, state: &State, rng: &mut ChaCha8Rng) -> Change {
        // A tree stays when its last key goes, and an empty one is no state of the model.
        let change = draw_parts(state, rng, KEYS, |rng| {
            // Some lie in records.
            let most = if rng.random_ratio(1, 8) { 10 * VALUE_BYTES } else { VALUE_BYTES };
            let bytes = rng.random_range(0..=most);
            (0..bytes).map(|_| rng.random()).collect()
        });
        if matches!(change, Change::Take(_)) && state.parts.len() == 1 {
            return Change::Delete;
        }
        change
    }

    fn command(&self, key: &[u8], change: &Change) -> Vec<Vec<u8>> {
        match change {
            Change::Put(entries) => {
                let (name, value) = &entries[0];
                parts(&[b"BTREE.SET", key, name, value])
            }
            Change::Take(name) => parts(&[b"BTREE.DEL", key, name]),
            other => unreachable!("no change of an ordered tree: {other:?}"),
        }
    }

    fn change(&self, session: &mut Session, key: &[u8], change: &Change) -> Result<(), Error> {
        let mut tree = session.ordered(key)?;
        match change {
            Change::Put(entries) => {
                let (name, value) = &entries[0];
                tree.set(name, value).map(drop)
            }
            Change::Take(name) => tree.remove(name).map(drop),
            other => unreachable!("no change of an ordered tree: {other:?}"),
        }
    }

    fn parts(&self, resp: &mut Connection, key: &[u8]) -> anyhow::Result<State> {
        let mut state = State::default();
        let Value::Array(list) = ask(resp, &[b"BTREE.RANGE", key, b"-", b"+"])? else {
            bail!("BTREE.RANGE is not answered by an array");
        };
        for pair in list.chunks(2) {
            let [Value::Bulk(name), Value::Bulk(value)] = pair else {
                bail!("BTREE.RANGE gives no keys and values: {pair:?}");
            };
            state.parts.insert(name.to_vec(), value.to_vec());
        }
        // The counts beside the nodes say the same.
        let counted = ask(resp, &[b"BTREE.COUNT", key, b"-", b"+"])?;
        let found = state.parts.len() as i64;
        if counted != Value::Integer(found) {
            state.parts.insert(b"count".to_vec(), format!("{counted:?} of {found}").into_bytes());
        }
        Ok(state)
    }

    fn head(&self, resp: &mut Connection, key: &[u8]) -> anyhow::Result<Option<Vec<u8>>> {
        match ask(resp, &[b"BTREE.GET", key, HEAD])? {
            Value::Bulk(value) => Ok(Some(value.to_vec())),
            Value::Null => Ok(None),
            other => bail!("unexpected reply to BTREE.GET: {other:?}"),
        }
    }

    fn head_by_client(&self, session: &mut Session, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        Ok(session.ordered(key)?.get(HEAD)?.value.map(|got| got.value))
    }
}
