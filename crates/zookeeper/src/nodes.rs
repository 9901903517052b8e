//! The nodes of a cluster at ZooKeeper, and what their names say.

use remora_cluster::coordinator::Term;
use remora_cluster::topology::{Instance, MemberId};

/// Paths below one node.
pub(crate) struct Nodes {
    base: String,
}

impl Nodes {
    pub(crate) fn new(base: &str) -> Self {
        Self { base: base.to_owned() }
    }

    /// The nodes that each session makes if they are missing.
    pub(crate) fn parents(&self) -> [String; 3] {
        ["presence", "members", "watch"].map(|name| format!("{}/{name}", self.base))
    }

    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    pub(crate) fn topology(&self) -> String {
        format!("{}/topology", self.base)
    }

    pub(crate) fn members(&self) -> String {
        format!("{}/members", self.base)
    }

    pub(crate) fn presence(&self, member: MemberId) -> String {
        format!("{}/presence/{member}", self.base)
    }

    pub(crate) fn member(&self, instance: Instance) -> String {
        format!("{}/members/{}-{:016x}", self.base, instance.member, instance.incarnation)
    }

    pub(crate) fn candidates(&self) -> String {
        format!("{}/watch", self.base)
    }

    pub(crate) fn candidate(&self, name: &str) -> String {
        format!("{}/watch/{name}", self.base)
    }
}

/// Before the sequence in the name of a session's candidate.
pub(crate) fn candidate_prefix(session: i64) -> String {
    format!("{session:016x}-")
}

/// The sequence in the name of a candidate; `None` for what is none.
pub(crate) fn sequence_of(candidate: &str) -> Option<u64> {
    candidate.split_once('-')?.1.parse().ok()
}

/// The instance that a name of `members` stands for; `None` for what is none.
pub(crate) fn instance_of(name: &str) -> Option<Instance> {
    let (member, incarnation) = name.split_once('-')?;
    let word = |text: &str| {
        let is_hex = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_hex.then(|| u64::from_str_radix(text, 16).ok())?.filter(|word| *word != 0)
    };
    Some(Instance { member: MemberId(word(member)?), incarnation: word(incarnation)? })
}

/// The term of the candidate whose node was created by this transaction.
pub(crate) fn term_of(czxid: i64) -> Term {
    Term(czxid.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_made() {
        let instance = Instance { member: MemberId(0xab), incarnation: u64::MAX };
        let path = Nodes::new("/a/b").member(instance);
        let name = path.strip_prefix("/a/b/members/").expect("below members");
        assert_eq!(instance_of(name), Some(instance));
        for other in ["", "x", "1-2", "00000000000000ab", "00000000000000ab-0000000000000000"] {
            assert_eq!(instance_of(other), None, "{other}");
        }
        let candidate = format!("{}0000000012", candidate_prefix(-1));
        assert_eq!(candidate, "ffffffffffffffff-0000000012");
        assert_eq!(sequence_of(&candidate), Some(12));
        assert_eq!(sequence_of("x"), None);
    }
}
