//! How to fetch a value, and how it was fetched.

/// How to fetch a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Path {
    /// Always by message.
    Ask,
    /// By READs: a cached pointer, else bucket and record; asks only when reading cannot conclude.
    Read,
    /// As the session's [`Policy`](crate::Policy) says.
    #[default]
    Choose,
}

/// How a result was finally fetched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ServedBy {
    /// The server was asked, at once.
    Asked,
    /// Read, without any retry.
    Read,
    /// Read after this many retries.
    ReadAfter(u32),
    /// Reading did not conclude; the server was asked after all.
    AskedAfterRead,
}

impl ServedBy {
    /// Whether READs alone concluded.
    ///
    /// ```
    /// # use remora_client_core::ServedBy;
    /// assert!(ServedBy::ReadAfter(1).is_read());
    /// assert!(!ServedBy::AskedAfterRead.is_read());
    /// ```
    pub const fn is_read(self) -> bool {
        matches!(self, Self::Read | Self::ReadAfter(_))
    }

    /// Asked, after this many round trips of READs that did not conclude.
    pub(crate) const fn asked_after(round_trips: u64) -> Self {
        if round_trips == 0 { Self::Asked } else { Self::AskedAfterRead }
    }

    /// Read, after this many READs without a result.
    pub(crate) const fn read_after(tries: u32) -> Self {
        if tries == 0 { Self::Read } else { Self::ReadAfter(tries) }
    }
}
