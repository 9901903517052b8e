//! Databases: sixteen spaces of keys, as Redis has them.
//!
//! The database number is part of a record's header and of the key's hash, and a reader compares
//! it.

/// Databases of a server: as many as Redis has by default, and as four bits
/// can number.
pub const DATABASES: usize = 16;

/// The number of a database, 0 to 15.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Hash)]
pub struct Database(u8);

impl Database {
    /// The database of connections and sessions that select none.
    pub const ZERO: Self = Self(0);

    /// The database with this number; `None` if there is none.
    pub const fn new(number: usize) -> Option<Self> {
        if number < DATABASES { Some(Self(number as u8)) } else { None }
    }

    /// The database that the low four bits of `bits` number.
    #[inline(always)]
    pub const fn of_bits(bits: u64) -> Self {
        Self(bits as u8 & 15)
    }

    /// Its number.
    #[inline(always)]
    pub const fn number(self) -> u8 {
        self.0
    }

    /// All of them.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..DATABASES as u8).map(Self)
    }
}

const _: () = assert!(DATABASES == 16);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_sixteen() {
        assert_eq!(Database::new(DATABASES), None);
        assert_eq!(Database::all().count(), DATABASES);
        for database in Database::all() {
            assert_eq!(Database::new(database.number() as usize), Some(database));
            assert_eq!(Database::of_bits(0xf0 | database.number() as u64), database);
        }
    }
}
