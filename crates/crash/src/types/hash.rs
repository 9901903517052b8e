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
/// Longer values are never links.
const MOST_LINK_BYTES: usize = 1024;

pub struct Hashes;

/// Whether a change sets these fields to links. It follows from the values alone, so a change that is sent
/// again is the same. The keys that they name are not there: a link is read as the text of its key.
fn are_links(fields: &[(Vec<u8>, Vec<u8>)]) -> bool {
    let can_be_keys = fields.iter().all(|(_, value)| (1..=MOST_LINK_BYTES).contains(&value.len()));
    can_be_keys && fields.first().is_some_and(|(_, value)| value[0].is_multiple_of(2))
}

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
                let name: &[u8] = if are_links(fields) { b"LINK.SET" } else { b"HSET" };
                let mut command = parts(&[name, key]);
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
                let pairs: Vec<(&[u8], &[u8])> =
                    fields.iter().map(|(name, value)| (&name[..], &value[..])).collect();
                let set = if are_links(fields) { hash.set_links(&pairs) } else { hash.set(&pairs) };
                set.map(drop)
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

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    fn name(values: &[&[u8]]) -> Vec<u8> {
        let put = values.iter().map(|value| (b"f".to_vec(), value.to_vec())).collect();
        let command = Hashes.command(b"k", &Change::Put(put));
        assert_eq!(command.len(), 2 + 2 * values.len());
        command[0].clone()
    }

    #[test]
    fn links_are_values_that_can_be_keys() {
        let (most, longer) = (vec![b'b'; MOST_LINK_BYTES], vec![b'b'; MOST_LINK_BYTES + 1]);
        assert_eq!(name(&[b"b"]), b"LINK.SET");
        assert_eq!(name(&[&most, b"a"]), b"LINK.SET");
        assert_eq!(name(&[b"a", b"b"]), b"HSET");
        assert_eq!(name(&[b"b", &longer]), b"HSET");
        assert_eq!(name(&[b""]), b"HSET");
    }

    #[test]
    fn a_history_sets_links_and_texts() {
        let mut rng = ChaCha8Rng::seed_from_u64(1);
        let (mut state, mut links, mut texts) = (State::default(), 0, 0);
        for _ in 0..1000 {
            let change = Hashes.draw(&state, &mut rng);
            if let Change::Put(fields) = &change {
                *(if are_links(fields) { &mut links } else { &mut texts }) += 1;
            }
            state.apply(&change);
        }
        assert!(links > 200 && texts > 200, "{links} {texts}");
    }
}
