//! A server by script against the production client.
//!
//! Client and server are connected by the simulated fabric, in virtual time.
//! The server takes the client's requests out of its ring and answers them, or
//! not, or with anything; it writes any word of the client's mailbox, and any
//! word of its own arena. What must hold:
//! * no operation panics, and each ends: with a result, or within its timeout;
//! * a late answer ends nothing, and is not taken for another one's;
//! * an operation that ends the session ends it for good;
//! * a value that was READ is the true one, whatever lies in the memory.

mod server;

use super::Script;
use remora_client_core::{Client, Error, Got, Options, Path, ServedBy, Session, SetOptions, Wake};
use remora_fabric::sim::{SimOptions, SimWorld};
use remora_layout::frame::MAX_PAYLOAD_BYTES;
use remora_layout::limits::MAX_VALUE_BYTES;
use remora_protocol::Command;
use server::{KEYS, Server};
use std::time::Duration;

/// Operations of one script at most.
const OPERATIONS: usize = 60;
const TIMEOUT: Duration = Duration::from_millis(20);

/// What came about.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Seen {
    /// Operations that came back with a result.
    pub results: usize,
    /// Values that were READ and are right.
    pub values_read: usize,
    /// Requests that were refused.
    pub refused: usize,
    /// Operations that timed out, with the session going on.
    pub timed_out: usize,
    /// How the session ended, if it did.
    pub ended: Option<Error>,
}

/// The script of an application and of the server that it meets.
pub fn script_of(application: &[u8], server: &[u8]) -> Vec<u8> {
    let bytes = u16::try_from(application.len()).expect("some hundred are enough");
    [&bytes.to_le_bytes(), application, server].concat()
}

/// Plays a server, and a client's application.
pub fn run(script: &[u8]) -> Seen {
    let (mut operations, answers) = Script::new(script).split();
    let mut seen = Seen::default();
    let world = SimWorld::new(SimOptions { seed: 1, ..SimOptions::default() });
    let (server, parts) = Server::new(&world, answers);
    let options = Options {
        wake: Wake::Event,
        pointer_cache_entries: 64,
        timeout: TIMEOUT,
        ..Options::default()
    };
    let client = Client::over(parts, &options).expect("no process forks here");
    let mut sessions = vec![client.session().expect("the first session")];
    Server::turn_again(server, &world);
    for _ in 0..OPERATIONS {
        if operations.is_over() {
            break;
        }
        if operations.one_in(16) && sessions.len() < 3 {
            sessions.push(client.session().expect("a further session"));
        }
        let at = operations.below(sessions.len());
        let session = &mut sessions[at];
        match operate(session, &mut operations, &mut seen) {
            Ok(()) => seen.results += 1,
            Err(error) if error.is_final() => {
                seen.ended = Some(error);
                assert_eq!(session.exists(b"k"), Err(error), "it is over");
                assert!(client.session().is_err_and(|other| other == error));
                break;
            }
            Err(Error::TimedOut) => seen.timed_out += 1,
            Err(_) => seen.refused += 1,
        }
        if operations.one_in(16) && sessions.len() > 1 {
            sessions.swap_remove(at);
        }
    }
    drop(sessions);
    // Events hold the world.
    world.forget_all();
    seen
}

/// One operation of the application.
fn operate(session: &mut Session, script: &mut Script<'_>, seen: &mut Seen) -> Result<(), Error> {
    let number = script.below(KEYS + 2);
    let key = server::key(number);
    let path = script.pick(&[Path::Ask, Path::Read, Path::Choose]);
    let long = script.pick(&[0, 3, 500, 5_000, 90_000, 120_000]);
    match script.below(16) {
        0..=3 => {
            let Got { value, served_by: via, .. } = session.get(&key, path)?;
            looked_at(number, value, via, seen);
        }
        4 => {
            let keys: Vec<Vec<u8>> = (0..script.below(60)).map(server::key).collect();
            let keys: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
            session.get_batch(&keys, path, &mut |at, value, via| {
                looked_at(at, value, via, seen);
            })?;
        }
        5 => drop(session.set(&key, &vec![7; long], SetOptions::default())?),
        6 => drop(session.del(&key)?),
        7 => drop(session.incr(&key, 3)?),
        8 => {
            let value = vec![7; long.min(5_000)];
            let pairs = vec![(&key[..], &value[..]); script.below(40)];
            session.set_many(&pairs)?;
        }
        9 => drop(session.append(&key, &vec![7; long])?),
        10 => drop(session.set_range(&key, long as u64, b"range")?),
        11 => assert!(session.get_range(&key, 0, -1)?.len() <= MAX_VALUE_BYTES),
        12 => {
            let _ = (session.set_bit(&key, 7, true)?, session.get_bit(&key, 7)?);
            let _ = session.strlen(&key)?;
        }
        13 => assert!(session.get_del(&key)?.is_none_or(|value| value.len() <= MAX_VALUE_BYTES)),
        14 => {
            let value = session.get_ex(&key, None)?;
            assert!(value.is_none_or(|value| value.len() <= MAX_VALUE_BYTES));
        }
        _ => {
            for _ in 0..script.below(40) {
                let command = match script.below(3) {
                    0 => Command::Del { key: &key },
                    _ => Command::Get { key: &key },
                };
                session.submit(&command)?;
            }
            let taken = script.below(64);
            for _ in 0..taken {
                let is_one = session.next_reply(&mut |_, reply| {
                    assert!(reply.value.is_none_or(|value| value.len() <= MAX_PAYLOAD_BYTES));
                })?;
                if !is_one {
                    break;
                }
            }
        }
    }
    Ok(())
}

fn looked_at(number: usize, found: Option<&[u8]>, via: ServedBy, seen: &mut Seen) {
    if matches!(via, ServedBy::Read | ServedBy::ReadAfter(_)) {
        assert!(found == Some(&server::value(number)), "a value that nobody wrote was READ");
        seen.values_read += 1;
    }
}
