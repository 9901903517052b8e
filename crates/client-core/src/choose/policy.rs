//! The policies by name.

/// The rule that decides [`Path::Choose`](crate::Path::Choose).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Policy {
    /// Always asks.
    Ask,
    /// Always reads.
    Read,
    /// Catfish's algorithm 1 as it is printed: a call that consumes no heartbeat forgets how often
    /// in a row the server was busy (A11, i).
    CatfishLiteral,
    /// Algorithm 1 as its text describes it: the count stays until the next heartbeat (A11, ii).
    CatfishKeep,
    /// Reads a key whose pointer is known; asks for everything else, and the reply brings a pointer
    /// with a lease (HydraDB 4.2.2, H19).
    Pointer,
    /// The route that costs less time, by measurements and by the server's heartbeats while the
    /// client reads.
    #[default]
    Cost,
}

impl Policy {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Ask, Self::Read, Self::CatfishLiteral, Self::CatfishKeep, Self::Pointer, Self::Cost];

    /// The name in commands and reports.
    ///
    /// ```
    /// # use remora_client_core::Policy;
    /// assert_eq!(Policy::CatfishKeep.name(), "catfish-keep");
    /// ```
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ask => "ask",
            Self::Read => "read",
            Self::CatfishLiteral => "catfish-literal",
            Self::CatfishKeep => "catfish-keep",
            Self::Pointer => "pointer",
            Self::Cost => "cost",
        }
    }
}
