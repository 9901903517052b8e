//! Programs with a Redis client library in them, each in the library's own language, which use a
//! cluster while its primaries die.
//!
//! A program gets the name of the group that its client of Sentinel asks for, and addresses of servers.
//! It has the [`WRITERS`]. A writer sets the keys `{TAG}:WRITER:NUMBER` one after the other, from 0, each
//! once, and reads each that was acknowledged. Its tag is the last letter of its name. When the standard
//! input of the program ends, each writer reads all that was acknowledged to it, by the same client. A
//! program prints lines:
//!
//! | Line | Meaning |
//! | --- | --- |
//! | `set WRITER NUMBER` | the key was acknowledged |
//! | `failed WRITER NUMBER WHY` | it was not: the key may be there or not |
//! | `stale WRITER NUMBER` | it was acknowledged, and a read behind that did not find it |
//! | `lost WRITER NUMBER` | it was acknowledged, and is not there in the end |
//! | `found WRITER COUNT` | all that was acknowledged was looked for, so many keys |
//! | `end MS` | the longest request; nothing is printed behind it |

use crate::binary::target_directory;
use crate::{is_skipped, wait_until};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// The writers of a program; the slots of `b` and `c` are low ones, those of `a` and `d` high ones.
pub const WRITERS: [&str; 6] =
    ["cluster-a", "cluster-b", "cluster-c", "cluster-d", "sentinel-b", "sentinel-c"];
/// Keys that a writer must set to show that it goes on.
const ENOUGH: usize = 50;
/// Fetches jars. Named in full, so that Maven looks for no newer version.
const COPY: &str = "org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies";

/// A Redis client library.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Library {
    /// redis-py, of Debian.
    RedisPy,
    /// go-redis.
    GoRedis,
    /// Lettuce, for Java.
    Lettuce,
}

impl Library {
    /// What its program needs, as `scripts/needs.sh` names it.
    fn needs(self) -> &'static [&'static str] {
        match self {
            Self::RedisPy => &["/usr/lib/python3/dist-packages/redis"],
            Self::GoRedis => &["go"],
            Self::Lettuce => &["javac", "mvn"],
        }
    }

    /// What runs its program, which is built first. `None` if tests are to do without it.
    fn command(self) -> Option<Command> {
        if let Some(tool) = self.needs().iter().find(|tool| is_skipped(tool)) {
            println!("not run: {tool} is missing, as REMORA_SKIP says");
            return None;
        }
        let here = Path::new(env!("CARGO_MANIFEST_DIR"));
        let built = built_directory();
        Some(match self {
            Self::RedisPy => {
                let mut command = Command::new("/usr/bin/python3");
                command.arg(here.join("python/clients.py"));
                command
            }
            Self::GoRedis => {
                let program = built.join("go-redis");
                let mut go = Command::new("go");
                go.args(["build", "-buildvcs=false", "-o"]).arg(&program).arg(".");
                must(go.current_dir(here.join("go")));
                Command::new(program)
            }
            Self::Lettuce => {
                let jars = fetch_jars(&here.join("java/pom.xml"), &built);
                let mut command = Command::new("java");
                // A small JVM that starts soon: it has one of two cores at most.
                command.args(["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xmx256m", "-cp"]);
                command.arg(jars.join("*")).arg(here.join("java/Clients.java"));
                command
            }
        })
    }
}

/// Where programs, jars and logs are.
fn built_directory() -> PathBuf {
    let directory = target_directory().join("clients");
    std::fs::create_dir_all(&directory).expect("a directory");
    directory
}

/// Fetches the jars that a POM names, and no others are beside them.
fn fetch_jars(pom: &Path, built: &Path) -> PathBuf {
    let jars = built.join("jars");
    if jars.exists() {
        std::fs::remove_dir_all(&jars).expect("former jars go");
    }
    let mut maven = Command::new("mvn");
    maven
        .args(["--batch-mode", "--quiet", "--file"])
        .arg(pom)
        .args([COPY, "-DincludeScope=runtime"]);
    must(maven.arg(format!("-DoutputDirectory={}", jars.display())));
    jars
}

fn must(command: &mut Command) {
    let output = command.stdin(Stdio::null()).output().expect("the program is installed");
    let said = [output.stdout, output.stderr].concat();
    assert!(output.status.success(), "{command:?}:\n{}", String::from_utf8_lossy(&said));
}

/// What a program has printed.
#[derive(Debug, Default)]
pub struct Outcomes {
    /// By writer, the numbers that were acknowledged.
    pub acknowledged: BTreeMap<String, Vec<u64>>,
    /// By writer and error, how many keys were not.
    pub failed: BTreeMap<(String, String), u64>,
    /// Lines of keys that a read did not find.
    pub stale_or_lost: Vec<String>,
    /// By writer, how many keys it has looked for in the end.
    pub found: BTreeMap<String, u64>,
    /// The longest request of all, ms; `None` before the end.
    pub longest_ms: Option<u64>,
    /// By writer, the longest time between two acknowledged keys.
    pub pauses: BTreeMap<String, Duration>,
    last: BTreeMap<String, Instant>,
    unreadable: Vec<String>,
}

impl Outcomes {
    fn hear(&mut self, line: &str) {
        if self.understand(line).is_none() {
            self.unreadable.push(line.to_owned());
        }
    }

    fn understand(&mut self, line: &str) -> Option<()> {
        let mut words = line.splitn(4, ' ');
        let (what, writer) = (words.next()?, words.next()?.to_owned());
        let number = words.next().map_or(Some(0), |word| word.parse().ok())?;
        match what {
            "set" => {
                self.acknowledged.entry(writer.clone()).or_default().push(number);
                let now = Instant::now();
                if let Some(last) = self.last.insert(writer.clone(), now) {
                    let longest = self.pauses.entry(writer).or_default();
                    *longest = (*longest).max(now - last);
                }
            }
            "failed" => *self.failed.entry((writer, words.next()?.to_owned())).or_default() += 1,
            "stale" | "lost" => self.stale_or_lost.push(line.to_owned()),
            "found" => _ = self.found.insert(writer, number),
            "end" => self.longest_ms = Some(writer.parse().ok()?),
            _ => return None,
        }
        Some(())
    }

    fn count(&self, writer: &str) -> usize {
        self.acknowledged.get(writer).map_or(0, Vec::len)
    }
}

/// A running program.
pub struct ClientProgram {
    child: Child,
    /// What the library says of itself, on standard error.
    log: PathBuf,
    stdin: Option<ChildStdin>,
    outcomes: Arc<Mutex<Outcomes>>,
    reader: Option<JoinHandle<()>>,
}

impl ClientProgram {
    /// Builds and starts the program of a library. `None` if tests are to do without it.
    pub fn start(library: Library, arguments: &[String]) -> Option<Self> {
        let mut command = library.command()?;
        let log = built_directory().join(format!("{library:?}.log"));
        let error = File::create(&log).expect("a log");
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(error);
        let mut child = command.spawn().expect("the program starts");
        let outcomes = Arc::<Mutex<Outcomes>>::default();
        let out = child.stdout.take().expect("it is piped");
        let heard = Arc::clone(&outcomes);
        let reader = std::thread::spawn(move || hear_all(out, &heard));
        let (stdin, reader) = (child.stdin.take(), Some(reader));
        Some(Self { child, log, stdin, outcomes, reader })
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    fn with<T>(&self, look: impl FnOnce(&Outcomes) -> T) -> T {
        look(&self.outcomes.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Waits until every writer has set more keys than now.
    pub fn goes_on(&mut self, what: &str) {
        self.go_on(what, &WRITERS);
    }

    /// Waits until each of these has set more keys, or taken more elements.
    pub fn go_on(&mut self, what: &str, names: &[&str]) {
        let counts = |outcomes: &Outcomes| -> Vec<usize> {
            names.iter().map(|name| outcomes.count(name)).collect()
        };
        let before = self.with(counts);
        let what = format!("{what}: all of {names:?} set more keys than {before:?}");
        wait_until(&what, || {
            let ended = self.child.try_wait().expect("it is a child");
            assert!(ended.is_none(), "{what}: the program has ended: {ended:?}\n{}", self.log());
            let now = self.with(counts);
            now.iter().zip(&before).all(|(now, before)| *now >= before + ENOUGH)
        });
    }

    /// Lets it look for all that was acknowledged, and waits for its end.
    pub fn end(mut self) -> Outcomes {
        self.stdin = None;
        wait_until("the program ends", || self.child.try_wait().is_ok_and(|of| of.is_some()));
        let status = self.child.wait().expect("it has ended");
        self.reader.take().expect("it is joined once").join().expect("it reads to the end");
        let outcomes = std::mem::take(&mut *self.outcomes.lock().expect("the reader has ended"));
        let is_whole = status.success() && outcomes.longest_ms.is_some();
        assert!(is_whole, "{status}: {outcomes:?}\n{}", self.log());
        assert_eq!(outcomes.unreadable, Vec::<String>::new(), "lines that are none of these");
        outcomes
    }
}

impl Drop for ClientProgram {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn hear_all(out: ChildStdout, outcomes: &Mutex<Outcomes>) {
    for line in BufReader::new(out).lines().map_while(Result::ok) {
        outcomes.lock().unwrap_or_else(PoisonError::into_inner).hear(&line);
    }
}
