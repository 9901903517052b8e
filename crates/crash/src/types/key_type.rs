//! What a type has to say, and what all types use to say it.

use crate::state::{Change, HEAD, State};
use anyhow::anyhow;
use rand::RngExt;
use rand::rngs::ChaCha8Rng;
use remora_client::Session;
use remora_command_line::Connection;
use remora_resp::Value;

/// An expiry that no run reaches, Unix ms: in the year 2100.
pub const FAR_MS: u64 = 4_102_444_800_000;

/// A type of keys.
pub trait KeyType: Sync {
    /// Its word on the command line: the name of its folder in the engine.
    fn name(&self) -> &'static str;

    /// Draws the next change of a key that holds this.
    fn draw(&self, state: &State, rng: &mut ChaCha8Rng) -> Change;

    /// Whether the client has a handle for this type. Keys of a type without one are changed and read by RESP
    /// only.
    fn has_handle(&self) -> bool {
        true
    }

    /// A command behind a change of a key that held this, which leaves all parts as they are: it makes an index.
    fn follow_up(&self, _key: &[u8], _before: &State) -> Option<Vec<Vec<u8>>> {
        None
    }

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

/// A command of these parts.
pub fn parts(of: &[&[u8]]) -> Vec<Vec<u8>> {
    of.iter().map(|part| part.to_vec()).collect()
}

/// One command and its reply; an error of the server is one here, too.
pub fn ask<'c>(resp: &'c mut Connection, command: &[&[u8]]) -> anyhow::Result<Value<'c>> {
    resp.push(command);
    resp.flush()?;
    match resp.reply()? {
        Value::Error(text) => Err(anyhow!("the server says: {}", String::from_utf8_lossy(text))),
        value => Ok(value),
    }
}

/// Bytes of any size, most of them few.
pub fn bytes(rng: &mut ChaCha8Rng, most: usize) -> Vec<u8> {
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
pub fn draw_parts(
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
