//! A cluster whose ZooKeeper speaks TLS: servers and commands.

use crate::tls::Place;
use remora_tests::{ServerDirectory, ServerProcess, remora, run, wait_until};
use remora_zookeeper::{LocalServer, LocalServerPlan, LocalServerTls};
use std::path::Path;

/// `remora cluster` with this authority of ZooKeeper, and a certificate of its own.
fn cluster(words: &[&str], authority: Option<&Path>, place: &Place) -> (Option<i32>, String) {
    let mut command = remora();
    command.arg("cluster").args(words);
    command.env("REMORA_TLS_CERT", &place.server.certificate);
    command.env("REMORA_TLS_KEY", &place.server.key);
    if let Some(authority) = authority {
        command.env("REMORA_COORDINATOR_TLS_CA", authority);
    }
    let ended = run(&mut command);
    (ended.code, ended.out + &ended.err)
}

#[test]
fn servers_and_commands_reach_zookeeper_over_tls_or_say_why_not() {
    if LocalServer::is_skipped() {
        return;
    }
    let (place, other) = (Place::new(), Place::new());
    let identity = (place.server.certificate.clone(), place.server.key.clone());
    let clients = place.authority.file().to_owned();
    let tls = Some(LocalServerTls { identity, clients });
    let zookeeper = LocalServer::start(LocalServerPlan { tls, ..LocalServerPlan::default() });
    let zookeeper = zookeeper.expect("it answers");
    let at = format!("zk+tls://{}/test", zookeeper.tls_address().unwrap());
    let authority = place.authority.file();

    let init = ["init", "--yes", "--cluster", &at, "--min-replicas", "0"];
    let (code, said) = cluster(&init, None, &place);
    assert!(code == Some(2) && said.contains("REMORA_COORDINATOR_TLS_CA"), "{said}");
    let short = ["status", "--cluster", &at, "--timeout-s", "5"];
    let (code, said) = cluster(&short, Some(other.authority.file()), &place);
    assert!(code == Some(1) && said.contains("of another authority"), "{said}");
    let plain = format!("zk+tls://{}/test", zookeeper.address());
    let plain = ["status", "--cluster", &plain, "--timeout-s", "5"];
    let (code, said) = cluster(&plain, Some(authority), &place);
    assert!(code == Some(1) && said.contains("TLS handshake"), "{said}");
    let (code, said) = cluster(&init, Some(authority), &place);
    assert_eq!(code, Some(0), "{said}");

    // Servers without TLS among each other. ZooKeeper asks for a certificate, which is that of the server.
    let flags = ["--port=0", "--cluster", &at, "--shards=1", "--pin=false"];
    let refused = run(remora().arg("serve").args(flags));
    assert!(
        refused.code == Some(2) && refused.err.contains("coordinator_tls_ca"),
        "{}",
        refused.err
    );
    let [certificate, key] = place.flags();
    let ca = format!("--coordinator-tls-ca={}", authority.display());
    let peers = format!("--peer-tls-ca={}", authority.display());
    let flags = [&flags[1..], &[&certificate, &key, &ca, &peers]].concat();
    let server = ServerProcess::start_at(&ServerDirectory::new(), &flags);
    wait_until("it leads", || {
        let (_, said) = cluster(&["status", "--cluster", &at, "--json"], Some(authority), &place);
        said.contains("\"role\":\"primary\"")
    });
    drop(server);
}
