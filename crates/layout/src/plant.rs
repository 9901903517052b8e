//! Planted bugs: the control arm of the tests.
//!
//! In a build with the feature `plants` a test may switch one named bug on at
//! run time and must then see its checker fail. In every other build
//! [`planted`] is a constant `false` and costs nothing.

/// A deliberate bug, each a few lines where production code would have it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Plant {
    /// Readers believe a fetched record without checking it.
    SkipRecordValidation = 1,
    /// A client goes on using pointers and rights of a server's former life.
    TrustFormerLife = 2,
    /// A sleeping server does not look at its rings once more before it sleeps.
    SleepWithoutScan = 3,
    /// A client's thread that slept in the kernel for all leaves without
    /// letting another take its place.
    KeepSleepToOneself = 4,
    /// Bytes that others may read are stored by a plain copy: a data race,
    /// which only Miri and ThreadSanitizer can see.
    PlainCopy = 5,
    /// A link that leads a TCP connection leaves without letting another that
    /// waits read the socket in its place.
    KeepSocketToOneself = 6,
}

impl Plant {
    /// All plants with their names on the command line.
    pub const ALL: [(&'static str, Self); 6] = [
        ("skip-record-validation", Self::SkipRecordValidation),
        ("trust-former-life", Self::TrustFormerLife),
        ("sleep-without-scan", Self::SleepWithoutScan),
        ("keep-sleep-to-oneself", Self::KeepSleepToOneself),
        ("plain-copy", Self::PlainCopy),
        ("keep-socket-to-oneself", Self::KeepSocketToOneself),
    ];
}

#[cfg(feature = "plants")]
mod chosen {
    use super::Plant;
    use std::sync::atomic::{AtomicU8, Ordering};

    static CHOSEN: AtomicU8 = AtomicU8::new(0);

    /// Whether `plant` is switched on in this process.
    #[inline]
    pub fn planted(plant: Plant) -> bool {
        CHOSEN.load(Ordering::Relaxed) == plant as u8
    }

    /// Switches one bug on, or all off.
    pub fn choose(plant: Option<Plant>) {
        CHOSEN.store(plant.map_or(0, |plant| plant as u8), Ordering::Relaxed);
    }
}

#[cfg(feature = "plants")]
pub use chosen::{choose, planted};

/// Whether `plant` is switched on: never, in this build.
#[cfg(not(feature = "plants"))]
#[inline(always)]
pub const fn planted(_plant: Plant) -> bool {
    false
}
