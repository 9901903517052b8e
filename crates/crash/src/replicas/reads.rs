//! Readers at replicas: what a replica shows does not go back in time for one reader, is not older
//! than the lag that the replica tells, and stays when the replica's primary dies.

use crate::load::{By, Key, Round, ServerAddress};
use crate::state::head_digest;
use rand::rngs::ChaCha8Rng;
use rand::{RngExt, SeedableRng};
use remora_client::Path;
use remora_command_line::Connection;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Before a replica that is gone is tried again.
const RECONNECT: Duration = Duration::from_millis(20);
/// Reads after which the replica is asked again how far it lags.
const READS_OF_LAG: u64 = 50;

/// A reader's replica, and what ends the reader.
pub struct ReplicaReader<'a> {
    /// The number of the server.
    pub number: usize,
    /// Where it is.
    pub place: ServerAddress,
    /// How it reads.
    pub by: By,
    /// What it draws from.
    pub seed: u64,
    /// It is to end.
    pub ends: &'a AtomicBool,
    /// Reads of all of them.
    pub reads: &'a AtomicU64,
}

impl ReplicaReader<'_> {
    /// Reads until it is to end. A replica may be gone at any moment.
    pub fn run(&self, round: &Round<'_>) {
        let mut rng = ChaCha8Rng::seed_from_u64(self.seed);
        let (by, keys) = self.by.readable(round.keys);
        while !self.ends.load(Ordering::Relaxed) {
            // An error is the end of the connection; what one reader saw ends with it.
            let _ = match by {
                By::Resp => self.place.resp().and_then(|mut resp| {
                    self.read((round, &keys), &mut rng, |key| key.of.head(&mut resp, &key.name))
                }),
                By::Client => self.place.session(Path::Choose).and_then(|mut session| {
                    self.read((round, &keys), &mut rng, |key| {
                        Ok(key.of.head_by_client(&mut session, &key.name)?)
                    })
                }),
            };
            std::thread::sleep(RECONNECT);
        }
    }

    fn read(
        &self,
        (round, keys): (&Round<'_>, &[usize]),
        rng: &mut ChaCha8Rng,
        mut read: impl FnMut(&Key) -> anyhow::Result<Option<Vec<u8>>>,
    ) -> anyhow::Result<()> {
        // By key, the oldest state that the last read can have shown.
        let mut last = vec![0; round.keys.len()];
        let mut fresh_at = None;
        let mut info = self.place.resp()?;
        for number in 0.. {
            if self.ends.load(Ordering::Relaxed) {
                break;
            }
            if number % READS_OF_LAG == 0 {
                fresh_at = told_fresh(&mut info)?;
            }
            let at = keys[rng.random_range(0..keys.len())];
            let key = &round.keys[at];
            let head = read(key)?;
            self.reads.fetch_add(1, Ordering::Relaxed);
            let digest = head_digest(head.as_deref());
            let mut history = key.history();
            let bound = fresh_at.map_or(0, |moment| history.known_at(moment)).max(last[at]);
            let seen = history.saw_a_copy(bound, digest, Instant::now());
            drop(history);
            match seen {
                Some(number) => last[at] = number,
                None => {
                    round.stale.fetch_add(1, Ordering::Relaxed);
                    let head = head.unwrap_or_else(|| b"nothing".to_vec());
                    round.problem(format!(
                        "replica {} showed an older state of key {} than before, or than its lag says: {} ({} bytes)",
                        self.number,
                        key.name.escape_ascii(),
                        head[..head.len().min(32)].escape_ascii(),
                        head.len()
                    ));
                }
            }
        }
        Ok(())
    }
}

/// The moment that a replica is as fresh as, by the lag that it tells; `None`: it tells none.
fn told_fresh(resp: &mut Connection) -> anyhow::Result<Option<Instant>> {
    let asked = Instant::now();
    let told = resp.info_of("replication", "replica_lag_us")?;
    let lag = told.and_then(|us| us.parse().ok()).map(Duration::from_micros);
    Ok(lag.and_then(|lag| asked.checked_sub(lag)))
}
