//! Logins over MongoDB's protocol, by pymongo at the real binary: the right password, wrong ones, users that do
//! not exist, and a user with few rights. Users are those of RESP's ACL.

use remora_tests::{ServerProcess, Value, is_skipped, run_mongo_driver};

/// pymongo comes from pip.
const PIP: &str = "/usr/bin/pip3";

/// Logins of the program that fail.
const WRONG_LOGINS: u64 = 4;

#[test]
fn users_log_in_by_scram_and_may_do_what_their_rules_say() {
    let flags = ["--shards=2", "--max-memory=256MiB", "--mongo-port=0", "--requirepass=top"];
    let server = ServerProcess::start(&flags);
    let mut resp = server.resp();
    assert_eq!(resp.call("AUTH top"), Value::ok());
    assert_eq!(resp.call("ACL SETUSER ann on >p +doc.find ~db.*"), Value::ok());
    run_mongo_driver("python", &[PIP], server.mongo_address());
    // The driver may try again.
    assert!(is_skipped(PIP) || resp.info("acl_access_denied_auth") >= WRONG_LOGINS);
    assert!(!server.log().contains("panic"), "{}", server.log());
}
