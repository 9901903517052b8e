//! The coordinator over a real ZooKeeper server (Debian's package `zookeeper`, 3.8).

mod conformance;
mod connections;
mod member;
mod proxy;
mod quorum;
mod scale;
mod tls;

use remora_zookeeper::{LocalServer, LocalServerPlan};

/// ZooKeeper's tick, ms: sessions have 2 to 400 of them.
const TICK_MS: u64 = 200;

/// A server alone, which answers.
fn started() -> LocalServer {
    let plan = LocalServerPlan { tick_ms: TICK_MS, ..LocalServerPlan::default() };
    LocalServer::start(plan).expect("it answers")
}
