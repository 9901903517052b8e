//! Other projects' own tests of users and of TLS, against the real binary: those of Redis 7 and of redis-py.
//! Lists in `tests/foreign` say which of them do not apply, and why.

use remora_testing::Authority;
use remora_tests::{ServerProcess, run_foreign_suite};
use tempfile::TempDir;

/// A file of Debian's package of TLS for Tcl, which is there on all architectures.
const TCL_TLS: &str = "/usr/share/doc/tcl-tls/copyright";

/// The number before a word in a line that begins so.
fn count(said: &str, line: &str, word: &str) -> u64 {
    let line = said.lines().find(|found| found.starts_with(line)).expect("it sums up");
    let words: Vec<&str> = line.split([' ', ',']).filter(|word| !word.is_empty()).collect();
    let at = words.iter().position(|found| *found == word).expect("it counts these");
    words[at - 1].parse().expect("a number")
}

fn redis_tests(needs: &[&str], arguments: &[String]) {
    let Some(said) = run_foreign_suite("redis", needs, arguments) else { return };
    println!("{}", said.lines().last().unwrap());
    assert_eq!(count(&said, "redis:", "passed"), 94);
    assert_eq!(count(&said, "redis:", "do"), 36);
}

#[test]
fn redis_tests_of_users_pass() {
    redis_tests(&["tclsh"], &[]);
}

#[test]
fn redis_tests_of_users_pass_over_tls() {
    redis_tests(&["tclsh", TCL_TLS, "openssl"], &["--tls".to_owned()]);
}

#[test]
fn redis_py_tests_of_users_and_tls_pass() {
    let directory = TempDir::new().unwrap();
    let authority = Authority::new(directory.path(), "ours");
    let (server, client) = (authority.certify("server"), authority.certify("client"));
    let flags = ["--shards=2", "--max-memory=256MiB", "--pin=false"];
    let plain = ServerProcess::start(&flags);
    let cert = format!("--tls-cert={}", server.certificate.display());
    let key = format!("--tls-key={}", server.key.display());
    let ca = format!("--tls-ca={}", authority.file().display());
    let tls = [cert.as_str(), key.as_str(), ca.as_str(), "--tls-auth-clients=optional"];
    let encrypted = ServerProcess::start(&[&flags[..], &tls].concat());
    let paths = [authority.file(), &client.certificate, &client.key];
    let mut arguments =
        vec![plain.resp_address().to_string(), encrypted.resp_address().to_string()];
    arguments.extend(paths.map(|path| path.display().to_string()));
    let Some(said) = run_foreign_suite("redis-py", &["/usr/bin/pip3"], &arguments) else { return };
    for protocol in ["redis-py over RESP2:", "redis-py over RESP3:"] {
        println!("{}", said.lines().find(|line| line.starts_with(protocol)).unwrap());
        // One more where Debian's python3-cryptography is missing.
        assert!(count(&said, protocol, "passed") >= 110);
    }
}
