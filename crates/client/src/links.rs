//! Links, and plans over them.

use crate::error::Error;
use crate::session::Session;
use remora_client_core as core;
use remora_plan::Plan;

impl Session {
    /// Sets fields of a hash to links, as one change: names, and the keys that their links name. Such a key
    /// need not hold anything yet. Gives how many of the fields are new. It is [`HashKey::set_links`].
    ///
    /// [`HashKey::set_links`]: crate::HashKey::set_links
    ///
    /// # Errors
    /// See [`Error`]: [`Error::KeyTooLong`] of a link's key. Without any field it is refused as malformed.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// session.link_set(b"courier:7", &[(b"zone", b"zone:3")])?;
    /// let zone = session.link_get(b"courier:7", b"zone")?.expect("it was just set");
    /// println!("{:?}", session.chase(&zone)?.target);
    /// # Ok(())
    /// # }
    /// ```
    pub fn link_set(&mut self, key: &[u8], links: &[(&[u8], &[u8])]) -> Result<u64, Error> {
        self.hash(key)?.set_links(links)
    }

    /// Removes those of these fields of a hash that are links. Gives how many of them there were. The
    /// targets stay; the key is gone with its last field.
    ///
    /// # Errors
    /// See [`Error`]. Without any name it is refused as malformed.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// session.link_del(b"courier:7", &[b"zone"])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn link_del(&mut self, key: &[u8], names: &[&[u8]]) -> Result<u64, Error> {
        self.hash(key)?.remove_links(names)
    }

    /// Adds links to these keys behind the last element of a list, as one change. Gives the length of the
    /// list. At the other end: [`ListKey::push_links_front`](crate::ListKey::push_links_front).
    ///
    /// # Errors
    /// See [`Error`]: [`Error::KeyTooLong`] of a link's key. Without any key it is refused as malformed.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// session.link_push(b"friends:7", &[b"courier:1", b"courier:2"])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn link_push(&mut self, key: &[u8], targets: &[&[u8]]) -> Result<u64, Error> {
        self.list(key)?.push_links_back(targets)
    }

    /// The link in a field of a hash; none if the field is not there, or no link. Read, it comes with the
    /// hint of where its target lies.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// if let Some(zone) = session.link_get(b"courier:7", b"zone")? {
    ///     println!("to {}", zone.key.escape_ascii());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn link_get(&mut self, key: &[u8], name: &[u8]) -> Result<Option<core::Link>, Error> {
        let path = self.path;
        self.hash(key)?.by(path).link(name)
    }

    /// The links of a range of a list, from one index to another, both included; none for an element that is
    /// no link. An index below 0 counts from the end.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let friends: Vec<_> = session.link_range(b"friends:7", 0, -1)?.into_iter().flatten().collect();
    /// session.chase_many(&friends, &mut |number, chased| println!("{number}: {:?}", chased.target))?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn link_range(
        &mut self,
        key: &[u8],
        start: i64,
        stop: i64,
    ) -> Result<Vec<Option<core::Link>>, Error> {
        let path = self.path;
        self.list(key)?.by(path).links(start, stop)
    }

    /// Follows a link: what its key holds, a hash with all its fields or a string. It is valid until the
    /// session is used again. One READ, if the link's hint is good and the target lies whole in its record;
    /// a READ, a bucket and a record if the hint is stale. Only the server says that nothing is there.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// use remora_client::Target;
    ///
    /// let Some(zone) = session.link_get(b"courier:7", b"zone")? else { return Ok(()) };
    /// let chased = session.chase(&zone)?;
    /// if let Target::Hash(hash) = &chased.target {
    ///     println!("{:?}, {:?}", hash.get(b"surge"), chased.served_by);
    ///     // The next hop.
    ///     let city = hash.link(b"city");
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn chase<'s>(&'s mut self, link: &'s core::Link) -> Result<core::Chased<'s>, Error> {
        Ok(self.core.chase(link, self.path)?)
    }

    /// Follows many links, to any shards: by one batch of READs, and another one or two for those that are
    /// stale. It calls `each` once for each of them, in any order, with the link's number. Returns the cost of
    /// all of it. Each target is of one moment; two of them may be of different moments.
    ///
    /// # Errors
    /// See [`Error`]; `each` may have been called for some links.
    ///
    /// ```no_run
    /// # fn example(
    /// #     session: &mut remora_client::Session,
    /// #     friends: Vec<remora_client::Link>,
    /// # ) -> Result<(), remora_client::Error> {
    /// let mut of_friends = Vec::new();
    /// let counts = session.chase_many(&friends, &mut |_, chased| {
    ///     if let remora_client::Target::Hash(hash) = &chased.target {
    ///         of_friends.extend(hash.link(b"best"));
    ///     }
    /// })?;
    /// println!("{} hops in {} round trips", friends.len(), counts.round_trips);
    /// # Ok(())
    /// # }
    /// ```
    pub fn chase_many(
        &mut self,
        links: &[core::Link],
        each: &mut core::EachChased<'_>,
    ) -> Result<core::Counts, Error> {
        Ok(self.core.chase_batch(links, self.path, each)?)
    }

    /// Reports links that were stale when the session followed them to the owners of the links, up to so
    /// many, in one pipeline. How many hints they mended.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// // Now and then, while it follows links.
    /// let mended = session.mend_links(64)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn mend_links(&mut self, most: usize) -> Result<u64, Error> {
        Ok(self.core.mend_links(most)?)
    }

    /// Runs a plan: a question over many keys. By READs or by one message, as the session's path says; the
    /// rows are the same.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), Box<dyn std::error::Error>> {
    /// use remora_client::plan::text;
    ///
    /// let words: Vec<&[u8]> = "FROM NEAREST couriers 2.35 48.86 5 KEY courier: \
    ///      GET name FOLLOW zone GET name surge".split_whitespace().map(str::as_bytes).collect();
    /// let run = session.run_plan(&text::parse(&words)?.plan)?;
    /// for row in &run.outcome.rows {
    ///     println!("{row:?}");
    /// }
    /// println!("{} hops, {} stale, {:?}", run.outcome.explain.hops, run.counts.stale_hints, run.served_by);
    /// # Ok(())
    /// # }
    /// ```
    pub fn run_plan(&mut self, plan: &Plan) -> Result<core::PlanRun, Error> {
        Ok(self.core.run_plan(plan, self.path)?)
    }
}
