//! The keys of a run and their writers, and what is judged of the keys after each round.

use crate::history::{History, Promise, Verdict};
use crate::load::{By, Key, ServerAddress, Writer};
use crate::state::{State, head_digest};
use crate::totals::Totals;
use crate::types::{self, KeyType};
use anyhow::Context;
use rand::RngExt;
use rand::rngs::ChaCha8Rng;
use remora_client::{Path, Session};
use remora_command_line::{Connection, note};
use std::sync::Mutex;
use std::time::Instant;

/// Half of them use RESP, half the client.
const WRITERS: usize = 4;
/// Keys of each type that a writer has.
const KEYS_OF_TYPE: usize = 12;
/// Keys of a round whose losses are printed.
const MOST_TOLD: usize = 8;

/// They live through all rounds.
pub struct Workload {
    /// All keys.
    pub keys: Vec<Key>,
    /// Each has its own keys.
    pub writers: Vec<Writer>,
}

impl Workload {
    /// Keys of these types.
    pub fn draw(types: &[&'static dyn KeyType], rng: &mut ChaCha8Rng) -> Self {
        let (keys, owned) = draw_keys(types);
        let writer = |(by, own)| Writer::new(by, own, rng.random());
        Self { keys, writers: owned.into_iter().map(writer).collect() }
    }

    /// Looks at all keys and judges what they hold. `at` says when, for the notes.
    pub fn judge(
        &mut self,
        place: &ServerAddress,
        promise: Promise,
        totals: &mut Totals,
        at: &str,
    ) -> anyhow::Result<()> {
        let mut resp = place.resp()?;
        let mut session = place.session(Path::Read)?;
        let mut told = 0;
        for writer in &mut self.writers {
            let sent: Vec<(usize, State)> =
                writer.states().map(|(key, state)| (key, state.clone())).collect();
            for (number, last_sent) in sent {
                let (found, words) =
                    judge(&self.keys[number], (&mut resp, &mut session), promise, totals)?;
                if let Some(verdict) = words {
                    told += 1;
                    if told <= MOST_TOLD {
                        let name = self.keys[number].name.escape_ascii();
                        let words = tell(verdict, &last_sent, &found);
                        note(&format!("{at}: key {name}: {words}"));
                    }
                }
                writer.settle(number, found);
            }
        }
        Ok(())
    }
}

/// Keys of these types that are absent, and which of them each writer has.
pub fn draw_keys(types: &[&'static dyn KeyType]) -> (Vec<Key>, Vec<(By, Vec<usize>)>) {
    let (mut keys, mut owned) = (Vec::new(), Vec::new());
    for writer in 0..WRITERS {
        let first = keys.len();
        let by = if writer % 2 == 0 { By::Resp } else { By::Client };
        let by = if types.iter().any(|of| by.can_use(*of)) { by } else { By::Resp };
        for of in types.iter().filter(|of| by.can_use(**of)) {
            for at in 0..KEYS_OF_TYPE {
                let name = format!("{}:{writer}:{at}", of.name()).into_bytes();
                let history = Mutex::new(History::new(&State::default(), Instant::now()));
                keys.push(Key { name, of: *of, history });
            }
        }
        owned.push((by, (first..keys.len()).collect()));
    }
    (keys, owned)
}

/// Judges what a key holds by what was promised of it, and takes it for what it holds. A verdict only
/// if it is a bad one.
pub fn judge(
    key: &Key,
    (resp, session): (&mut Connection, &mut Session),
    promise: Promise,
    totals: &mut Totals,
) -> anyhow::Result<(State, Option<Verdict>)> {
    let name = key.name.escape_ascii();
    let found =
        types::read(key.of, resp, &key.name).with_context(|| format!("reading key {name}"))?;
    let head = if By::Client.can_use(key.of) {
        key.of.head_by_client(session, &key.name)?
    } else {
        key.of.head(resp, &key.name)?
    };
    let mut history = key.history();
    let verdict = history.judge(&found, promise);
    if promise == Promise::Nothing
        && let Verdict::Lost(changes) = history.judge(&found, Promise::All)
    {
        totals.unpromised += changes;
    }
    history.settle(&found, Instant::now());
    drop(history);
    if head_digest(head.as_deref()) != found.head_digest() {
        totals.stale += 1;
        note(&format!("key {name}: a read of one part sees another state"));
    }
    if verdict == Verdict::Fine {
        return Ok((found, None));
    }
    totals.lost += if let Verdict::Lost(changes) = verdict { changes } else { 1 };
    Ok((found, Some(verdict)))
}

/// A bad verdict, in words.
pub fn tell(verdict: Verdict, last_sent: &State, found: &State) -> String {
    let what = match verdict {
        Verdict::Lost(changes) => format!("{changes} promised change(s) are gone"),
        _ => "it never held this".to_owned(),
    };
    format!("{what}\n  last sent: {last_sent}\n  found: {found}")
}
