//! Lists: queues of elements of one length. To the model a list is the string of all elements.

use super::key_type::{FAR_MS, KeyType, ask, parts};
use crate::state::{Change, State, WHOLE};
use anyhow::bail;
use rand::RngExt;
use rand::rngs::ChaCha8Rng;
use remora_client::{Error, Session};
use remora_command_line::Connection;
use remora_resp::Value;

const ELEMENT_BYTES: usize = 24;
/// Elements of a list that does not grow any more: it has long left its record by then.
const MOST_ELEMENTS: usize = 600;
/// How long a writer waits for elements, s.
const WAIT_S: &[u8] = b"0.05";

pub struct Lists;

impl KeyType for Lists {
    fn name(&self) -> &'static str {
        "list"
    }

    fn draw(&self, state: &State, rng: &mut ChaCha8Rng) -> Change {
        let elements = state.string().unwrap_or_default().len() / ELEMENT_BYTES;
        match rng.random_range(0..1000) {
            0..10 if elements > 0 => Change::Delete,
            10..40 if elements > 0 => Change::ExpireAt(FAR_MS + rng.random_range(0..1000)),
            dice if elements > 0 && (dice < 400 || elements > MOST_ELEMENTS) => {
                Change::Cut(rng.random_range(1..8) * ELEMENT_BYTES)
            }
            _ => {
                let mut pushed = vec![0; rng.random_range(1..12) * ELEMENT_BYTES];
                pushed.iter_mut().for_each(|byte| *byte = rng.random());
                Change::Append(pushed)
            }
        }
    }

    fn command(&self, key: &[u8], change: &Change) -> Vec<Vec<u8>> {
        match change {
            Change::Append(bytes) => {
                let elements = bytes.chunks(ELEMENT_BYTES).map(<[u8]>::to_vec);
                parts(&[b"RPUSH", key]).into_iter().chain(elements).collect()
            }
            Change::Cut(bytes) => {
                let count = bytes / ELEMENT_BYTES;
                let text = count.to_string();
                match count % 2 {
                    0 => parts(&[b"LPOP", key, text.as_bytes()]),
                    // It waits only for elements that a crash has taken.
                    _ => parts(&[b"BLMPOP", WAIT_S, b"1", key, b"LEFT", b"COUNT", text.as_bytes()]),
                }
            }
            other => unreachable!("no change of a list: {other:?}"),
        }
    }

    fn change(&self, session: &mut Session, key: &[u8], change: &Change) -> Result<(), Error> {
        let mut list = session.list(key)?;
        match change {
            Change::Append(bytes) => {
                let elements: Vec<&[u8]> = bytes.chunks(ELEMENT_BYTES).collect();
                list.push_back(&elements).map(drop)
            }
            Change::Cut(bytes) => list.pop_front((bytes / ELEMENT_BYTES) as u64).map(drop),
            other => unreachable!("no change of a list: {other:?}"),
        }
    }

    fn parts(&self, resp: &mut Connection, key: &[u8]) -> anyhow::Result<State> {
        let value = self.head(resp, key)?;
        let parts = value.map(|value| (WHOLE.to_vec(), value)).into_iter().collect();
        Ok(State { parts, expires_at_ms: None })
    }

    fn head(&self, resp: &mut Connection, key: &[u8]) -> anyhow::Result<Option<Vec<u8>>> {
        let Value::Array(elements) = ask(resp, &[b"LRANGE", key, b"0", b"-1"])? else {
            bail!("LRANGE is not answered by an array");
        };
        let mut all = Vec::new();
        for element in &elements {
            let Value::Bulk(element) = element else { bail!("an element is none: {element:?}") };
            all.extend_from_slice(element);
        }
        Ok(Some(all).filter(|all| !all.is_empty()))
    }

    fn head_by_client(&self, session: &mut Session, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let all = session.list(key)?.range(0, -1)?.items.concat();
        Ok(Some(all).filter(|all| !all.is_empty()))
    }
}
