//! Planted bugs: the control arm of the tests.
//!
//! In a build with the feature `plants` a test may switch one named bug on at
//! run time, or name it in `REMORA_PLANT` for a whole process, and must then see
//! its checker fail. In every other build
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
    /// An updated record's old guardian stays live beside its successor.
    UpdatedStaysLive = 7,
    /// A removed, expired or evicted record's guardian stays live.
    RemovedStaysLive = 8,
    /// A reader whose walk does not find a key concludes that it is absent.
    ConcludeAbsence = 9,
    /// A reader does not look at a record's expiry.
    IgnoreExpiry = 10,
    /// A session reads while writes of its own are unanswered.
    ReadPastOwnWrites = 11,
    /// Credit is returned for a frame that has not been taken yet.
    CreditTooEarly = 12,
    /// A frame's checksum covers only the first bytes of its payload.
    ChecksumTooShort = 13,
    /// A client takes its heartbeat's echo to be as fresh as the heartbeat.
    RightFromHeartbeat = 14,
    /// A client counts its right from when a reply came, not from when its
    /// request was sent.
    RightFromReply = 15,
    /// A client takes what lies in its memory for what a failed READ fetched.
    BelieveFailedRead = 16,
    /// A session's number goes to the next session while replies to the former
    /// are on their way.
    NumberTooEarly = 17,
    /// The old guardian of a record that is moved stays live.
    MovedStaysLive = 18,
    /// A sender takes a ring to be one frame's alignment longer than it is.
    RingTooLong = 19,
    /// A client's unfinished upload keeps its slot when the client has gone.
    UploadOutlivesClient = 20,
    /// A slot is free at once although its bytes are still being sent.
    PinnedIsReused = 21,
    /// A RESP connection reads while writes of its own are unanswered.
    RespPastOwnWrites = 22,
    /// A shard's reply goes to whatever RESP connection has the slot now.
    RespAnswersSlot = 23,
    /// An optimistic read of the server does not look at a record's expiry.
    RespIgnoresExpiry = 24,
    /// What a lost link leaves unknown is told as a refusal: not done.
    LostIsRefused = 25,
    /// A walk believes a node that entries have left since it began.
    WalkIgnoresLeftAt = 26,
    /// A node that entries leave is marked with the counter before the change.
    LeftAtTooLow = 27,
    /// A leaf that a moved object leaves is not marked, as if it were removed and
    /// then added.
    MoveIsNoLoss = 28,
    /// An object that moves out of its leaf's box stays there, and the box as it
    /// was.
    StaleParentBox = 29,
    /// A node that is freed, as a root that is replaced, stays live.
    FreedStaysLive = 30,
    /// A client believes a tree's nodes although its root has gone.
    TreeWithoutRoot = 31,
    /// An object that moves to another leaf keeps its entry in the old one.
    MoveKeepsOldEntry = 32,
    /// Where an object is, by its id, is not told of its moves.
    MoveKeepsOldIndex = 33,
    /// A walk gives an object twice that it met in two leaves.
    DoublesStay = 34,
    /// A client believes a node whose version is even, whatever its checksum.
    BelieveTornNode = 35,
    /// A client does not compare the versions of the nodes that it keeps.
    TrustKeptTop = 36,
    /// A client counts what it read of a tree after its right has lapsed.
    ReadTreePastRight = 37,
    /// A search in parts goes on in a tree that has changed.
    SearchGoesOn = 38,
    /// An object's bytes stay when it is removed.
    DataOutlivesObject = 39,
    /// The cost policy takes reading to be as fast as it ever was, however full
    /// the network is.
    CostIgnoresBandwidth = 40,
    /// A refined search believes an object's record that is dead or another's.
    RefineBelievesDead = 41,
    /// A refined search takes an object whose record it does not know for its
    /// rectangle.
    RefineTakesRectangle = 42,
    /// The old record of an object that changes stays live until it has changed.
    HiddenTooLate = 43,
    /// A walk that fails is still counted among those that are admitted.
    FailedWalkStays = 44,
    /// Who reads what a tree's objects lead to does not look at the leaves again.
    LeavesUnchecked = 45,
    /// A step of the server's clock counts before readers were told of it.
    StepUntold = 46,
    /// The thread that sends for all on a TCP connection does not look again
    /// for what was added meanwhile.
    LeaveAddedFrames = 47,
    /// A shard that parks a client process does not look at its ready bits once
    /// more.
    ParkWithoutScan = 48,
    /// A thread that puts others' requests into a ring does not look once more
    /// whether some were left meanwhile.
    CombineOnce = 49,
    /// The thread that marks a parked client sets the summary word before the client's
    /// own bit.
    WordBeforePlace = 50,
    /// A client's thread that sleeps in the kernel for all looks into its inbox before it
    /// looks at the rings, and not after.
    SleepWithoutInbox = 51,
    /// A thread that has put others' requests into a ring often enough goes on with its own
    /// work without a last look.
    LeaveWithoutLook = 52,
}

impl Plant {
    /// All plants with their names on the command line.
    pub const ALL: [(&'static str, Self); 52] = [
        ("skip-record-validation", Self::SkipRecordValidation),
        ("trust-former-life", Self::TrustFormerLife),
        ("sleep-without-scan", Self::SleepWithoutScan),
        ("keep-sleep-to-oneself", Self::KeepSleepToOneself),
        ("plain-copy", Self::PlainCopy),
        ("keep-socket-to-oneself", Self::KeepSocketToOneself),
        ("updated-stays-live", Self::UpdatedStaysLive),
        ("removed-stays-live", Self::RemovedStaysLive),
        ("conclude-absence", Self::ConcludeAbsence),
        ("ignore-expiry", Self::IgnoreExpiry),
        ("read-past-own-writes", Self::ReadPastOwnWrites),
        ("credit-too-early", Self::CreditTooEarly),
        ("checksum-too-short", Self::ChecksumTooShort),
        ("right-from-heartbeat", Self::RightFromHeartbeat),
        ("right-from-reply", Self::RightFromReply),
        ("believe-failed-read", Self::BelieveFailedRead),
        ("number-too-early", Self::NumberTooEarly),
        ("moved-stays-live", Self::MovedStaysLive),
        ("ring-too-long", Self::RingTooLong),
        ("upload-outlives-client", Self::UploadOutlivesClient),
        ("pinned-is-reused", Self::PinnedIsReused),
        ("resp-past-own-writes", Self::RespPastOwnWrites),
        ("resp-answers-slot", Self::RespAnswersSlot),
        ("resp-ignores-expiry", Self::RespIgnoresExpiry),
        ("lost-is-refused", Self::LostIsRefused),
        ("walk-ignores-left-at", Self::WalkIgnoresLeftAt),
        ("left-at-too-low", Self::LeftAtTooLow),
        ("move-is-no-loss", Self::MoveIsNoLoss),
        ("stale-parent-box", Self::StaleParentBox),
        ("freed-stays-live", Self::FreedStaysLive),
        ("tree-without-root", Self::TreeWithoutRoot),
        ("move-keeps-old-entry", Self::MoveKeepsOldEntry),
        ("move-keeps-old-index", Self::MoveKeepsOldIndex),
        ("doubles-stay", Self::DoublesStay),
        ("believe-torn-node", Self::BelieveTornNode),
        ("trust-kept-top", Self::TrustKeptTop),
        ("read-tree-past-right", Self::ReadTreePastRight),
        ("search-goes-on", Self::SearchGoesOn),
        ("data-outlives-object", Self::DataOutlivesObject),
        ("cost-ignores-bandwidth", Self::CostIgnoresBandwidth),
        ("refine-believes-dead", Self::RefineBelievesDead),
        ("refine-takes-rectangle", Self::RefineTakesRectangle),
        ("hidden-too-late", Self::HiddenTooLate),
        ("failed-walk-stays", Self::FailedWalkStays),
        ("leaves-unchecked", Self::LeavesUnchecked),
        ("step-untold", Self::StepUntold),
        ("leave-added-frames", Self::LeaveAddedFrames),
        ("park-without-scan", Self::ParkWithoutScan),
        ("combine-once", Self::CombineOnce),
        ("word-before-place", Self::WordBeforePlace),
        ("sleep-without-inbox", Self::SleepWithoutInbox),
        ("leave-without-look", Self::LeaveWithoutLook),
    ];
}

#[cfg(feature = "plants")]
mod chosen {
    use super::Plant;
    use std::sync::atomic::{AtomicU8, Ordering};

    /// Nothing was chosen yet: the environment may name one.
    const UNASKED: u8 = u8::MAX;

    static CHOSEN: AtomicU8 = AtomicU8::new(UNASKED);

    /// Whether `plant` is switched on in this process.
    #[inline]
    pub fn planted(plant: Plant) -> bool {
        let chosen = CHOSEN.load(Ordering::Relaxed);
        (if chosen == UNASKED { ask() } else { chosen }) == plant as u8
    }

    /// The plant that the environment names. An unknown name is a usage error
    /// of whoever runs the tests.
    #[cold]
    fn ask() -> u8 {
        let named = std::env::var("REMORA_PLANT").ok().map(|name| {
            let found = Plant::ALL.iter().find(|(known, _)| *known == name);
            found.unwrap_or_else(|| panic!("no plant is named {name}")).1
        });
        choose(named);
        CHOSEN.load(Ordering::Relaxed)
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
