//! Scripts of redis-py against a server of ours.

use crate::{ServerProcess, is_skipped};
use std::path::Path;
use std::process::Command;

/// Where Debian keeps redis-py.
const REDIS_PY: &str = "/usr/lib/python3/dist-packages/redis";

/// Runs a script of `tests/python` on real places; it has to say so much in
/// the end. If redis-py is missing and was said to be, it says that instead.
pub fn run_redis_py(script: &str, says: &str) {
    let server = ServerProcess::start(&["--shards=2", "--max-memory=256MiB"]);
    let address = server.resp_address();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let places = here.join("../data/places.tsv.xz").display().to_string();
    run_redis_py_with(
        script,
        &[address.ip().to_string(), address.port().to_string(), places],
        says,
    );
}

/// The same with these arguments.
pub fn run_redis_py_with(script: &str, arguments: &[String], says: &str) {
    if is_skipped(REDIS_PY) {
        println!("not run: redis-py is missing, as REMORA_SKIP says");
        return;
    }
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let output = Command::new("/usr/bin/python3")
        .arg(here.join("python").join(script))
        .args(arguments)
        .output()
        .expect("python3 is installed");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    assert!(text(&output.stdout).contains(says));
}
