//! Readers: each asks one server, whether it leads or not. What a server answers as a primary is never
//! older than what was known before the read began, also of a primary that was stopped or cut off.

use super::round::Round;
use crate::load::{By, Key};
use crate::state::head_digest;
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use remora_client::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Before a server that answers no reads is asked again.
const AGAIN: Duration = Duration::from_millis(30);
/// What was known before a read that took longer may be forgotten by now.
const JUDGED: Duration = Duration::from_secs(6);

/// Reads from one server until the round is over.
pub fn read_from(server: usize, by: By, seed: u64, round: &Round<'_>) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let place = &round.servers[server];
    let (by, keys) = by.readable(round.keys);
    while !round.is_over() {
        // An error is the server's end, or it leads no more.
        let _ = match by {
            By::Resp => place.resp().and_then(|mut resp| {
                read(server, (round, &keys), &mut rng, |key| key.of.head(&mut resp, &key.name))
            }),
            By::Client => place.session(Path::Choose).and_then(|mut session| {
                read(server, (round, &keys), &mut rng, |key| {
                    Ok(key.of.head_by_client(&mut session, &key.name)?)
                })
            }),
        };
        std::thread::sleep(AGAIN);
    }
}

fn read(
    server: usize,
    (round, keys): (&Round<'_>, &[usize]),
    rng: &mut ChaCha8Rng,
    mut read: impl FnMut(&Key) -> anyhow::Result<Option<Vec<u8>>>,
) -> anyhow::Result<()> {
    while !round.is_over() {
        let key = &round.keys[keys[rng.random_range(0..keys.len())]];
        let (bound, began) = (key.history().newest_known(), Instant::now());
        let head = read(key)?;
        round.reads.fetch_add(1, Ordering::Relaxed);
        let (digest, now) = (head_digest(head.as_deref()), Instant::now());
        if now.duration_since(began) < JUDGED && !key.history().saw(bound, digest, now) {
            round.stale.fetch_add(1, Ordering::Relaxed);
            let head = head.unwrap_or_else(|| b"nothing".to_vec());
            round.problem(format!(
                "server {server} showed an older state of key {} than was known: {} ({} bytes)",
                key.name.escape_ascii(),
                head[..head.len().min(32)].escape_ascii(),
                head.len()
            ));
        }
    }
    Ok(())
}
