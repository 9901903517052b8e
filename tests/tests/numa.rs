//! Where a server's shards and arenas are (HydraDB 4.1.2, H5).

use remora_tests::ServerProcess;

/// Lines of the server's memory map about its arenas.
fn arenas(pid: u32) -> Vec<String> {
    let maps = std::fs::read_to_string(format!("/proc/{pid}/numa_maps")).unwrap_or_default();
    maps.lines().filter(|line| line.contains("memfd:remora-arena")).map(str::to_owned).collect()
}

#[test]
fn info_and_log_tell_the_nodes_and_the_arenas_are_there() {
    let server = ServerProcess::start(&["--shards=1", "--max-memory=64MiB", "--pin=true"]);
    let mut resp = server.resp();
    let (nodes, node) = (resp.info("numa_nodes"), resp.info("shard0_node"));
    assert!(nodes >= 1);
    let arenas = arenas(server.pid());
    if nodes == 1 {
        assert!(server.log().contains("one NUMA node"), "{}", server.log());
        assert!(arenas.iter().all(|line| line.contains(" default ")), "{arenas:?}");
    } else if !server.log().contains("cannot place an arena") {
        let wanted = format!(" prefer:{node} ");
        assert!(arenas.iter().all(|line| line.contains(&wanted)), "{arenas:?}");
    }
}
