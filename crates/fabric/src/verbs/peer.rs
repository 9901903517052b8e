//! The regions of a peer, as the peer announced them: the address of an offset, and its key.

use crate::LinkError;
use remora_layout::verbs::RegionKey;

/// A range at the peer that one key covers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Remote {
    /// Address of its first byte.
    pub address: u64,
    /// Key of its registration.
    pub rkey: u32,
    /// Its length.
    pub bytes: usize,
}

/// A region of the peer.
#[derive(Clone, Debug)]
pub enum PeerRegion {
    /// A mailbox, to be written.
    Mailbox(RegionKey),
    /// An arena, to be read.
    Arena(PeerArena),
}

/// An arena, which its end has registered in pieces.
#[derive(Clone, Debug)]
pub struct PeerArena {
    /// Address of its first byte.
    pub address: u64,
    /// Its length.
    pub bytes: u64,
    /// Length of each piece but the last, which may be shorter.
    pub piece_bytes: u64,
    /// The key of each piece.
    pub rkeys: Box<[u32]>,
}

impl PeerRegion {
    /// Where a WRITE into the region with this number goes.
    ///
    /// # Errors
    /// It does not lie there, or the region is only to be read.
    pub fn write(&self, region: u32, offset: u64, bytes: usize) -> Result<Remote, LinkError> {
        check(region, self.bounds(), offset, bytes)?;
        let Self::Mailbox(key) = self else { return Err(LinkError::NotWritable(region)) };
        Ok(Remote { address: key.address.get() + offset, rkey: key.rkey.get(), bytes })
    }

    /// Where a READ from the region with this number fetches: a range for each
    /// piece that it touches, one if it fetches nothing.
    ///
    /// # Errors
    /// It does not lie there, or the region is only to be written.
    pub fn read(&self, region: u32, offset: u64, bytes: usize) -> Result<Ranges<'_>, LinkError> {
        check(region, self.bounds(), offset, bytes)?;
        let Self::Arena(arena) = self else { return Err(LinkError::NotReadable(region)) };
        Ok(Ranges { arena, offset, left: Some(bytes) })
    }

    /// Address and length.
    fn bounds(&self) -> (u64, u64) {
        match self {
            Self::Mailbox(key) => (key.address.get(), key.bytes.get()),
            Self::Arena(arena) => (arena.address, arena.bytes),
        }
    }
}

fn check(
    region: u32,
    (address, length): (u64, u64),
    offset: u64,
    bytes: usize,
) -> Result<(), LinkError> {
    let end = offset.checked_add(bytes as u64).filter(|end| *end <= length);
    // The peer may have told of a region that no memory has room for.
    let is_place = end.is_some_and(|end| address.checked_add(end).is_some());
    if offset.is_multiple_of(8) && is_place {
        Ok(())
    } else {
        Err(LinkError::OutOfBounds { region, offset, bytes })
    }
}

/// The ranges that a READ fetches, in their order.
#[derive(Clone, Debug)]
pub struct Ranges<'a> {
    arena: &'a PeerArena,
    offset: u64,
    /// Bytes that are still to come; `None` after the last range.
    left: Option<usize>,
}

impl Iterator for Ranges<'_> {
    type Item = Remote;

    fn next(&mut self) -> Option<Remote> {
        let (arena, left) = (self.arena, self.left?);
        // An empty range may lie at the very end: it belongs to the last piece.
        let piece = (self.offset / arena.piece_bytes).min(arena.rkeys.len() as u64 - 1);
        let room = (piece + 1).saturating_mul(arena.piece_bytes) - self.offset;
        let bytes = left.min(usize::try_from(room).unwrap_or(usize::MAX));
        let rkey = arena.rkeys[piece as usize];
        let range = Remote { address: arena.address + self.offset, rkey, bytes };
        self.offset += bytes as u64;
        self.left = (bytes < left).then_some(left - bytes);
        Some(range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three pieces of 64 bytes, and one of 40.
    fn arena() -> PeerRegion {
        let rkeys = [10, 11, 12, 13].into();
        PeerRegion::Arena(PeerArena { address: 1000, bytes: 232, piece_bytes: 64, rkeys })
    }

    /// The address and key of each byte that a READ fetches.
    fn fetched(offset: u64, bytes: usize) -> Vec<(u64, u32)> {
        let ranges = arena().read(7, offset, bytes).unwrap().collect::<Vec<_>>();
        ranges
            .iter()
            .flat_map(|range| (0..range.bytes as u64).map(|at| (range.address + at, range.rkey)))
            .collect()
    }

    #[test]
    fn every_byte_is_fetched_once_with_the_key_of_its_piece() {
        for offset in (0..=232).step_by(8) {
            for bytes in 0..=(232 - offset) as usize {
                let expected: Vec<_> = (offset..offset + bytes as u64)
                    .map(|at| (1000 + at, 10 + (at / 64) as u32))
                    .collect();
                assert_eq!(fetched(offset, bytes), expected, "{offset} {bytes}");
            }
        }
    }

    #[test]
    fn what_fetches_nothing_is_one_range_also_at_the_end() {
        for (offset, rkey) in [(0, 10), (64, 11), (224, 13), (232, 13)] {
            let ranges: Vec<_> = arena().read(7, offset, 0).unwrap().collect();
            assert_eq!(ranges, [Remote { address: 1000 + offset, rkey, bytes: 0 }]);
        }
        let whole: Vec<_> = arena().read(7, 64, 64).unwrap().collect();
        assert_eq!(whole, [Remote { address: 1064, rkey: 11, bytes: 64 }], "none is left over");
    }

    #[test]
    fn nothing_beyond_the_end_or_against_the_rights() {
        let key = RegionKey {
            address: (u64::MAX - 15).into(),
            bytes: 64.into(),
            rkey: 5.into(),
            reserved: 0.into(),
        };
        let mailbox = PeerRegion::Mailbox(key);
        let beyond = |offset, bytes| Some(LinkError::OutOfBounds { region: 7, offset, bytes });
        for (offset, bytes) in [(232, 1), (224, 9), (240, 0), (4, 4), (u64::MAX - 7, 8)] {
            assert_eq!(arena().read(7, offset, bytes).err(), beyond(offset, bytes));
            assert_eq!(arena().write(7, offset, bytes).err(), beyond(offset, bytes));
        }
        assert_eq!(arena().write(7, 0, 8), Err(LinkError::NotWritable(7)));
        assert_eq!(mailbox.read(7, 0, 8).err(), Some(LinkError::NotReadable(7)));
        let reached = Remote { address: u64::MAX - 15, rkey: 5, bytes: 8 };
        assert_eq!(mailbox.write(7, 0, 8), Ok(reached));
        // No memory goes that far.
        assert_eq!(mailbox.write(7, 8, 16).err(), beyond(8, 16));
    }
}
