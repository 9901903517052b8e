//! Sets: small ones lie in one record, larger ones in bins. A part of a state is a member, with an empty
//! value.

use super::key_type::{KeyType, ask, draw_parts, parts};
use crate::state::{Change, HEAD, State};
use anyhow::bail;
use rand::rngs::ChaCha8Rng;
use remora_client::{Error, Session};
use remora_command_line::Connection;
use remora_resp::Value;

/// Enough that a set leaves its record, and splits bins.
const MEMBERS: u32 = 400;

pub struct Sets;

impl KeyType for Sets {
    fn name(&self) -> &'static str {
        "set"
    }

    fn draw(&self, state: &State, rng: &mut ChaCha8Rng) -> Change {
        draw_parts(state, rng, MEMBERS, |_| Vec::new())
    }

    fn command(&self, key: &[u8], change: &Change) -> Vec<Vec<u8>> {
        match change {
            Change::Put(members) => {
                let mut command = parts(&[b"SADD", key]);
                command.extend(members.iter().map(|(member, _)| member.clone()));
                command
            }
            Change::Take(member) => parts(&[b"SREM", key, member]),
            other => unreachable!("no change of a set: {other:?}"),
        }
    }

    fn change(&self, session: &mut Session, key: &[u8], change: &Change) -> Result<(), Error> {
        let mut set = session.member_set(key)?;
        match change {
            Change::Put(members) => {
                let members: Vec<&[u8]> = members.iter().map(|(member, _)| &member[..]).collect();
                set.add(&members).map(drop)
            }
            Change::Take(member) => set.remove(&[member]).map(drop),
            other => unreachable!("no change of a set: {other:?}"),
        }
    }

    fn parts(&self, resp: &mut Connection, key: &[u8]) -> anyhow::Result<State> {
        let Value::Array(list) = ask(resp, &[b"SMEMBERS", key])? else {
            bail!("SMEMBERS is not answered by an array");
        };
        let mut state = State::default();
        for member in list {
            let Value::Bulk(member) = member else {
                bail!("SMEMBERS gives no members: {member:?}");
            };
            state.parts.insert(member.to_vec(), Vec::new());
        }
        Ok(state)
    }

    fn head(&self, resp: &mut Connection, key: &[u8]) -> anyhow::Result<Option<Vec<u8>>> {
        match ask(resp, &[b"SISMEMBER", key, HEAD])? {
            Value::Integer(is_member) => Ok((is_member == 1).then(Vec::new)),
            other => bail!("unexpected reply to SISMEMBER: {other:?}"),
        }
    }

    fn head_by_client(&self, session: &mut Session, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        Ok(session.member_set(key)?.contains(HEAD)?.is_member.then(Vec::new))
    }
}
