//! How old what a server shows may be, in 16 bits: in heartbeats and in replies.
//!
//! ```text
//!   0        the server is a primary: it shows what it has now
//!   0xffff   it shows nothing now, or it does not know how old that is
//!   else     exponent 4 | mantissa 12: mantissa << exponent, in units of LAG_UNIT_US
//! ```
//! Invariant: what is decoded is never less than what was encoded.

use crate::limits::LAG_UNIT_US;

const MANTISSA_BITS: u32 = 12;
const MANTISSA: u64 = (1 << MANTISSA_BITS) - 1;
const UNIT_NS: u64 = LAG_UNIT_US * 1_000;

/// See the module's text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Lag(u16);

impl Lag {
    /// Of a primary.
    pub const PRIMARY: Self = Self(0);
    /// Of a replica that shows nothing now, or whose lag is not known. It renews no read lease.
    pub const UNKNOWN: Self = Self(u16::MAX);

    /// Of a replica with this lag, ns of its clock, rounded up. Beyond 3.7 hours it is unknown.
    pub const fn of_ns(ns: u64) -> Self {
        let units = match ns.div_ceil(UNIT_NS) {
            0 => 1,
            units => units,
        };
        let mut exponent = 0;
        while exponent < 16 {
            let mantissa = units.div_ceil(1 << exponent);
            if mantissa <= MANTISSA {
                // The greatest code of all is that of the unknown lag.
                return Self((exponent << MANTISSA_BITS) | mantissa as u16);
            }
            exponent += 1;
        }
        Self::UNKNOWN
    }

    /// The lag, ns: 0 of a primary, and `u64::MAX` if it is unknown.
    #[inline]
    pub const fn ns(self) -> u64 {
        match self {
            Self::UNKNOWN => u64::MAX,
            Self(code) => ((code as u64 & MANTISSA) << (code >> MANTISSA_BITS)) * UNIT_NS,
        }
    }

    /// Whether the server is a primary.
    #[inline(always)]
    pub const fn is_primary(self) -> bool {
        self.0 == 0
    }

    /// Whether nothing is known of the lag.
    #[inline(always)]
    pub const fn is_unknown(self) -> bool {
        self.0 == u16::MAX
    }

    /// On the wire.
    #[inline(always)]
    pub const fn code(self) -> u16 {
        self.0
    }

    /// From the wire. Each code means something.
    #[inline(always)]
    pub const fn of_code(code: u16) -> Self {
        Self(code)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lag_is_rounded_up_by_at_most_a_unit_or_a_two_thousandth() {
        for shift in 0..43 {
            for near in [-1i64, 0, 1, 12_345] {
                let ns = (1u64 << shift).saturating_add_signed(near);
                let told = Lag::of_ns(ns);
                assert!(!told.is_primary() && !told.is_unknown(), "{ns}");
                assert!(told.ns() >= ns, "{ns} becomes {}", told.ns());
                assert!(told.ns() - ns <= UNIT_NS.max(ns / 2_000), "{ns} becomes {}", told.ns());
                assert_eq!(Lag::of_code(told.code()), told);
            }
        }
    }

    #[test]
    fn a_replica_is_never_taken_for_a_primary_and_a_lag_beyond_all_is_unknown() {
        assert!(Lag::of_ns(0).ns() > 0);
        assert_eq!(Lag::PRIMARY.ns(), 0);
        let most = (MANTISSA - 1) << 15;
        assert_eq!(Lag::of_ns(most * UNIT_NS).ns(), most * UNIT_NS);
        for ns in [most * UNIT_NS + 1, u64::MAX] {
            assert_eq!(Lag::of_ns(ns), Lag::UNKNOWN);
        }
        assert_eq!(Lag::UNKNOWN.ns(), u64::MAX);
    }
}
