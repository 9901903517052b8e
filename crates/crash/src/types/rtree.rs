//! Trees of places: an object is a point and bytes beside it.
//!
//! An object's value here is `X Y BYTES`, so that its place and what it carries are compared
//! together.

use super::key_type::{KeyType, ask, draw_parts, parts};
use crate::state::{Change, HEAD, State};
use anyhow::{Context, bail};
use rand::RngExt;
use rand::rngs::ChaCha8Rng;
use remora_client::{Error, NewObject, Rect, Refusal, Session};
use remora_command_line::Connection;
use remora_resp::Value;

/// More than one node has room for.
const OBJECTS: u32 = 80;
/// Coordinates are whole numbers below.
const WIDTH: u32 = 1000;

pub struct Trees;

/// The coordinates and the bytes of an object's value.
fn split(value: &[u8]) -> (&str, &str, &[u8]) {
    let mut words = value.splitn(3, |byte| *byte == b' ');
    let mut word = || words.next().unwrap_or_default();
    let (x, y, data) = (word(), word(), word());
    (std::str::from_utf8(x).unwrap_or("0"), std::str::from_utf8(y).unwrap_or("0"), data)
}

fn joined(x: &str, y: &str, data: &[u8]) -> Vec<u8> {
    [format!("{x} {y} ").as_bytes(), data].concat()
}

fn is_no_tree(error: Error) -> bool {
    matches!(error.refusal(), Some(Refusal::NoTree | Refusal::NoKey))
}

impl KeyType for Trees {
    fn name(&self) -> &'static str {
        "rtree"
    }

    fn draw(&self, state: &State, rng: &mut ChaCha8Rng) -> Change {
        // A tree stays when its last object goes, and an empty one is no state of the model.
        let change = draw_parts(state, rng, OBJECTS, |rng| {
            let at = [0; 2].map(|_: u32| rng.random_range(0..WIDTH).to_string());
            let data: String =
                (0..rng.random_range(1..60)).map(|_| rng.random_range('a'..='z')).collect();
            joined(&at[0], &at[1], data.as_bytes())
        });
        if matches!(change, Change::Take(_)) && state.parts.len() == 1 {
            return Change::Delete;
        }
        change
    }

    fn command(&self, key: &[u8], change: &Change) -> Vec<Vec<u8>> {
        match change {
            Change::Put(objects) => {
                let (id, value) = &objects[0];
                let (x, y, data) = split(value);
                let place = [x.as_bytes(), y.as_bytes()];
                parts(&[b"RTREE.ADDPOINT", key, id, place[0], place[1], b"DATA", data])
            }
            Change::Take(id) => parts(&[b"RTREE.REM", key, id]),
            other => unreachable!("no change of a tree: {other:?}"),
        }
    }

    fn change(&self, session: &mut Session, key: &[u8], change: &Change) -> Result<(), Error> {
        let mut tree = session.tree(key)?;
        match change {
            Change::Put(objects) => {
                let (id, value) = &objects[0];
                let (x, y, data) = split(value);
                let number = |text: &str| text.parse().unwrap_or(0.0);
                let rect = Rect::point(number(x), number(y)).expect("they are finite");
                tree.put(&NewObject::new(&id[..], rect).data(data)).map(drop)
            }
            Change::Take(id) => tree.remove(&id[..]).map(drop),
            other => unreachable!("no change of a tree: {other:?}"),
        }
    }

    fn parts(&self, resp: &mut Connection, key: &[u8]) -> anyhow::Result<State> {
        let mut state = State::default();
        if ask(resp, &[b"EXISTS", key])? == Value::Integer(0) {
            return Ok(state);
        }
        for number in 0..OBJECTS {
            let id = number.to_string().into_bytes();
            if let Some(value) = object(resp, key, &id)? {
                state.parts.insert(id, value);
            }
        }
        // No object but these, and each is found by its place.
        let window = [&b"RTREE.COUNT"[..], key, b"0", b"0", b"1000", b"1000"];
        let counted = ask(resp, &window)?;
        let found = state.parts.len() as i64;
        if counted != Value::Integer(found) {
            state.parts.insert(b"count".to_vec(), format!("{counted:?} of {found}").into_bytes());
        }
        Ok(state)
    }

    fn head(&self, resp: &mut Connection, key: &[u8]) -> anyhow::Result<Option<Vec<u8>>> {
        object(resp, key, HEAD)
    }

    fn head_by_client(&self, session: &mut Session, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        match session.tree(key)?.get(HEAD) {
            Ok(object) => Ok(object.map(|object| {
                let at = [object.rect.min_x, object.rect.min_y].map(|side| side.to_string());
                joined(&at[0], &at[1], object.data.unwrap_or_default())
            })),
            Err(error) if is_no_tree(error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// An object's value; none without it or without the tree.
fn object(resp: &mut Connection, key: &[u8], id: &[u8]) -> anyhow::Result<Option<Vec<u8>>> {
    resp.push(&[b"RTREE.GET", key, id]);
    resp.flush()?;
    match resp.reply()? {
        Value::Array(fields) => match &fields[..] {
            [Value::Bulk(x), Value::Bulk(y), _, _, Value::Bulk(data)] => {
                let text = |bytes| std::str::from_utf8(bytes).context("no number in RTREE.GET");
                Ok(Some(joined(text(x)?, text(y)?, data)))
            }
            other => bail!("unexpected reply to RTREE.GET: {other:?}"),
        },
        Value::Null => Ok(None),
        Value::Error(text) if text.starts_with(b"ERR no such") => Ok(None),
        other => bail!("unexpected reply to RTREE.GET: {other:?}"),
    }
}
