//! Tests that others wrote for MongoDB, against the real binary: the unified tests and the BSON corpus of the
//! driver specifications, pymongo's own tests, and random commands compared with mongo-java-server. Lists in
//! `tests/foreign/mongo` say which of them do not apply, and why.

use remora_tests::{ServerProcess, run_foreign_suite};

/// pymongo comes from pip.
const PIP: &str = "/usr/bin/pip3";

/// Runs a suite at a server of its own, and prints the lines of its sums.
fn passes(suite: &str, needs: &[&str], options: &[&str], sums: &str) {
    let server = ServerProcess::start(&["--shards=2", "--max-memory=1GiB", "--mongo-port=0"]);
    let mut arguments = vec![suite.to_owned(), server.mongo_address().to_string()];
    arguments.extend(options.iter().map(|&option| option.to_owned()));
    let Some(said) = run_foreign_suite("mongo", needs, &arguments) else { return };
    let lines: Vec<_> = said.lines().filter(|line| line.starts_with(sums)).collect();
    assert!(!lines.is_empty(), "{said}");
    println!("{}", lines.join("\n"));
}

#[test]
fn unified_tests_of_the_driver_specifications_pass() {
    passes("unified", &[PIP], &[], "unified:");
}

#[test]
fn unified_tests_that_must_fail_do() {
    passes("must-fail", &[PIP], &[], "unified:");
}

#[test]
fn documents_of_the_bson_corpus_come_back_as_they_were() {
    passes("corpus", &[PIP], &[], "corpus:");
}

#[test]
fn pymongo_tests_pass() {
    passes("pymongo", &[PIP], &[], "pymongo, ");
}

#[test]
fn searches_by_place_are_those_of_the_haversine_formula() {
    passes("places", &[PIP], &[], "places:");
}

#[test]
fn random_commands_have_the_replies_of_mongo_java_server() {
    passes("compare", &[PIP, "javac", "mvn"], &["--seeds", "1..200"], "compare:");
}

#[test]
fn the_comparer_finds_a_planted_mistake() {
    passes("planted", &[PIP], &[], "compare:");
}
