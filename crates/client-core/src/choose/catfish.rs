//! Catfish's algorithm 1 (4.1): after busy heartbeats a client reads for a random number of
//! requests, more of them the more heartbeats in a row were busy.

use super::decision::{Draws, Route, Why};
use crate::read_lease::ServerLoad;
use remora_layout::limits::HEARTBEAT_MS;

/// N: how many requests one more busy round adds at most (A14).
pub const ROUND: u32 = 8;
/// T: the utilisation above which a server is busy, parts per million (A14).
pub const BUSY_PPM: u32 = 950_000;
/// Inv (A14), ns.
const INTERVAL_NS: u64 = HEARTBEAT_MS * 1_000_000;

/// The server's utilisation, in parts per million, that a heartbeat predicts: `predUtil` of the
/// listing (A5). Its arguments are its result for the previous heartbeat, 0 at first, and the
/// utilisation in this one.
pub type Predictor = fn(before_ppm: u32, told_ppm: u32) -> u32;

/// The paper's prediction: the server is as busy as it says.
pub fn last_heartbeat(_before_ppm: u32, told_ppm: u32) -> u32 {
    told_ppm
}

/// Another prediction: the mean of the heartbeats, each with half the weight of the next one. A
/// single busy interval does not begin a run of READs.
pub fn mean_of_heartbeats(before_ppm: u32, told_ppm: u32) -> u32 {
    before_ppm.midpoint(told_ppm)
}

/// The state that persists across calls (A1).
#[derive(Clone, Debug)]
pub struct Catfish {
    predictor: Predictor,
    /// The prediction for the last consumed heartbeat.
    predicted_ppm: u32,
    /// Rounds in a row in which the server was busy.
    busy_rounds: u32,
    /// Requests that the client will still read.
    reads_left: u32,
    /// When a heartbeat was consumed last; `None` before the first.
    consumed_at_ns: Option<u64>,
    /// The sequence of that heartbeat. The client consumes a heartbeat by its sequence (A6).
    consumed: u64,
}

impl Catfish {
    /// Nothing known yet.
    pub fn new(predictor: Predictor) -> Self {
        let (predicted_ppm, busy_rounds, reads_left, consumed) = (0, 0, 0, 0);
        Self { predictor, predicted_ppm, busy_rounds, reads_left, consumed_at_ns: None, consumed }
    }

    /// One search's decision; lines as in the paper's listing.
    pub fn decide(
        &mut self,
        load: Option<ServerLoad>,
        now_ns: u64,
        draws: &mut Draws,
        keeps_rounds: bool,
    ) -> (Route, Why) {
        // 4-9: at most one heartbeat an interval; a missing heartbeat does not mean an idle server.
        let is_due =
            self.consumed_at_ns.is_none_or(|at_ns| now_ns - at_ns.min(now_ns) > INTERVAL_NS);
        let heartbeat = load.filter(|load| is_due && load.sequence != self.consumed);
        let utilisation = heartbeat.map_or(0, |load| {
            (self.consumed, self.consumed_at_ns) = (load.sequence, Some(now_ns));
            self.predicted_ppm = (self.predictor)(self.predicted_ppm, load.utilisation_ppm);
            self.predicted_ppm
        });
        // 11-16.
        if utilisation > BUSY_PPM && self.reads_left <= self.busy_rounds.saturating_mul(ROUND) {
            let before = self.busy_rounds.saturating_mul(ROUND);
            self.busy_rounds = self.busy_rounds.saturating_add(1);
            self.reads_left = draws.below(ROUND).saturating_add(before);
        } else if heartbeat.is_some() || !keeps_rounds {
            self.busy_rounds = 0;
        }
        // 17-23.
        if self.reads_left > 0 {
            self.reads_left -= 1;
            return (Route::Read, Why::ServerBusy);
        }
        (Route::Ask, Why::ServerNotBusy)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn load(sequence: u64, utilisation_ppm: u32) -> Option<ServerLoad> {
        Some(ServerLoad { sequence, utilisation_ppm, wait_ns: 0 })
    }

    /// Decisions after one heartbeat, as far as `calls` go.
    fn reads(catfish: &mut Catfish, beat: Option<ServerLoad>, now_ns: u64, keeps: bool) -> u32 {
        let mut draws = Draws(now_ns | 1);
        (0..100)
            .map(|_| (catfish.decide(beat, now_ns, &mut draws, keeps).0 == Route::Read) as u32)
            .sum()
    }

    #[test]
    fn an_idle_server_and_none_that_speaks_are_asked() {
        for keeps in [false, true] {
            let mut catfish = Catfish::new(last_heartbeat);
            assert_eq!(reads(&mut catfish, None, 0, keeps), 0);
            assert_eq!(reads(&mut catfish, load(1, 0), 20 * MS, keeps), 0);
            assert_eq!(reads(&mut catfish, load(2, BUSY_PPM), 40 * MS, keeps), 0, "not above T");
        }
    }

    #[test]
    fn one_heartbeat_sends_away_once_and_for_less_than_a_round() {
        let mut seen = [false; ROUND as usize];
        for seed in 0..200 {
            let mut catfish = Catfish::new(last_heartbeat);
            let reads =
                reads(&mut catfish, load(seed + 1, 1_000_000), 20 * MS + seed * 7919, false);
            seen[reads as usize] = true;
        }
        assert_eq!(seen, [true; ROUND as usize], "each of 0 to N - 1 was drawn");
    }

    /// A11: the literal reading forgets between two heartbeats, so that no window ever grows; the
    /// other one draws the k-th window from [(k-1)N, kN).
    #[test]
    fn the_two_readings_of_the_reset_rule() {
        let run = |keeps| {
            let mut catfish = Catfish::new(last_heartbeat);
            let beat = |k: u64| load(k, 1_000_000);
            (1..=6u64).map(|k| reads(&mut catfish, beat(k), k * 20 * MS, keeps)).collect::<Vec<_>>()
        };
        for (k, &reads) in (1u32..).zip(&run(true)) {
            assert!(((k - 1) * ROUND..k * ROUND).contains(&reads), "round {k}: {reads}");
        }
        assert!(run(false).iter().all(|&reads| reads < ROUND));
    }

    #[test]
    fn a_pause_of_the_load_begins_anew_and_two_beats_in_an_interval_are_one() {
        let mut catfish = Catfish::new(last_heartbeat);
        for k in 1..=3 {
            reads(&mut catfish, load(k, 1_000_000), k * 20 * MS, true);
        }
        assert_eq!(reads(&mut catfish, load(4, 500_000), 80 * MS, true), 0);
        assert!(reads(&mut catfish, load(5, 1_000_000), 100 * MS, true) < ROUND);
        let before = catfish.busy_rounds;
        reads(&mut catfish, load(6, 1_000_000), 105 * MS, true);
        assert_eq!(catfish.busy_rounds, before, "within Inv of the one before");
    }

    /// A14, A6: with the paper's numbers as numbers. N is 8, T is 95 %, Inv is 10 ms; and a
    /// heartbeat that stands there for longer than Inv counts once.
    #[test]
    fn the_papers_numbers_hold() {
        let busy_after = |beat, at_ns| {
            let mut catfish = Catfish::new(last_heartbeat);
            reads(&mut catfish, load(1, 1_000_000), 20_000_000, true);
            let before = catfish.busy_rounds;
            let reads = reads(&mut catfish, beat, at_ns, true);
            (catfish.busy_rounds - before, reads / 8)
        };
        assert_eq!(busy_after(load(2, 950_001), 30_000_001), (1, 1), "the second round");
        assert_eq!(busy_after(load(2, 1_000_000), 30_000_000), (0, 0), "not more than Inv");
        assert_eq!(busy_after(load(1, 1_000_000), 90_000_000), (0, 0), "the same heartbeat");
        assert_eq!(busy_after(None, 90_000_000), (0, 0), "none");
        let mut catfish = Catfish::new(last_heartbeat);
        reads(&mut catfish, load(1, 950_000), 20_000_000, true);
        assert_eq!(catfish.busy_rounds, 0, "not more than T");
    }

    /// A5: another predictor decides otherwise, by the same heartbeats.
    #[test]
    fn the_prediction_decides_and_can_be_exchanged() {
        let run = |predictor, beats: &[u32]| {
            let mut catfish = Catfish::new(predictor);
            let mut rounds = Vec::new();
            for (k, &ppm) in (1..).zip(beats) {
                reads(&mut catfish, load(k, ppm), k * 20 * MS, true);
                rounds.push(catfish.busy_rounds);
            }
            rounds
        };
        let beats = [1_000_000, 0, 1_000_000, 1_000_000, 1_000_000, 1_000_000, 1_000_000];
        assert_eq!(run(last_heartbeat, &beats), [1, 0, 1, 2, 3, 4, 5]);
        assert_eq!(run(mean_of_heartbeats, &beats), [0, 0, 0, 0, 0, 1, 2]);
        assert_eq!(run(|_, _| 0, &beats), [0; 7]);
    }
}
