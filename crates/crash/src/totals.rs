//! What a run counts.

use std::fmt;

/// What was counted.
#[derive(Clone, Copy, Default, Debug)]
pub struct Totals {
    /// Rounds that ran.
    pub rounds: u64,
    /// Replicas that were promoted.
    pub failovers: u64,
    /// Acknowledged changes.
    pub acknowledged: u64,
    /// Acknowledged changes that were promised to survive, and did not.
    pub lost: u64,
    /// Acknowledged changes that are gone where nothing was promised.
    pub unpromised: u64,
    /// Reads of states that were older than what was known, or than what the lag allows.
    pub stale: u64,
    /// What should not be, and neither count has.
    pub problems: u64,
    /// Rounds in which the server filled a small disk.
    pub small_disks: u64,
}

impl Totals {
    /// The end of a run that began from this seed.
    ///
    /// # Errors
    /// Something went wrong: how much.
    pub fn verdict(&self, seed: u64) -> anyhow::Result<()> {
        let Self { lost, stale, problems, .. } = self;
        match self.are_good() {
            true => Ok(()),
            false => {
                anyhow::bail!("lost {lost}, stale {stale}, other problems {problems} (seed {seed})")
            }
        }
    }

    /// Whether nothing went wrong.
    pub fn are_good(&self) -> bool {
        self.lost + self.stale + self.problems == 0
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rounds, failovers, acknowledged, lost, stale, .. } = self;
        write!(
            out,
            "rounds={rounds} failovers={failovers} acknowledged={acknowledged} lost={lost} stale={stale}"
        )
    }
}
