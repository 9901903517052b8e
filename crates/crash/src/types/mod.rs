//! The types of keys: how changes are sent, and how a key is read back. One file for each, and one
//! line in [`TYPES`].

mod geo;
mod hash;
mod rtree;
mod string;

use crate::state::{Change, HEAD, State};
use anyhow::{anyhow, bail};
use rand::RngExt;
use rand::rngs::ChaCha8Rng;
use remora_client::Session;
use remora_command_line::Connection;
use remora_resp::Value;
use std::time::{Duration, UNIX_EPOCH};

/// Every type that a server keeps.
pub const TYPES: &[&dyn KeyType] = &[&string::Strings, &hash::Hashes, &rtree::Trees, &geo::Geo];

/// An expiry that no run reaches, Unix ms: in the year 2100.
const FAR_MS: u64 = 4_102_444_800_000;

/// A type of keys.
pub trait KeyType: Sync {
    /// Its word on the command line: the name of its folder in the engine.
    fn name(&self) -> &'static str;

    /// Draws the next change of a key that holds this.
    fn draw(&self, state: &State, rng: &mut ChaCha8Rng) -> Change;

    /// The RESP command of a change of this type's own.
    fn command(&self, key: &[u8], change: &Change) -> Vec<Vec<u8>>;

    /// Does a change of this type's own by the client.
    fn change(
        &self,
        session: &mut Session,
        key: &[u8],
        change: &Change,
    ) -> Result<(), remora_client::Error>;

    /// All parts of a key, by RESP.
    fn parts(&self, resp: &mut Connection, key: &[u8]) -> anyhow::Result<State>;

    /// The value of the part [`HEAD`], of strings the value, by RESP.
    fn head(&self, resp: &mut Connection, key: &[u8]) -> anyhow::Result<Option<Vec<u8>>>;

    /// The same by the client, which may read the server's memory.
    fn head_by_client(
        &self,
        session: &mut Session,
        key: &[u8],
    ) -> Result<Option<Vec<u8>>, remora_client::Error>;
}

/// The type of this name.
pub fn by_name(name: &str) -> Option<&'static dyn KeyType> {
    TYPES.iter().copied().find(|of| of.name() == name)
}

/// The RESP command of any change.
pub fn command(of: &dyn KeyType, key: &[u8], change: &Change) -> Vec<Vec<u8>> {
    match change {
        Change::Delete => parts(&[b"DEL", key]),
        Change::ExpireAt(ms) => parts(&[b"PEXPIREAT", key, ms.to_string().as_bytes()]),
        change => of.command(key, change),
    }
}

/// Does any change by the client.
pub fn change(
    of: &dyn KeyType,
    session: &mut Session,
    key: &[u8],
    change: &Change,
) -> Result<(), remora_client::Error> {
    match change {
        Change::Delete => session.remove(key).map(drop),
        Change::ExpireAt(ms) => {
            let at = UNIX_EPOCH + Duration::from_millis(*ms);
            session.expire_at(key, at, remora_client::ExpireWhen::Always).map(drop)
        }
        change => of.change(session, key, change),
    }
}

/// All that a key holds, by RESP.
pub fn read(of: &dyn KeyType, resp: &mut Connection, key: &[u8]) -> anyhow::Result<State> {
    let mut state = of.parts(resp, key)?;
    state.expires_at_ms = match ask(resp, &[b"PEXPIRETIME", key])? {
        Value::Integer(ms) => u64::try_from(ms).ok(),
        other => bail!("unexpected reply to PEXPIRETIME: {other:?}"),
    };
    Ok(state)
}

fn parts(of: &[&[u8]]) -> Vec<Vec<u8>> {
    of.iter().map(|part| part.to_vec()).collect()
}

/// One command and its reply; an error of the server is one here, too.
fn ask<'c>(resp: &'c mut Connection, command: &[&[u8]]) -> anyhow::Result<Value<'c>> {
    resp.push(command);
    resp.flush()?;
    match resp.reply()? {
        Value::Error(text) => Err(anyhow!("the server says: {}", String::from_utf8_lossy(text))),
        value => Ok(value),
    }
}

/// Bytes of any size, most of them few.
fn bytes(rng: &mut ChaCha8Rng, most: usize) -> Vec<u8> {
    let len = match rng.random_range(0..100) {
        0..60 => rng.random_range(1..64),
        60..97 => rng.random_range(64..1024),
        _ => rng.random_range(1024..65536),
    };
    let start = rng.random::<u64>();
    let len = len.clamp(1, most);
    (0..len as u64).map(|at| (start ^ at.wrapping_mul(0x9e37_79b9)) as u8).collect()
}

/// The next change of an object of parts: `value` draws what a part holds.
fn draw_parts(
    state: &State,
    rng: &mut ChaCha8Rng,
    names: u32,
    mut value: impl FnMut(&mut ChaCha8Rng) -> Vec<u8>,
) -> Change {
    let dice = rng.random_range(0..100);
    let is_there = !state.parts.is_empty();
    if is_there && dice < 2 {
        return Change::Delete;
    }
    if is_there && dice < 6 {
        return Change::ExpireAt(FAR_MS + rng.random_range(0..1000));
    }
    let name = rng.random_range(0..names).to_string().into_bytes();
    if dice < 25 && state.parts.contains_key(&name) {
        return Change::Take(name);
    }
    // Half of them change what readers look at.
    let name = if rng.random_bool(0.5) { HEAD.to_vec() } else { name };
    Change::Put(vec![(name, value(rng))])
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;

    /// A type without an entry here would never be crashed.
    #[test]
    fn every_type_of_the_engine_has_an_entry() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../engine/src/types");
        let entries = std::fs::read_dir(folder).unwrap().map(Result::unwrap);
        let mut folders: Vec<String> = entries
            .filter(|entry| entry.path().is_dir())
            .map(|entry| entry.file_name().into_string().unwrap())
            .collect();
        let mut names: Vec<&str> = TYPES.iter().map(|of| of.name()).collect();
        folders.sort_unstable();
        names.sort_unstable();
        assert_eq!(names, folders, "add a file to crates/crash/src/types for each type");
    }

    #[test]
    fn histories_come_and_go_and_stay_bounded() {
        for of in TYPES {
            let mut rng = ChaCha8Rng::seed_from_u64(1);
            let (mut state, mut absent, mut most) = (State::default(), 0, 0);
            for _ in 0..5000 {
                let change = of.draw(&state, &mut rng);
                assert!(!command(*of, b"k", &change).is_empty());
                state.apply(&change);
                absent += u32::from(state.parts.is_empty());
                most = most.max(state.parts.values().map(Vec::len).sum());
            }
            assert!(absent > 0 && most < 4 << 20, "{}: {absent} {most}", of.name());
        }
    }
}
