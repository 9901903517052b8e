//! Keys that hold sets.

use crate::error::Error;
use crate::session::Session;
use remora_client_core as core;

/// Most sets whose locations a session keeps.
const MOST_VIEWS: usize = 1 << 14;

/// A handle for a key that holds a set: [`Session::member_set`]. It asks for changes, and looks for a
/// member by either route.
///
/// A small set is one record: one READ says whether a member is there, or gives all of them. Of a large
/// set a member that was asked for once is found again by one batch of READs; that a member is absent
/// only the server says.
pub struct SetKey<'s> {
    core: &'s mut core::Session,
    view: &'s mut core::OpenSet,
    path: core::Path,
}

/// Whether a member is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Membership {
    /// Whether it is.
    pub is_member: bool,
    /// How that was found.
    pub served_by: core::ServedBy,
    /// What it cost.
    pub counts: core::Counts,
}

impl Session {
    /// A handle for a key that holds a set, or will hold one. This sends nothing.
    ///
    /// # Errors
    /// The key is too long.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// session.member_set(b"couriers:free")?.add(&[b"7", b"12"])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn member_set(&mut self, key: &[u8]) -> Result<SetKey<'_>, Error> {
        let Self { core, sets, path, .. } = self;
        let view = sets.get(key, MOST_VIEWS, || core.open_set(key))?;
        Ok(SetKey { core, view, path: *path })
    }
}

impl SetKey<'_> {
    /// Looks by this path.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// use remora_client::Path;
    ///
    /// let free = session.member_set(b"couriers:free")?.by(Path::Read).contains(b"7")?;
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn by(self, path: core::Path) -> Self {
        Self { path, ..self }
    }

    /// Whether a member is there.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let free = session.member_set(b"couriers:free")?.contains(b"7")?;
    /// println!("{}, {:?}", free.is_member, free.served_by);
    /// # Ok(())
    /// # }
    /// ```
    pub fn contains(self, member: &[u8]) -> Result<Membership, Error> {
        let core::Got { value, served_by, counts, .. } =
            self.core.set_has(self.view, member, self.path)?;
        Ok(Membership { is_member: value.is_some(), served_by, counts })
    }

    /// All members, all of one moment. Those of a large set are always asked for.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// for member in session.member_set(b"couriers:free")?.members()?.members {
    ///     println!("{}", member.escape_ascii());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn members(self) -> Result<core::AllMembers, Error> {
        Ok(self.core.set_members(self.view, self.path)?)
    }

    /// Adds members, as one change. Gives how many of them are new.
    ///
    /// # Errors
    /// See [`Error`]. Without any member it is refused as malformed.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let new = session.member_set(b"couriers:free")?.add(&[b"7"])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn add(&mut self, members: &[&[u8]]) -> Result<u64, Error> {
        Ok(self.core.set_add(self.view, members)?)
    }

    /// Removes members. Gives how many of them were there. The key is gone with its last
    /// member.
    ///
    /// # Errors
    /// See [`Error`]. Without any member it is refused as malformed.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// session.member_set(b"couriers:free")?.remove(&[b"7"])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn remove(&mut self, members: &[&[u8]]) -> Result<u64, Error> {
        Ok(self.core.set_remove(self.view, members)?)
    }

    /// Number of members; 0 without the key.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let free = session.member_set(b"couriers:free")?.member_count()?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn member_count(&mut self) -> Result<u64, Error> {
        Ok(self.core.set_len(self.view)?)
    }
}
