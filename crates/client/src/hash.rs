//! Keys that hold hashes.

use crate::error::Error;
use crate::session::Session;
use remora_client_core as core;
use std::collections::BTreeMap;

/// Most hashes whose locations a session keeps.
const MOST_VIEWS: usize = 1 << 14;

/// A handle for a key that holds a hash: [`Session::hash`]. It asks for changes, and fetches a
/// field by either route. The first READ finds the hash; from then on a field is one round trip.
pub struct HashKey<'s> {
    core: &'s mut core::Session,
    view: &'s mut core::OpenHash,
    path: core::Path,
}

impl Session {
    /// A handle for a key that holds a hash, or will hold one. This sends nothing.
    ///
    /// # Errors
    /// The key is too long.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// session.hash(b"courier:7")?.set(&[(b"state", b"free"), (b"zone", b"north")])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn hash(&mut self, key: &[u8]) -> Result<HashKey<'_>, Error> {
        let Self { core, hashes, path, .. } = self;
        let view = hashes.get(key, MOST_VIEWS, || core.open_hash(key))?;
        Ok(HashKey { core, view, path: *path })
    }
}

impl<'s> HashKey<'s> {
    /// Fetches by this path.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// use remora_client::Path;
    ///
    /// let zone = session.hash(b"courier:7")?.by(Path::Read).get(b"zone")?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn by(self, path: core::Path) -> Self {
        Self { path, ..self }
    }

    /// The value of a field; none without the field or the key. Valid until the session is
    /// used again.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let zone = session.hash(b"courier:7")?.get(b"zone")?;
    /// println!("{:?}, {:?}, {} round trips", zone.value, zone.served_by, zone.counts.round_trips);
    /// # Ok(())
    /// # }
    /// ```
    pub fn get(self, name: &[u8]) -> Result<core::Got<'s>, Error> {
        Ok(self.core.hash_get(self.view, name, self.path)?)
    }

    /// The link in a field; none if the field is not there, or no link: [`Session::link_get`].
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let zone = session.hash(b"courier:7")?.link(b"zone")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn link(self, name: &[u8]) -> Result<Option<core::Link>, Error> {
        Ok(self.core.link_get(self.view, name, self.path)?)
    }

    /// The values of fields, in the order of the names, all of one moment. It always asks.
    ///
    /// # Errors
    /// See [`Error`]. Without any name it is refused as malformed.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let values = session.hash(b"courier:7")?.get_many(&[b"state", b"zone"])?;
    /// assert_eq!(values.len(), 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn get_many(&mut self, names: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>, Error> {
        Ok(self.core.hash_get_many(self.view, names)?)
    }

    /// All fields and their values, all of one moment. It always asks.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// for (name, value) in session.hash(b"courier:7")?.all()? {
    ///     println!("{} = {}", name.escape_ascii(), value.escape_ascii());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn all(&mut self) -> Result<BTreeMap<Vec<u8>, Vec<u8>>, Error> {
        Ok(self.core.hash_all(self.view)?)
    }

    /// Sets fields, as one change. Gives how many of them are new.
    ///
    /// # Errors
    /// See [`Error`]. Without any field it is refused as malformed.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// session.hash(b"courier:7")?.set(&[(b"state", b"busy"), (b"order", b"4711")])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn set(&mut self, fields: &[(&[u8], &[u8])]) -> Result<u64, Error> {
        Ok(self.core.hash_set(self.view, fields)?)
    }

    /// Sets fields to links, as one change: names, and the keys that their links name. Such a key need not
    /// hold anything yet. Every other read sees the key's name, and [`HashKey::set`] over it makes the field
    /// plain. Gives how many of the fields are new.
    ///
    /// # Errors
    /// See [`Error`]: [`Error::KeyTooLong`] of a link's key. Without any field it is refused as malformed.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// session.hash(b"courier:7")?.set_links(&[(b"zone", b"zone:3"), (b"boss", b"courier:1")])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn set_links(&mut self, links: &[(&[u8], &[u8])]) -> Result<u64, Error> {
        Ok(self.core.link_set(self.view, links)?)
    }

    /// Removes those of these fields that are links. Gives how many of them there were. The targets stay;
    /// the key is gone with its last field.
    ///
    /// # Errors
    /// See [`Error`]. Without any name it is refused as malformed.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// session.hash(b"courier:7")?.remove_links(&[b"boss"])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn remove_links(&mut self, names: &[&[u8]]) -> Result<u64, Error> {
        Ok(self.core.link_del(self.view, names)?)
    }

    /// Removes fields. Gives how many of them were there. The key is gone with its last
    /// field.
    ///
    /// # Errors
    /// See [`Error`]. Without any name it is refused as malformed.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// session.hash(b"courier:7")?.remove(&[b"order"])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn remove(&mut self, names: &[&[u8]]) -> Result<u64, Error> {
        Ok(self.core.hash_remove(self.view, names)?)
    }

    /// Adds to the integer in a field, 0 if it is absent. Gives the sum.
    ///
    /// # Errors
    /// See [`Error`]: the value is not an integer, or the sum does not fit.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let today = session.hash(b"courier:7")?.increment(b"orders today", 1)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn increment(&mut self, name: &[u8], by: i64) -> Result<i64, Error> {
        Ok(self.core.hash_increment(self.view, name, by)?)
    }

    /// Number of fields; 0 without the key.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let is_known = session.hash(b"courier:7")?.field_count()? > 0;
    /// # Ok(())
    /// # }
    /// ```
    pub fn field_count(&mut self) -> Result<u64, Error> {
        Ok(self.core.hash_len(self.view)?)
    }
}
