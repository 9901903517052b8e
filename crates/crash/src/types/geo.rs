//! GEO keys: members with positions of a grid, as a position that is read back is rounded.

use super::key_type::{KeyType, ask, draw_parts, parts};
use crate::state::{Change, HEAD, State};
use anyhow::{Context, bail};
use rand::RngExt;
use rand::rngs::ChaCha8Rng;
use remora_client::{Error, Position, Session};
use remora_command_line::Connection;
use remora_resp::Value;

/// More than one node of the tree of positions has room for.
const MEMBERS: u32 = 60;
/// Points of the grid, which is a degree wide.
const GRID: i32 = 60;

pub struct Geo;

/// The grid's coordinates in a member's value, `X Y`.
fn position(value: &[u8]) -> (String, String) {
    let text = String::from_utf8_lossy(value);
    let (x, y) = text.split_once(' ').unwrap_or(("0", "0"));
    (x.to_owned(), y.to_owned())
}

/// The value of a position that was read back.
fn value(x: f64, y: f64) -> Vec<u8> {
    format!("{} {}", x.round(), y.round()).into_bytes()
}

fn names() -> Vec<Vec<u8>> {
    (0..MEMBERS).map(|number| number.to_string().into_bytes()).collect()
}

impl KeyType for Geo {
    fn name(&self) -> &'static str {
        "geo"
    }

    fn draw(&self, state: &State, rng: &mut ChaCha8Rng) -> Change {
        draw_parts(state, rng, MEMBERS, |rng| {
            let at = [0; 2].map(|_: u32| rng.random_range(1..GRID));
            format!("{} {}", at[0], at[1]).into_bytes()
        })
    }

    fn command(&self, key: &[u8], change: &Change) -> Vec<Vec<u8>> {
        match change {
            Change::Put(members) => {
                let (name, value) = &members[0];
                let (x, y) = position(value);
                parts(&[b"GEOADD", key, x.as_bytes(), y.as_bytes(), name])
            }
            Change::Take(name) => parts(&[b"ZREM", key, name]),
            other => unreachable!("no change of a GEO key: {other:?}"),
        }
    }

    fn change(&self, session: &mut Session, key: &[u8], change: &Change) -> Result<(), Error> {
        let mut geo = session.geo(key);
        match change {
            Change::Put(members) => {
                let (name, value) = &members[0];
                let (x, y) = position(value);
                let number = |text: String| text.parse().unwrap_or(0.0);
                let at = Position::new(number(x), number(y)).expect("the grid is on the globe");
                geo.add(&[(name, at)]).map(drop)
            }
            Change::Take(name) => geo.remove(&[name]).map(drop),
            other => unreachable!("no change of a GEO key: {other:?}"),
        }
    }

    fn parts(&self, resp: &mut Connection, key: &[u8]) -> anyhow::Result<State> {
        let names = names();
        let found = positions(resp, key, &names)?;
        let there = names.into_iter().zip(found).filter_map(|(name, value)| Some((name, value?)));
        let mut state = State { parts: there.collect(), expires_at_ms: None };
        let counted = ask(resp, &[b"ZCARD", key])?;
        let known = state.parts.len() as i64;
        if counted != Value::Integer(known) {
            state.parts.insert(b"count".to_vec(), format!("{counted:?} of {known}").into_bytes());
        }
        Ok(state)
    }

    fn head(&self, resp: &mut Connection, key: &[u8]) -> anyhow::Result<Option<Vec<u8>>> {
        Ok(positions(resp, key, &[HEAD.to_vec()])?.remove(0))
    }

    fn head_by_client(&self, session: &mut Session, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let at = session.geo(key).positions(&[HEAD])?[0];
        Ok(at.map(|at| value(at.longitude(), at.latitude())))
    }
}

fn positions(
    resp: &mut Connection,
    key: &[u8],
    names: &[Vec<u8>],
) -> anyhow::Result<Vec<Option<Vec<u8>>>> {
    let mut command: Vec<&[u8]> = vec![b"GEOPOS", key];
    command.extend(names.iter().map(Vec::as_slice));
    let Value::Array(list) = ask(resp, &command)? else {
        bail!("GEOPOS is not answered by an array");
    };
    let each = list.iter().map(|place| match place {
        Value::Null => Ok(None),
        Value::Array(pair) => match &pair[..] {
            [Value::Bulk(x), Value::Bulk(y)] => {
                let number = |bytes: &[u8]| String::from_utf8_lossy(bytes).parse::<f64>();
                let (x, y) = (number(x), number(y));
                Ok(Some(value(x.context("no longitude")?, y.context("no latitude")?)))
            }
            other => bail!("unexpected reply to GEOPOS: {other:?}"),
        },
        other => bail!("unexpected reply to GEOPOS: {other:?}"),
    });
    let found: Vec<_> = each.collect::<anyhow::Result<_>>()?;
    if found.len() != names.len() {
        bail!("GEOPOS answers {} of {} members", found.len(), names.len());
    }
    Ok(found)
}
