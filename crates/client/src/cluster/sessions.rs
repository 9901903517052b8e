//! A thread's sessions, one for each group that it uses.
//!
//! Invariant: a session is of the connection that its group has now, or it is dropped before the next
//! operation, with all that it knows of the server's memory.

use remora_cluster::topology::GroupId;

/// What knows where things lie in a server's memory.
pub(super) trait Knows {
    /// Pointers to records, and views of objects.
    fn known(&self) -> u64;
}

struct Bound<S> {
    group: GroupId,
    /// The number of its connection among those of the process.
    connection: u64,
    session: S,
}

/// See the module's text.
pub(super) struct Sessions<S> {
    bound: Vec<Bound<S>>,
}

impl<S: Knows> Sessions<S> {
    /// None.
    pub fn new() -> Self {
        Self { bound: Vec::new() }
    }

    /// The session of a group, with the number of its connection.
    #[inline]
    pub fn of(&mut self, group: GroupId) -> Option<(u64, &mut S)> {
        let bound = self.bound.iter_mut().find(|of| of.group == group)?;
        Some((bound.connection, &mut bound.session))
    }

    /// The group has this one from now on.
    pub fn bind(&mut self, group: GroupId, connection: u64, session: S) {
        debug_assert!(self.bound.iter().all(|of| of.group != group), "the old one was dropped");
        self.bound.push(Bound { group, connection, session });
    }

    /// Takes out the sessions whose connection is not the one that their group has now.
    pub fn take_old(&mut self, is_current: impl Fn(GroupId, u64) -> bool) -> Vec<S> {
        let old = self.bound.extract_if(.., |of| !is_current(of.group, of.connection));
        old.map(|of| of.session).collect()
    }

    /// Changes each session.
    pub fn each(&mut self, change: impl FnMut(&mut S)) {
        self.bound.iter_mut().map(|of| &mut of.session).for_each(change);
    }

    /// All sessions.
    pub fn all(&self) -> impl Iterator<Item = &S> {
        self.bound.iter().map(|of| &of.session)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fake(u64);

    impl Knows for Fake {
        fn known(&self) -> u64 {
            self.0
        }
    }

    #[test]
    fn a_newer_connection_of_a_group_drops_what_was_known_by_the_old_one_and_nothing_else() {
        let (a, b) = (GroupId(1), GroupId(2));
        let mut sessions = Sessions::new();
        sessions.bind(a, 1, Fake(70));
        sessions.bind(b, 2, Fake(5));
        assert!(sessions.take_old(|_, _| true).is_empty());
        // The first group has another primary, on connection 3.
        let current = [(a, 3), (b, 2)];
        let old = sessions.take_old(|group, number| current.contains(&(group, number)));
        assert_eq!(old.iter().map(Knows::known).sum::<u64>(), 70);
        assert!(sessions.of(a).is_none(), "nothing of it can be used");
        sessions.bind(a, 3, Fake(0));
        assert_eq!(sessions.of(a).map(|(number, of)| (number, of.known())), Some((3, 0)));
        assert_eq!(sessions.of(b).map(|(number, of)| (number, of.known())), Some((2, 5)));
        assert_eq!(sessions.all().count(), 2);
    }

    #[test]
    fn a_group_without_a_connection_has_no_session() {
        let mut sessions = Sessions::new();
        sessions.bind(GroupId(1), 1, Fake(1));
        assert_eq!(sessions.take_old(|_, _| false).len(), 1);
        assert!(sessions.of(GroupId(1)).is_none());
    }
}
