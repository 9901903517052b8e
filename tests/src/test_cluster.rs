//! A cluster of real processes at a ZooKeeper of its own, as `remora cluster status` shows it.

use crate::binary::{Finished, run_remora};
use crate::server::{ServerDirectory, ServerProcess};
use remora_zookeeper::{LocalServer, LocalServerPlan};

/// Flags of a small server with a short session.
const SMALL: [&str; 5] =
    ["--max-memory=128MiB", "--pin=false", "--wake=event", "--shards=2", "--session-ms=1000"];

/// ZooKeeper, and what is recorded there.
pub struct TestCluster {
    zookeeper: LocalServer,
}

/// A group, as recorded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupStatus {
    /// Its epoch.
    pub epoch: u64,
    /// Its members, present or not.
    pub members: Vec<MemberStatus>,
}

/// A member, as recorded.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberStatus {
    /// Its id.
    pub id: String,
    /// Its role, in the words of status.
    pub role: String,
    /// Its process is there.
    pub is_present: bool,
    /// Its address for Redis clients.
    pub resp: String,
}

impl TestCluster {
    /// A cluster without servers, made with these flags; `None` if tests are to do without ZooKeeper.
    pub fn init(flags: &[&str]) -> Option<Self> {
        if LocalServer::is_skipped() {
            return None;
        }
        let zookeeper = LocalServer::start(LocalServerPlan::default()).expect("it answers");
        let cluster = Self { zookeeper };
        cluster.must(&[&["init", "--yes"], flags].concat());
        Some(cluster)
    }

    /// ZooKeeper.
    pub fn zookeeper(&self) -> &LocalServer {
        &self.zookeeper
    }

    fn address(&self) -> String {
        format!("zk://{}/test", self.zookeeper.address())
    }

    /// `remora cluster`, with the address behind its verb.
    pub fn command(&self, words: &[&str]) -> Finished {
        let address = self.address();
        let words = [&["cluster", words[0], "--cluster", &address], &words[1..]].concat();
        run_remora(&words)
    }

    /// The same, which has to work. Returns its output.
    pub fn must(&self, words: &[&str]) -> String {
        let finished = self.command(words);
        assert_eq!(finished.code, Some(0), "{words:?}: {}\n{}", finished.out, finished.err);
        finished.out
    }

    /// Starts a small server of the cluster. These flags take the place of usual ones.
    pub fn start(&self, flags: &[&str]) -> ServerProcess {
        let cluster = format!("--cluster={}", self.address());
        let is_given = |of: &&&str| flags.iter().any(|flag| name_of(flag) == name_of(of));
        let small: Vec<&str> = SMALL.iter().filter(|of| !is_given(of)).copied().collect();
        let flags = [&small[..], &[cluster.as_str()], flags].concat();
        ServerProcess::start_at(&ServerDirectory::new(), &flags)
    }

    /// What `remora cluster status --json` prints.
    pub fn status(&self) -> serde_json::Value {
        serde_json::from_str(&self.must(&["status", "--json"])).expect("it is JSON")
    }

    /// A group, by its number from 0.
    pub fn group(&self, number: usize) -> GroupStatus {
        let status = self.status();
        let group = &status["groups"][number];
        let text = |of: &serde_json::Value| of.as_str().expect("a text").to_owned();
        let member = |of: &serde_json::Value| MemberStatus {
            id: text(&of["id"]),
            role: text(&of["role"]),
            is_present: of["present"] == true,
            resp: text(&of["resp"]),
        };
        let members = group["members"].as_array().expect("a list").iter().map(member).collect();
        GroupStatus { epoch: group["epoch"].as_u64().expect("a number"), members }
    }
}

impl GroupStatus {
    /// The members that are present and have this role.
    pub fn with_role(&self, role: &str) -> impl Iterator<Item = &MemberStatus> {
        self.members.iter().filter(move |of| of.is_present && of.role == role)
    }

    /// Which of these servers leads, if it is present.
    pub fn primary(&self, servers: &[ServerProcess]) -> Option<usize> {
        let primary = self.with_role("primary").next()?;
        servers.iter().position(|of| of.resp_address().to_string() == primary.resp)
    }

    /// The same, if so many servers are present and in sync, with the primary.
    pub fn whole(&self, servers: &[ServerProcess], count: usize) -> Option<usize> {
        self.primary(servers).filter(|_| self.with_role("in sync").count() + 1 == count)
    }
}

/// The name of a flag with a value.
fn name_of(flag: &str) -> &str {
    flag.split('=').next().unwrap_or(flag)
}
