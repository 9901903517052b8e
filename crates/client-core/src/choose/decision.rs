//! The decision for an operation, and the operation's cost.

/// One of the two routes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Route {
    /// By message.
    Ask,
    /// By READs.
    Read,
}

impl Route {
    /// The other one.
    ///
    /// ```
    /// # use remora_client_core::Route;
    /// assert_eq!(Route::Ask.other(), Route::Read);
    /// ```
    pub const fn other(self) -> Self {
        match self {
            Self::Ask => Self::Read,
            Self::Read => Self::Ask,
        }
    }
}

/// The reason for a decision.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Why {
    /// The caller named the route.
    Given,
    /// The session's user may not read everything.
    Rights,
    /// The policy has one route only.
    Policy,
    /// Catfish: a heartbeat said that the server is busy.
    ServerBusy,
    /// Catfish: no recent heartbeat said so.
    ServerNotBusy,
    /// The session expects it to take less time.
    Cheaper,
    /// This route has not been tried yet.
    Untried,
    /// The session expects it to take longer, and tries it now and then so that its estimate stays
    /// current.
    Probe,
    /// As the operation before it: a few operations in a row take the same route.
    SameRun,
}

impl Why {
    /// In words.
    ///
    /// ```
    /// # use remora_client_core::Why;
    /// assert_eq!(Why::Untried.text(), "not tried yet");
    /// ```
    pub const fn text(self) -> &'static str {
        match self {
            Self::Given => "the path was given",
            Self::Rights => "this user may not read everything",
            Self::Policy => "the policy has one way only",
            Self::ServerBusy => "a heartbeat said that the server is busy",
            Self::ServerNotBusy => "no heartbeat lately said that the server is busy",
            Self::Cheaper => "expected to take less time",
            Self::Untried => "not tried yet",
            Self::Probe => "tried now and then, to know what it costs",
            Self::SameRun => "as the operation before it",
        }
    }
}

/// The decision for one operation.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Decision {
    /// The route to take.
    pub route: Route,
    /// Why.
    pub why: Why,
    /// Whether the caller reports the operation's cost to [`super::Chooser::learn`].
    pub is_measured: bool,
}

/// Draws numbers (xorshift64*, Vigna 2016).
#[derive(Clone, Debug)]
pub struct Draws(pub u64);

impl Draws {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Below `bound`, which is not 0.
    pub fn below(&mut self, bound: u32) -> u32 {
        (((self.next() >> 32) * bound as u64) >> 32) as u32
    }

    /// In [0, 1).
    pub fn share(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u32 << 24) as f32
    }
}

/// The cost of an operation.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Spent {
    /// Time from its beginning to its end, ns: if it read and then asked after all, both.
    pub elapsed_ns: u64,
    /// Nodes that crossed the fabric, if it read.
    pub reads: u64,
    /// The share of it, 0 to 1, that was read without a result, and then asked.
    pub in_vain: f32,
}
