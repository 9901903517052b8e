//! Programs with MongoDB's drivers at the real binary: they insert, find in batches, change, index, group
//! and delete documents, and look at each answer. The drivers are as their projects give them out.

use remora_tests::{ServerProcess, run_mongo_driver};

fn works(driver: &str, needs: &[&str]) {
    let server = ServerProcess::start(&["--shards=2", "--max-memory=256MiB", "--mongo-port=0"]);
    run_mongo_driver(driver, needs, server.mongo_address());
}

#[test]
fn the_driver_for_node_works() {
    works("node", &["node", "npm"]);
}

#[test]
fn the_driver_for_java_works() {
    works("java", &["javac", "mvn"]);
}

#[test]
fn the_driver_for_go_works() {
    works("go", &["go"]);
}

#[test]
fn mongosh_works() {
    works("mongosh", &["node", "npm"]);
}
