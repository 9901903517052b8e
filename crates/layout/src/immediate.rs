//! Immediates: a WRITE carries one beside its bytes, for the receiver that it wakes (RDMA_Mongo
//! 4.4, M25: the immediate value says what kind of message it is).
//!
//! ```text
//! 31 .. 16 kind        15 .. 0 number of the shard
//! ```

/// The kind of message that the WRITE brought.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum Kind {
    /// One or several requests, in the shard's ring.
    Request = 0,
    /// Credit for the shard's replies.
    Credit = 1,
    /// One or several replies, in the client's ring.
    Reply = 2,
}

/// The immediate of a message of this kind to or from a shard.
pub const fn of(kind: Kind, shard: usize) -> u32 {
    (kind as u32) << 16 | (shard as u32 & 0xffff)
}

/// The number of the shard.
pub const fn shard_of(imm: u32) -> usize {
    (imm & 0xffff) as usize
}

/// The kind; `None` if the peer sent a number that is no kind.
pub const fn kind_of(imm: u32) -> Option<Kind> {
    match imm >> 16 {
        0 => Some(Kind::Request),
        1 => Some(Kind::Credit),
        2 => Some(Kind::Reply),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::MAX_SHARDS;

    #[test]
    fn kind_and_shard_come_back() {
        for kind in [Kind::Request, Kind::Credit, Kind::Reply] {
            for shard in [0, 1, MAX_SHARDS - 1] {
                let imm = of(kind, shard);
                assert_eq!((kind_of(imm), shard_of(imm)), (Some(kind), shard));
            }
        }
        assert_eq!((kind_of(u32::MAX), shard_of(u32::MAX)), (None, 0xffff));
    }
}
