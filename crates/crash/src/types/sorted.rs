//! Sorted sets: members with scores. The scores are geohashes, so that the set is a GEO key too, and
//! what searches of places find is compared.

use super::key_type::{KeyType, ask, draw_parts, parts};
use crate::state::{Change, HEAD, State};
use anyhow::{Context, bail};
use rand::RngExt;
use rand::rngs::ChaCha8Rng;
use remora_client::{Error, Session};
use remora_command_line::Connection;
use remora_resp::Value;

/// More than a record has room for, and than a node has.
const MEMBERS: u32 = 400;
/// Bits of a geohash: integers of so many are scores without rounding.
const SCORE_BITS: u32 = 52;
/// More than from any place to any other one, km.
const GLOBE_KM: &[u8] = b"30000";

pub struct SortedSets;

/// A score as it is written, a member's value in the model.
fn score(value: &[u8]) -> f64 {
    String::from_utf8_lossy(value).parse().unwrap_or(0.0)
}

impl KeyType for SortedSets {
    fn name(&self) -> &'static str {
        "sorted"
    }

    fn draw(&self, state: &State, rng: &mut ChaCha8Rng) -> Change {
        draw_parts(state, rng, MEMBERS, |rng| {
            // Some members have one score.
            let bits = if rng.random_ratio(1, 8) { 2 } else { SCORE_BITS };
            rng.random_range(0..1_u64 << bits).to_string().into_bytes()
        })
    }

    fn command(&self, key: &[u8], change: &Change) -> Vec<Vec<u8>> {
        match change {
            Change::Put(members) => {
                let (name, value) = &members[0];
                parts(&[b"ZADD", key, value, name])
            }
            Change::Take(name) => parts(&[b"ZREM", key, name]),
            other => unreachable!("no change of a sorted set: {other:?}"),
        }
    }

    fn change(&self, session: &mut Session, key: &[u8], change: &Change) -> Result<(), Error> {
        let mut set = session.sorted_set(key)?;
        match change {
            Change::Put(members) => {
                let (name, value) = &members[0];
                set.add(&[(name.as_slice(), score(value))]).map(drop)
            }
            Change::Take(name) => set.remove(&[name]).map(drop),
            other => unreachable!("no change of a sorted set: {other:?}"),
        }
    }

    fn parts(&self, resp: &mut Connection, key: &[u8]) -> anyhow::Result<State> {
        let mut state = State::default();
        let Value::Array(list) = ask(resp, &[b"ZRANGE", key, b"0", b"-1", b"WITHSCORES"])? else {
            bail!("ZRANGE is not answered by an array");
        };
        let mut last = None;
        for pair in list.chunks(2) {
            let [Value::Bulk(name), Value::Bulk(value)] = pair else {
                bail!("ZRANGE gives no members and scores: {pair:?}");
            };
            let place = Some((score(value).to_bits(), name.to_vec()));
            if last >= place {
                bail!("ZRANGE gives members out of order: {last:?}, then {place:?}");
            }
            last = place;
            state.parts.insert(name.to_vec(), value.to_vec());
        }
        // The table by member, the counts beside the nodes and the places say the same.
        let found = state.parts.len() as i64;
        for (named, words) in [
            (&b"cardinality"[..], vec![&b"ZCARD"[..], key]),
            (b"count", vec![b"ZCOUNT", key, b"-inf", b"+inf"]),
        ] {
            let counted = ask(resp, &words)?;
            if counted != Value::Integer(found) {
                let seen = format!("{counted:?} of {found}").into_bytes();
                state.parts.insert(named.to_vec(), seen);
            }
        }
        if let Some(seen) = search(resp, key, state.parts.len())? {
            state.parts.insert(b"places".to_vec(), seen);
        }
        Ok(state)
    }

    fn head(&self, resp: &mut Connection, key: &[u8]) -> anyhow::Result<Option<Vec<u8>>> {
        match ask(resp, &[b"ZSCORE", key, HEAD])? {
            Value::Bulk(value) => Ok(Some(value.to_vec())),
            Value::Null => Ok(None),
            other => bail!("unexpected reply to ZSCORE: {other:?}"),
        }
    }

    fn head_by_client(&self, session: &mut Session, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let score = session.sorted_set(key)?.score(HEAD)?.score;
        Ok(score.map(|score| score.to_string().into_bytes()))
    }
}

/// What a search of the whole globe finds, unless it is all members.
fn search(resp: &mut Connection, key: &[u8], members: usize) -> anyhow::Result<Option<Vec<u8>>> {
    let words: &[&[u8]] =
        &[b"GEOSEARCH", key, b"FROMLONLAT", b"0", b"0", b"BYRADIUS", GLOBE_KM, b"km"];
    let found = match ask(resp, words).context("GEOSEARCH")? {
        Value::Array(found) => found.len(),
        other => bail!("unexpected reply to GEOSEARCH: {other:?}"),
    };
    Ok((found != members).then(|| format!("{found} places of {members}").into_bytes()))
}
