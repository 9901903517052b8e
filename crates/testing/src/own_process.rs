use std::any::type_name;
use std::process::Command;

/// Set in the process that a test has started for itself; its value is the test's name.
const IN_OWN_PROCESS: &str = "REMORA_TEST_IN_OWN_PROCESS";

/// Runs the body of a test in a process in which no other test runs: the test binary
/// starts itself again and runs this test alone there.
///
/// It is for tests that look at something of which a process has one: its memory, its
/// descriptors, its mappings, its log. All tests of a crate share a binary and its
/// threads, and others would be counted too.
///
/// The body is a closure that stands in the test function itself, as its type names the
/// test.
///
/// ```text
/// #[test]
/// fn nothing_is_left_open() {
///     in_own_process(|| { .. });
/// }
/// ```
///
/// # Panics
///
/// If the test fails in its process, or does not run there.
pub fn in_own_process<F: FnOnce()>(body: F) {
    let test = test_of(type_name::<F>());
    if std::env::var(IN_OWN_PROCESS).is_ok_and(|name| name == test) {
        return body();
    }
    let binary = std::env::current_exe().expect("this binary has a path");
    let output = Command::new(binary)
        .args(["--exact", test, "--nocapture", "--test-threads=1"])
        .env(IN_OWN_PROCESS, test)
        .output()
        .expect("this binary runs again");
    let (out, err) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    // Indented, so that its lines are not taken for those of this process.
    out.lines().chain(err.lines()).for_each(|line| println!("    {line}"));
    assert!(output.status.success(), "{test} failed in its own process: {}", output.status);
    assert!(out.contains("test result: ok. 1 passed"), "{test} did not run in its own process");
}

/// The name of a test, as its binary lists it, from that of a closure's type: without the
/// crate and the closure.
fn test_of(closure: &str) -> &str {
    let path = closure.split_once("::").map_or(closure, |(_, path)| path);
    path.split("::{{closure}}").next().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    static RUNS: AtomicU32 = AtomicU32::new(0);

    #[test]
    fn the_body_runs_in_another_process() {
        in_own_process(|| _ = RUNS.fetch_add(1, Ordering::Relaxed));
        let is_child = std::env::var_os(IN_OWN_PROCESS).is_some();
        assert_eq!(RUNS.load(Ordering::Relaxed), is_child as u32);
    }

    #[test]
    #[should_panic(expected = "failed in its own process")]
    fn what_fails_there_fails_here() {
        // In the child this test passes only if the body panics otherwise.
        in_own_process(|| std::process::exit(101));
    }

    #[test]
    fn a_closure_names_its_test() {
        assert_eq!(test_of("engine::heap::it_holds::{{closure}}"), "heap::it_holds");
        assert_eq!(test_of("engine::it_holds::{{closure}}::{{closure}}"), "it_holds");
    }
}
