//! ACL GENPASS.

use remora_layout::limits::{ACL_PASSWORD_BITS, MAX_ACL_PASSWORD_BITS};
use thiserror::Error;

/// A number of bits that no password has.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Error)]
#[error(
    "ACL GENPASS argument must be the number of bits for the output password, a positive number \
     up to {MAX_ACL_PASSWORD_BITS}"
)]
pub struct BadBits;

/// How a password is made: from so many random bytes that the caller gives.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Genpass {
    digits: usize,
}

impl Genpass {
    /// For a password of this many bits, rounded up to 4; without a number it has 256.
    ///
    /// # Errors
    /// No bits, or more than 4096.
    pub fn new(bits: Option<i64>) -> Result<Self, BadBits> {
        let bits = usize::try_from(bits.unwrap_or(ACL_PASSWORD_BITS)).map_err(|_| BadBits)?;
        match bits {
            1..=MAX_ACL_PASSWORD_BITS => Ok(Self { digits: bits.div_ceil(4) }),
            _ => Err(BadBits),
        }
    }

    /// The random bytes that [`password`](Self::password) takes.
    pub fn bytes(self) -> usize {
        self.digits.div_ceil(2)
    }

    /// The password: the bytes' hexadecimal digits.
    ///
    /// ```
    /// use remora_acl::Genpass;
    /// let genpass = Genpass::new(Some(12)).expect("a number of bits");
    /// assert_eq!(genpass.bytes(), 2);
    /// assert_eq!(genpass.password(&[0xab, 0xcd]), "abc");
    /// ```
    ///
    /// # Panics
    /// These are not so many bytes as [`bytes`](Self::bytes) says.
    pub fn password(self, random: &[u8]) -> String {
        assert_eq!(random.len(), self.bytes(), "the random bytes of a password");
        let mut text: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        text.truncate(self.digits);
        text
    }
}
