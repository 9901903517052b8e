//! Clocks that run at rates of their own over one virtual time.

use remora_fabric::sim::SimWorld;

/// One machine's clock.
#[derive(Clone)]
pub struct HostClock {
    world: SimWorld,
    base_ns: u64,
    /// Nanoseconds by which it gains on virtual time in each million.
    gains_ppm: i64,
}

impl HostClock {
    /// A clock that shows `base_ns` at time 0; within ten per cent of true.
    pub fn new(world: &SimWorld, base_ns: u64, gains_ppm: i64) -> Self {
        assert!(gains_ppm.abs() <= 100_000, "what the design takes clocks to drift at most");
        Self { world: world.clone(), base_ns, gains_ppm }
    }

    /// Its time, in nanoseconds.
    pub fn now_ns(&self) -> u64 {
        let shown = self.world.now_ns() as i128 * (1_000_000 + self.gains_ppm as i128) / 1_000_000;
        self.base_ns + shown as u64
    }

    /// When it shows this, in virtual nanoseconds; 0 if that was never.
    pub fn virtual_ns(&self, shown_ns: u64) -> u64 {
        let since = shown_ns.saturating_sub(self.base_ns) as i128;
        (since * 1_000_000 / (1_000_000 + self.gains_ppm as i128)) as u64
    }
}
