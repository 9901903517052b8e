//! Test suites of other projects, which `tests/foreign` runs against servers of ours, and programs with
//! MongoDB's drivers, which `tests/mongo` runs.

use crate::binary::{remora_path, target_directory};
use crate::is_skipped;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};

/// Whether tests are to do without one of these tools; it says so.
fn lacks_a_tool(needs: &[&str]) -> bool {
    let missing = needs.iter().find(|tool| is_skipped(tool));
    if let Some(tool) = missing {
        println!("not run: {tool} is missing, as REMORA_SKIP says");
    }
    missing.is_some()
}

/// Runs a script in `tests`: what it has printed. It must succeed. What it fetches is kept in this directory.
fn run_script(script: &Path, directory: &Path, arguments: &[String]) -> String {
    let output = Command::new("bash")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join(script))
        .arg(directory)
        .args(arguments)
        .env("REMORA_BIN", remora_path())
        .stdin(Stdio::null())
        .output()
        .expect("bash is installed");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let out = text(&output.stdout);
    assert!(output.status.success(), "{out}{}", text(&output.stderr));
    out
}

/// Runs the suite `tests/foreign/NAME` with these arguments: what it has printed. It must succeed. What it
/// fetches is kept where things are built. `None` if tests are to do without one of these tools.
pub fn run_foreign_suite(name: &str, needs: &[&str], arguments: &[String]) -> Option<String> {
    if lacks_a_tool(needs) {
        return None;
    }
    let script = Path::new("foreign").join(name).join("run.sh");
    Some(run_script(&script, &target_directory().join("foreign").join(name), arguments))
}

/// Runs the program with one of MongoDB's drivers, `tests/mongo/DRIVER`, against this address. It must
/// succeed; it does nothing if tests are to do without one of these tools.
pub fn run_mongo_driver(driver: &str, needs: &[&str], address: SocketAddr) {
    if lacks_a_tool(needs) {
        return;
    }
    let arguments = [driver.to_owned(), address.to_string()];
    run_script(Path::new("mongo/run.sh"), &target_directory().join("mongo"), &arguments);
}
