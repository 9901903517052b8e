//! Links and plans in a cluster: each at the primary of its key's group.

use super::session::ClusterSession;
use crate::error::{Error, Refusal};
use remora_client_core as core;
use remora_plan::Plan;

impl ClusterSession {
    /// Sets fields of a hash to links, as one change: [`Session::link_set`](crate::Session::link_set). The
    /// targets may be keys of other groups: then their links have no hint.
    ///
    /// # Errors
    /// As [`ClusterSession::at`]; [`Error::KeyTooLong`] of a link's key.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::ClusterSession) -> Result<(), remora_client::Error> {
    /// session.link_set(b"courier:7", &[(b"zone", b"zone:3")])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn link_set(&mut self, key: &[u8], links: &[(&[u8], &[u8])]) -> Result<u64, Error> {
        self.at(key, |session| session.link_set(key, links))
    }

    /// Removes those of these fields of a hash that are links:
    /// [`Session::link_del`](crate::Session::link_del).
    ///
    /// # Errors
    /// As [`ClusterSession::at`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::ClusterSession) -> Result<(), remora_client::Error> {
    /// session.link_del(b"courier:7", &[b"zone"])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn link_del(&mut self, key: &[u8], names: &[&[u8]]) -> Result<u64, Error> {
        self.at(key, |session| session.link_del(key, names))
    }

    /// Adds links to these keys behind the last element of a list, as one change:
    /// [`Session::link_push`](crate::Session::link_push).
    ///
    /// # Errors
    /// As [`ClusterSession::at`]; [`Error::KeyTooLong`] of a link's key.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::ClusterSession) -> Result<(), remora_client::Error> {
    /// session.link_push(b"friends:7", &[b"courier:1", b"courier:2"])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn link_push(&mut self, key: &[u8], targets: &[&[u8]]) -> Result<u64, Error> {
        self.at(key, |session| session.link_push(key, targets))
    }

    /// The links of a range of a list: [`Session::link_range`](crate::Session::link_range).
    ///
    /// # Errors
    /// As [`ClusterSession::at`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::ClusterSession) -> Result<(), remora_client::Error> {
    /// let friends: Vec<_> = session.link_range(b"friends:7", 0, -1)?.into_iter().flatten().collect();
    /// # Ok(())
    /// # }
    /// ```
    pub fn link_range(
        &mut self,
        key: &[u8],
        start: i64,
        stop: i64,
    ) -> Result<Vec<Option<core::Link>>, Error> {
        self.at(key, |session| session.link_range(key, start, stop))
    }

    /// The link in a field of a hash: [`Session::link_get`](crate::Session::link_get).
    ///
    /// # Errors
    /// As [`ClusterSession::at`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::ClusterSession) -> Result<(), remora_client::Error> {
    /// let zone = session.link_get(b"courier:7", b"zone")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn link_get(&mut self, key: &[u8], name: &[u8]) -> Result<Option<core::Link>, Error> {
        self.at(key, |session| session.link_get(key, name))
    }

    /// Follows a link at the primary of the group that owns its target, and hands over what it led to:
    /// [`Session::chase`](crate::Session::chase). `take` may be called again if the primary changes meanwhile.
    ///
    /// # Errors
    /// As [`ClusterSession::at`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::ClusterSession) -> Result<(), remora_client::Error> {
    /// use remora_client::Target;
    ///
    /// let Some(zone) = session.link_get(b"courier:7", b"zone")? else { return Ok(()) };
    /// let surge = session.chase(&zone, |chased| match &chased.target {
    ///     Target::Hash(hash) => hash.get(b"surge").map(|field| field.value.to_vec()),
    ///     _ => None,
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn chase<T>(
        &mut self,
        link: &core::Link,
        mut take: impl FnMut(&core::Chased<'_>) -> T,
    ) -> Result<T, Error> {
        self.at(&link.key, |session| Ok(take(&session.chase(link)?)))
    }

    /// Runs a plan at the primary of the group that owns its first key, list or tree:
    /// [`Session::run_plan`](crate::Session::run_plan). All of its keys have to be of that group.
    ///
    /// # Errors
    /// As [`ClusterSession::at`]; the plan has come to a key of another group.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::ClusterSession) -> Result<(), Box<dyn std::error::Error>> {
    /// use remora_client::plan::text;
    ///
    /// let words: [&[u8]; 7] = [b"FROM", b"KEYS", b"1", b"{a}courier:7", b"FOLLOW", b"zone", b"GETALL"];
    /// let run = session.run_plan(&text::parse(&words)?.plan)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn run_plan(&mut self, plan: &Plan) -> Result<core::PlanRun, Error> {
        // A plan that starts from keys has one.
        let key = plan.start().first_key().cloned().unwrap_or_default();
        let run = self.at(&key, |session| match session.run_plan(plan) {
            Err(Error::Refused(Refusal::OtherGroup)) => {
                // If the first key is of this group, a later one is not: no other server knows better.
                session.exists(&key)?;
                Ok(None)
            }
            run => run.map(Some),
        })?;
        run.ok_or(Error::Refused(Refusal::OtherGroup))
    }
}
