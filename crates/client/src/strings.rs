//! Values changed and looked at piece by piece. All of it is asked: the owner
//! knows the present value, and what is written at once by several sessions is
//! put in an order there.

use crate::error::Error;
use crate::session::Session;
use remora_protocol::Command;

impl Session {
    /// Appends to a key's value, which is empty if the key is absent; its
    /// expiry stays. Gives the new length in bytes.
    ///
    /// # Errors
    /// See [`Error`]; the value may become too long.
    pub fn append(&mut self, key: &[u8], bytes: &[u8]) -> Result<u64, Error> {
        Ok(self.ask(&Command::Append { key, value: bytes })?.number as u64)
    }

    /// Overwrites a key's value from `offset` (in bytes) on; a shorter value is
    /// lengthened with zeros, the expiry stays. Gives the new length in bytes.
    /// No `bytes` change nothing and make no key.
    ///
    /// # Errors
    /// See [`Error`]; the value may become too long.
    pub fn set_range(&mut self, key: &[u8], offset: u64, bytes: &[u8]) -> Result<u64, Error> {
        Ok(self.ask(&Command::SetRange { key, offset, value: bytes })?.number as u64)
    }

    /// The bytes from `start` to `end` of a key's value, both included;
    /// negative ones count from the end, -1 being the last. Empty if the key is
    /// absent. Valid until the session is used again.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn get_range(&mut self, key: &[u8], start: i64, end: i64) -> Result<&[u8], Error> {
        let answer = self.ask_any_size(&Command::get_range(key, start, end))?;
        Ok(answer.value.map_or(&[], |(from, to)| &self.reply[from..to]))
    }

    /// Sets one bit of a key's value and gives the bit before. Bit 0 is the
    /// highest of byte 0; a shorter value is lengthened with zeros, the expiry
    /// stays.
    ///
    /// # Errors
    /// See [`Error`]; the value may become too long.
    pub fn set_bit(&mut self, key: &[u8], offset: u32, bit: bool) -> Result<bool, Error> {
        Ok(self.ask(&Command::SetBit { key, offset, bit })?.number != 0)
    }

    /// One bit of a key's value; false behind its end and if it is absent.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn get_bit(&mut self, key: &[u8], offset: u32) -> Result<bool, Error> {
        Ok(self.ask(&Command::GetBit { key, offset })?.number != 0)
    }

    /// Length of a key's value in bytes; 0 if the key is absent.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn strlen(&mut self, key: &[u8]) -> Result<u64, Error> {
        Ok(self.ask(&Command::StrLen { key })?.number as u64)
    }

    /// Removes a key and gives the value that it had. Valid until the session
    /// is used again.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn get_del(&mut self, key: &[u8]) -> Result<Option<&[u8]>, Error> {
        // Without room for its value the key stays, and is asked for again.
        let answer = self.ask_any_size(&Command::GetDel { key })?;
        Ok(answer.value.map(|(from, to)| &self.reply[from..to]))
    }

    /// A key's value, whose expiry is set to `at_ms` (Unix ms; in the past
    /// removes the key) or taken away by `None`. Valid until the session is
    /// used again.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn get_ex(&mut self, key: &[u8], at_ms: Option<u64>) -> Result<Option<&[u8]>, Error> {
        // As for `get_del`.
        let answer = self.ask_any_size(&Command::GetEx { key, at_ms })?;
        Ok(answer.value.map(|(from, to)| &self.reply[from..to]))
    }
}
