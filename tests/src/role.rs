//! Other processes of a test: the test binary runs itself again and plays a
//! part there.
//!
//! A module of tests has one test, by convention `plays_its_part`, that looks for
//! its part by [`role`] and does nothing without one.

use crate::wait_until;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

const NAME: &str = "PLAYED_ROLE";
const ARGUMENTS: &str = "PLAYED_ROLE_ARGUMENTS";
const MARK: &str = "role says: ";

/// The part that this process is to play, and its arguments.
pub fn role() -> Option<(String, Vec<String>)> {
    let name = std::env::var(NAME).ok()?;
    let arguments = std::env::var(ARGUMENTS).unwrap_or_default();
    Some((name, arguments.split('\n').map(str::to_owned).collect()))
}

/// A process that plays a part. It is killed when this is dropped.
pub struct Role {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Role {
    /// Starts it; `module` is the `module_path!()` of the test that plays parts.
    pub fn start(module: &str, name: &str, arguments: &[&str]) -> Self {
        Self::start_with_stderr(module, name, arguments, Stdio::inherit())
    }

    /// Starts it with this standard error.
    pub fn start_with_stderr(
        module: &str,
        name: &str,
        arguments: &[&str],
        stderr: impl Into<Stdio>,
    ) -> Self {
        // Tests are named without their crate.
        let module = module.split_once("::").map_or("", |(_, module)| module);
        let mut child = Command::new(std::env::current_exe().expect("this binary has a path"))
            .args([
                "--exact",
                &format!("{module}::plays_its_part"),
                "--nocapture",
                "--test-threads=1",
            ])
            .env(NAME, name)
            .env(ARGUMENTS, arguments.join("\n"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr)
            .spawn()
            .expect("this binary runs again");
        let out = BufReader::new(child.stdout.take().expect("it is piped"));
        Self { child, out }
    }

    /// Says something to the process that started this one.
    pub fn say(text: &str) {
        // The line break ends what the test harness may have begun.
        println!("\n{MARK}{text}");
    }

    /// Waits for a word of the one that started this process: false if there
    /// is none any more.
    pub fn wait_for_word() -> bool {
        std::io::stdin().lock().read_line(&mut String::new()).is_ok_and(|bytes| bytes > 0)
    }

    /// Waits for the end of the one that started this process, or its kill.
    pub fn wait_for_end() {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
    }

    /// The next thing that it says; `None` if it ended.
    pub fn hear(&mut self) -> Option<String> {
        let mut line = String::new();
        while self.out.read_line(&mut line).ok()? > 0 {
            if let Some(said) = line.trim_end().strip_prefix(MARK) {
                return Some(said.to_owned());
            }
            line.clear();
        }
        None
    }

    /// Gives it the word that it waits for.
    pub fn give_word(&mut self) {
        let stdin = self.child.stdin.as_mut().expect("it is piped");
        stdin.write_all(b"\n").expect("it lives and listens");
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until it ends by itself: how it ended.
    pub fn ended(&mut self) -> ExitStatus {
        let mut status = None;
        wait_until("the process ends", || {
            status = self.child.try_wait().expect("it is a child of this process");
            status.is_some()
        });
        status.expect("it has ended")
    }

    /// Kills it (SIGKILL) and waits until it is gone.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Role {
    fn drop(&mut self) {
        self.kill();
    }
}
