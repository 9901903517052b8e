//! Which shard has a key: its slot of 16,384, and a table from slots to shards.
//!
//! A key's slot is Redis Cluster's: the CRC16 (XMODEM: polynomial 0x1021, most
//! significant bit first, from 0) of the key, or of its *tag*, modulo 16,384.
//! The tag is the text between the first `{` and the first `}` behind it, if that text is not
//! empty. The database does not influence the slot.
//!
//! The server sends its table with the hello; clients route by the table, and by no formula. One
//! shard needs no slot.

/// Slots of a cluster, as Redis Cluster has them.
pub const SLOTS: usize = 16_384;

/// CRC tables: `TABLES[n][byte]` is the CRC16 of `byte` and `n` zeros behind it.
static TABLES: [[u16; 256]; 8] = tables();

const fn tables() -> [[u16; 256]; 8] {
    let mut tables = [[0u16; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 != 0 { crc << 1 ^ 0x1021 } else { crc << 1 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut zeros = 1;
    while zeros < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[zeros - 1][byte];
            tables[zeros][byte] = before << 8 ^ tables[0][(before >> 8) as usize];
            byte += 1;
        }
        zeros += 1;
    }
    tables
}

/// CRC16 (XMODEM) of some bytes, eight at a time.
#[inline]
pub fn crc16(bytes: &[u8]) -> u16 {
    let mut crc = 0u16;
    let mut eights = bytes.chunks_exact(8);
    for eight in &mut eights {
        let [high, low] = crc.to_be_bytes();
        crc = TABLES[7][(eight[0] ^ high) as usize]
            ^ TABLES[6][(eight[1] ^ low) as usize]
            ^ TABLES[5][eight[2] as usize]
            ^ TABLES[4][eight[3] as usize]
            ^ TABLES[3][eight[4] as usize]
            ^ TABLES[2][eight[5] as usize]
            ^ TABLES[1][eight[6] as usize]
            ^ TABLES[0][eight[7] as usize];
    }
    for &byte in eights.remainder() {
        crc = crc << 8 ^ TABLES[0][((crc >> 8) as u8 ^ byte) as usize];
    }
    crc
}

/// The slot of a key.
#[inline]
pub fn slot_of(key: &[u8]) -> u16 {
    let hashed = if has_brace(key) { tagged(key) } else { key };
    crc16(hashed) & (SLOTS - 1) as u16
}

/// Whether a key has a `{`, eight bytes at a time.
#[inline(always)]
fn has_brace(key: &[u8]) -> bool {
    const ONES: u64 = 0x0101_0101_0101_0101;
    let mut eights = key.chunks_exact(8);
    let mut found = 0;
    for eight in &mut eights {
        let word =
            u64::from_le_bytes(eight.try_into().expect("eight bytes")) ^ (ONES * b'{' as u64);
        // A byte that is zero now sets its highest bit; other bytes above such a byte may set
        // theirs too, which does no harm.
        found |= word.wrapping_sub(ONES) & !word & (ONES << 7);
    }
    found != 0 || eights.remainder().contains(&b'{')
}

/// The part of a key with a `{` that decides its slot.
#[cold]
fn tagged(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|&byte| byte == b'{') else { return key };
    let behind = &key[open + 1..];
    match behind.iter().position(|&byte| byte == b'}') {
        Some(length) if length > 0 => &behind[..length],
        _ => key,
    }
}

/// The shard of each slot.
#[derive(Clone, PartialEq, Eq)]
pub struct SlotTable {
    shards: usize,
    of: [u8; SLOTS],
}

impl SlotTable {
    /// The table in which `shards` (1 to 64) shards have equal ranges of slots.
    pub const fn even(shards: usize) -> Self {
        assert!(shards > 0 && shards <= crate::limits::MAX_SHARDS);
        let mut of = [0; SLOTS];
        let mut slot = 0;
        while slot < SLOTS {
            of[slot] = (slot * shards / SLOTS) as u8;
            slot += 1;
        }
        Self { shards, of }
    }

    /// The table in which shard `n` has the slots from `first[n]` to before
    /// `first[n + 1]`, the last one up to the end. `None` if the first does not
    /// begin at 0, or the numbers do not rise.
    pub fn from_first_slots(first: &[u16]) -> Option<Self> {
        let rises = first.windows(2).all(|pair| pair[0] < pair[1]);
        if first.first() != Some(&0)
            || first.len() > crate::limits::MAX_SHARDS
            || !rises
            || first.last().is_some_and(|&last| last as usize >= SLOTS)
        {
            return None;
        }
        let mut of = [0; SLOTS];
        for (shard, &from) in first.iter().enumerate() {
            of[from as usize..].fill(shard as u8);
        }
        Some(Self { shards: first.len(), of })
    }

    /// The first slot of each shard's range, for [`SlotTable::from_first_slots`];
    /// of a table of ranges in the shards' order.
    pub fn first_slots(&self) -> impl Iterator<Item = u16> {
        (0..self.shards).map(|shard| {
            let first = self.of.iter().position(|&of| of as usize == shard);
            first.expect("every shard has slots") as u16
        })
    }

    /// How many shards share the slots.
    pub const fn shards(&self) -> usize {
        self.shards
    }

    /// The shard of a slot.
    #[inline(always)]
    pub fn shard_of_slot(&self, slot: u16) -> usize {
        self.of[slot as usize & (SLOTS - 1)] as usize
    }

    /// The shard of a key.
    #[inline(always)]
    pub fn shard_of(&self, key: &[u8]) -> usize {
        if self.shards == 1 { 0 } else { self.shard_of_slot(slot_of(key)) }
    }
}

impl std::fmt::Debug for SlotTable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SlotTable").field("shards", &self.shards).finish_non_exhaustive()
    }
}

const _: () = assert!(crate::limits::MAX_SHARDS <= SLOTS && crate::limits::MAX_SHARDS <= 256);

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition, bit by bit.
    fn naive_crc16(bytes: &[u8]) -> u16 {
        bytes.iter().fold(0, |crc, &byte| {
            (0..8).fold(crc ^ (byte as u16) << 8, |crc, _| {
                if crc & 0x8000 != 0 { crc << 1 ^ 0x1021 } else { crc << 1 }
            })
        })
    }

    #[test]
    fn slots_are_those_of_redis_cluster() {
        // The check value that Redis Cluster's specification gives, and what
        // CLUSTER KEYSLOT of a Redis 7 answers.
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot_of(b"123456789"), 12_739);
        assert_eq!(slot_of(b"somekey"), 11_058);
        assert_eq!(slot_of(b"foo{hash_tag}"), 2_515);
        assert_eq!(slot_of(b""), 0);
    }

    #[test]
    fn a_tag_decides_if_it_is_not_empty() {
        let same = |a: &[u8], b: &[u8]| assert_eq!(slot_of(a), slot_of(b));
        // The examples of Redis Cluster's specification.
        same(b"{user1000}.following", b"{user1000}.followers");
        same(b"{user1000}.following", b"user1000");
        assert_eq!(slot_of(b"foo{}{bar}"), crc16(b"foo{}{bar}") % 16_384);
        same(b"foo{{bar}}zap", b"{bar");
        same(b"foo{bar}{zap}", b"bar");
        assert_eq!(
            slot_of(b"long key { without an end"),
            crc16(b"long key { without an end") % 16_384
        );
    }

    proptest::proptest! {
        #[test]
        fn eight_at_a_time_is_what_one_bit_at_a_time_gives(bytes: Vec<u8>, key in "[a{}|~\u{1}]{0,24}") {
            assert_eq!(crc16(&bytes), naive_crc16(&bytes));
            assert_eq!(has_brace(&bytes), bytes.contains(&b'{'));
            assert_eq!(has_brace(key.as_bytes()), key.contains('{'));
        }
    }

    #[test]
    fn an_even_table_shares_all_slots_and_comes_through_its_first_slots() {
        for shards in 1..=crate::limits::MAX_SHARDS {
            let table = SlotTable::even(shards);
            let mut counts = vec![0; shards];
            (0..SLOTS as u16).for_each(|slot| counts[table.shard_of_slot(slot)] += 1);
            let mean = SLOTS / shards;
            assert!(counts.iter().all(|count| (mean..=mean + 1).contains(count)), "{counts:?}");
            let first: Vec<u16> = table.first_slots().collect();
            assert_eq!(SlotTable::from_first_slots(&first), Some(table));
        }
        for refused in [&[][..], &[1], &[0, 0], &[0, 5, 4], &[0, SLOTS as u16]] {
            assert_eq!(SlotTable::from_first_slots(refused), None, "{refused:?}");
        }
        assert_eq!(SlotTable::from_first_slots(&[0; 65]), None);
    }
}
