//! Keys that hold strings.

use crate::error::Error;
use crate::session::Session;
use crate::time::{after, to_unix_ms};
use remora_client_core as core;
use remora_protocol::{Command, Condition, Expiry};
use std::time::{Duration, SystemTime};

/// Options of a SET.
///
/// ```
/// use remora_client::SetOptions;
/// use std::time::Duration;
///
/// // A lock that frees itself after ten seconds.
/// let options = SetOptions::default().if_absent().expire(Duration::from_secs(10));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SetOptions {
    pub(crate) core: core::SetOptions,
}

impl SetOptions {
    /// Only if the key does not exist (Redis's NX).
    ///
    /// ```
    /// # use remora_client::SetOptions;
    /// let options = SetOptions::default().if_absent();
    /// ```
    #[must_use]
    pub fn if_absent(mut self) -> Self {
        self.core.condition = Condition::IfAbsent;
        self
    }

    /// Only if the key exists (XX).
    ///
    /// ```
    /// # use remora_client::SetOptions;
    /// let options = SetOptions::default().if_present();
    /// ```
    #[must_use]
    pub fn if_present(mut self) -> Self {
        self.core.condition = Condition::IfPresent;
        self
    }

    /// The key expires after a time, by this machine's clock (EX, PX).
    ///
    /// ```
    /// # use remora_client::SetOptions;
    /// let options = SetOptions::default().expire(std::time::Duration::from_secs(60));
    /// ```
    #[must_use]
    pub fn expire(self, after_time: Duration) -> Self {
        self.expire_at(after(after_time))
    }

    /// The key expires at a moment (EXAT, PXAT).
    ///
    /// ```
    /// # use remora_client::SetOptions;
    /// use std::time::{Duration, SystemTime};
    ///
    /// let options = SetOptions::default().expire_at(SystemTime::now() + Duration::from_secs(60));
    /// ```
    #[must_use]
    pub fn expire_at(mut self, at: SystemTime) -> Self {
        self.core.expiry = Expiry::At(to_unix_ms(at));
        self
    }

    /// The key keeps its expiry (KEEPTTL). Without this a SET removes it.
    ///
    /// ```
    /// # use remora_client::SetOptions;
    /// let options = SetOptions::default().keep_expiry();
    /// ```
    #[must_use]
    pub fn keep_expiry(mut self) -> Self {
        self.core.expiry = Expiry::Keep;
        self
    }
}

/// A handle for a key that holds a string: [`Session::string`]. It asks for changes, and fetches
/// the value by either route.
pub struct StringKey<'s> {
    session: &'s mut Session,
    key: &'s [u8],
    path: core::Path,
}

impl Session {
    /// A handle for a key that holds a string, or will hold one. This sends nothing.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let seen = session.string(b"seen").increment(1)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn string<'s>(&'s mut self, key: &'s [u8]) -> StringKey<'s> {
        StringKey::new(self, key)
    }
}

impl<'s> StringKey<'s> {
    pub(crate) fn new(session: &'s mut Session, key: &'s [u8]) -> Self {
        let path = session.path;
        Self { session, key, path }
    }

    /// Fetches by this path.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// use remora_client::Path;
    ///
    /// let got = session.string(b"courier:7").by(Path::Ask).get()?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn by(self, path: core::Path) -> Self {
        Self { path, ..self }
    }

    /// The value, how it was fetched, and its cost. Valid until the session is used again.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let got = session.string(b"courier:7").get()?;
    /// println!("{:?}, {:?}, {} bytes", got.value, got.served_by, got.counts.bytes);
    /// # Ok(())
    /// # }
    /// ```
    #[inline]
    pub fn get(self) -> Result<core::Got<'s>, Error> {
        self.session.core.get_as(self.key, self.path)
    }

    /// Sets the value. The key no longer expires.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// session.string(b"courier:7").set(b"free")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn set(&mut self, value: &[u8]) -> Result<(), Error> {
        self.set_with(value, SetOptions::default()).map(drop)
    }

    /// Sets the value as the options say. False if their condition does not hold.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// use remora_client::SetOptions;
    ///
    /// let options = SetOptions::default().if_absent();
    /// let is_new = session.string(b"lock").set_with(b"me", options)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_with(&mut self, value: &[u8], options: SetOptions) -> Result<bool, Error> {
        Ok(self.session.core.set(self.key, value, options.core)?)
    }

    /// Sets the value as the options say, and gives the one before, whether the condition
    /// held or not (SET's GET). Valid until the session is used again.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// use remora_client::SetOptions;
    ///
    /// let before = session.string(b"state").replace(b"busy", SetOptions::default())?;
    /// println!("it was {before:?}");
    /// # Ok(())
    /// # }
    /// ```
    pub fn replace(self, value: &[u8], options: SetOptions) -> Result<Option<&'s [u8]>, Error> {
        let core::SetOptions { condition, expiry } = options.core;
        let command = Command::Set { key: self.key, value, condition, expiry, get: true };
        Ok(self.session.core.ask(&command)?.value)
    }

    /// Removes the key and gives the value that it had. Valid until the session is used
    /// again.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let job = session.string(b"job").take()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn take(self) -> Result<Option<&'s [u8]>, Error> {
        Ok(self.session.core.get_del(self.key)?)
    }

    /// Returns the value, and lets its key expire after a time from now on; `None` removes the
    /// expiry. Valid until the session is used again.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// use std::time::Duration;
    ///
    /// let token = session.string(b"token").get_and_expire(Some(Duration::from_secs(60)))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn get_and_expire(self, after_time: Option<Duration>) -> Result<Option<&'s [u8]>, Error> {
        let at_ms = after_time.map(|time| to_unix_ms(after(time)));
        Ok(self.session.core.get_ex(self.key, at_ms)?)
    }

    /// Adds to the integer that the key holds, 0 if it is absent. Gives the sum.
    ///
    /// # Errors
    /// See [`Error`]: the value is not an integer, or the sum does not fit.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let orders = session.string(b"orders").increment(1)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn increment(&mut self, by: i64) -> Result<i64, Error> {
        Ok(self.session.core.incr(self.key, by)?)
    }

    /// Appends to the value, which is empty if the key is absent; the expiry stays. Gives the
    /// new length in bytes.
    ///
    /// # Errors
    /// See [`Error`]: the value may become too long.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let bytes = session.string(b"log").append(b"line\n")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn append(&mut self, bytes: &[u8]) -> Result<u64, Error> {
        Ok(self.session.core.append(self.key, bytes)?)
    }

    /// Overwrites the value from `offset`, in bytes, on; it pads a shorter value with zeros, and
    /// keeps the expiry. Returns the new length in bytes. Empty `bytes` change nothing and create
    /// no key.
    ///
    /// # Errors
    /// See [`Error`]: the value may become too long.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// session.string(b"page").set_range(4096, b"second")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_range(&mut self, offset: u64, bytes: &[u8]) -> Result<u64, Error> {
        Ok(self.session.core.set_range(self.key, offset, bytes)?)
    }

    /// The bytes from `start` to `end` of the value, both included; negative ones count from
    /// the end, -1 being the last. Empty if the key is absent. Valid until the session is
    /// used again.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let last_ten = session.string(b"log").get_range(-10, -1)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn get_range(self, start: i64, end: i64) -> Result<&'s [u8], Error> {
        Ok(self.session.core.get_range(self.key, start, end)?)
    }

    /// Sets one bit of the value, and returns the previous bit. Bit 0 is the highest of byte 0; it
    /// pads a shorter value with zeros, and keeps the expiry.
    ///
    /// # Errors
    /// See [`Error`]: the value may become too long.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let was_active = session.string(b"active:today").set_bit(4711, true)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_bit(&mut self, offset: u32, bit: bool) -> Result<bool, Error> {
        Ok(self.session.core.set_bit(self.key, offset, bit)?)
    }

    /// One bit of the value; false behind its end and if the key is absent.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let is_active = session.string(b"active:today").get_bit(4711)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn get_bit(&mut self, offset: u32) -> Result<bool, Error> {
        Ok(self.session.core.get_bit(self.key, offset)?)
    }

    /// Length of the value in bytes; 0 if the key is absent.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let bytes = session.string(b"log").byte_len()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn byte_len(&mut self) -> Result<u64, Error> {
        Ok(self.session.core.strlen(self.key)?)
    }
}
