//! Sizes of memory as people write them.

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize, Serializer};
use std::fmt;
use std::str::FromStr;

/// A number of bytes, written `1073741824`, `1GiB`, `512mb`, `1.5g`.
///
/// As in Redis, `k`, `m`, `g` are powers of 1000 and `kb`, `mb`, `gb` powers
/// of 1024; `KiB`, `MiB`, `GiB`, `TiB` are powers of 1024 too. Case is free.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Size(pub u64);

const UNITS: [(&str, u64); 14] = [
    ("", 1),
    ("b", 1),
    ("k", 1000),
    ("m", 1_000_000),
    ("g", 1_000_000_000),
    ("t", 1_000_000_000_000),
    ("kb", 1 << 10),
    ("mb", 1 << 20),
    ("gb", 1 << 30),
    ("tb", 1 << 40),
    ("kib", 1 << 10),
    ("mib", 1 << 20),
    ("gib", 1 << 30),
    ("tib", 1 << 40),
];

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            || format!("\"{text}\" is no size: write bytes, or a number with a unit, such as 1GiB");
        let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
        let (number, unit) = text.split_at(digits);
        let unit = unit.trim_start().to_ascii_lowercase();
        let (_, factor) = UNITS.into_iter().find(|(name, _)| *name == unit).ok_or_else(wrong)?;
        if let Ok(whole) = number.parse::<u64>() {
            return whole.checked_mul(factor).map(Self).ok_or_else(wrong);
        }
        let bytes = number.parse::<f64>().map_err(|_| wrong())? * factor as f64;
        // 2^63: far beyond any memory, and exact in both directions.
        if (0.0..9.2e18).contains(&bytes) { Ok(Self(bytes as u64)) } else { Err(wrong()) }
    }
}

impl fmt::Display for Size {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, factor) in [("GiB", 1u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
            if self.0 >= factor && self.0.is_multiple_of(factor) {
                return write!(out, "{}{name}", self.0 / factor);
            }
        }
        write!(out, "{}", self.0)
    }
}

impl Serialize for Size {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SizeVisitor;
        impl Visitor<'_> for SizeVisitor {
            type Value = Size;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a number of bytes or a size such as \"1GiB\"")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Size, E> {
                text.parse().map_err(E::custom)
            }
            fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<Size, E> {
                Ok(Size(bytes))
            }
            fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<Size, E> {
                u64::try_from(bytes).map(Size).map_err(|_| E::custom("a size is not negative"))
            }
        }
        deserializer.deserialize_any(SizeVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        for (text, bytes) in [
            ("0", 0),
            ("1073741824", 1 << 30),
            ("1GiB", 1 << 30),
            ("1gb", 1 << 30),
            ("512mb", 512 << 20),
            ("512 MiB", 512 << 20),
            ("1k", 1000),
            ("1g", 1_000_000_000),
            ("1.5KiB", 1536),
            ("2b", 2),
            ("3TiB", 3 << 40),
        ] {
            assert_eq!(text.parse(), Ok(Size(bytes)), "{text}");
        }
    }

    #[test]
    fn nonsense_is_refused() {
        for text in ["", "GiB", "-1", "1 potato", "1.2.3", "1e9", "99999999999TiB", "1 G i B"] {
            assert!(text.parse::<Size>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_printed_size_is_read_back() {
        for bytes in [0, 1, 1023, 1024, 1 << 20, 3 << 30, (1 << 30) + 1] {
            assert_eq!(Size(bytes).to_string().parse(), Ok(Size(bytes)));
        }
    }
}
