//! Passwords, kept as SHA-256.

use crate::error::RuleError;
use sha2::{Digest, Sha256};
use std::fmt;
use subtle::{Choice, ConstantTimeEq};

/// The SHA-256 of a password.
#[derive(Clone)]
pub(crate) struct PasswordHash([u8; 32]);

/// Without the hash: it is a secret too.
impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordHash(..)")
    }
}

impl PasswordHash {
    pub(crate) fn of(password: &[u8]) -> Self {
        Self(Sha256::digest(password).into())
    }

    /// From 64 hexadecimal digits in lower case.
    pub(crate) fn from_hex(text: &[u8]) -> Result<Self, RuleError> {
        let mut hash = [0; 32];
        if text.len() != 2 * hash.len() {
            return Err(RuleError::BadHash);
        }
        for (byte, digits) in hash.iter_mut().zip(text.chunks_exact(2)) {
            *byte = digit(digits[0])? << 4 | digit(digits[1])?;
        }
        Ok(Self(hash))
    }

    pub(crate) fn to_hex(&self) -> String {
        self.0.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// Whether two are equal, in a time that does not depend on their bytes.
    pub(crate) fn ct_eq(&self, other: &Self) -> Choice {
        self.0.ct_eq(&other.0)
    }
}

fn digit(byte: u8) -> Result<u8, RuleError> {
    match byte {
        b'0'..=b'9' => Ok(byte - b'0'),
        b'a'..=b'f' => Ok(byte - b'a' + 10),
        _ => Err(RuleError::BadHash),
    }
}
