//! Test suites of other projects, which `tests/foreign` runs against servers of ours.

use crate::binary::{remora_path, target_directory};
use crate::is_skipped;
use std::path::Path;
use std::process::{Command, Stdio};

/// Runs the suite `tests/foreign/NAME` with these arguments: what it has printed. It must succeed. What it
/// fetches is kept where things are built. `None` if tests are to do without one of these tools.
pub fn run_foreign_suite(name: &str, needs: &[&str], arguments: &[String]) -> Option<String> {
    if let Some(tool) = needs.iter().find(|tool| is_skipped(tool)) {
        println!("not run: {tool} is missing, as REMORA_SKIP says");
        return None;
    }
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("foreign").join(name).join("run.sh");
    let output = Command::new("bash")
        .arg(script)
        .arg(target_directory().join("foreign").join(name))
        .args(arguments)
        .env("REMORA_BIN", remora_path())
        .stdin(Stdio::null())
        .output()
        .expect("bash is installed");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let out = text(&output.stdout);
    assert!(output.status.success(), "{out}{}", text(&output.stderr));
    Some(out)
}
