//! The types of keys: how changes are sent, and how a key is read back. One file for each, and one
//! line in [`TYPES`].

mod collection;
mod hash;
mod key_type;
mod list;
mod ordered;
mod rtree;
mod set;
mod sorted;
mod string;

pub use key_type::KeyType;

use crate::state::{Change, State};
use anyhow::bail;
pub use key_type::ask;
use key_type::parts;
use remora_client::Session;
use remora_command_line::Connection;
use remora_resp::Value;
use std::time::{Duration, UNIX_EPOCH};

/// Every type that a server keeps.
pub const TYPES: &[&dyn KeyType] = &[
    &string::Strings,
    &hash::Hashes,
    &collection::Collections,
    &list::Lists,
    &set::Sets,
    &ordered::OrderedTrees,
    &rtree::Trees,
    &sorted::SortedSets,
];

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

#[cfg(test)]
mod tests {
    use super::*;
    use rand::SeedableRng;
    use rand::rngs::ChaCha8Rng;

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
