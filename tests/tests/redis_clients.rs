//! Client libraries of Redis at a cluster of real processes with a real ZooKeeper, whose primary is
//! killed, stands still, and is drained: the same clients of Redis Cluster and of Sentinel go on, what
//! was acknowledged to them is there, and they read nothing that is older.

use remora_tests::{
    ClientProgram, Library, Outcomes, Resp, ServerProcess, TestCluster, Value, WRITERS, wait_for,
};
use rustix::process::Signal;

/// The group whose servers fail, which has the low half of the slots.
const FAILING: &str = "one";
/// The group of the other half, whose server does not fail.
const STAYING: &str = "two";
/// Servers of the first group.
const SERVERS: usize = 3;
/// Client programs take the processor from ZooKeeper and from the servers.
const SLOW: &str = "--timeout-s=60";

/// A cluster, three servers of one group, and one of another.
struct Cluster {
    record: TestCluster,
    failing: Vec<ServerProcess>,
    staying: ServerProcess,
}

fn start(record: &TestCluster, group: &str) -> ServerProcess {
    record.start(&[&format!("--group={group}")])
}

impl Cluster {
    /// `None` if tests are to do without ZooKeeper.
    fn start() -> Option<Self> {
        let groups = ["--group", FAILING, "--group", STAYING, "--min-replicas=0", SLOW];
        let record = TestCluster::init(&groups)?;
        let failing = (0..SERVERS).map(|_| start(&record, FAILING)).collect();
        let staying = start(&record, STAYING);
        let cluster = Self { record, failing, staying };
        cluster.primary();
        Some(cluster)
    }

    /// The number of the first group's primary, if it has one.
    fn leads(&self) -> Option<usize> {
        self.record.group(0).primary(&self.failing)
    }

    /// Waits until all servers of the first group are in sync, and the other group is led. Returns the
    /// number of the first group's primary.
    fn primary(&self) -> usize {
        wait_for("all servers are in sync", || {
            let is_led = self.record.group(1).with_role("primary").next().is_some();
            self.record.group(0).whole(&self.failing, SERVERS).filter(|_| is_led)
        })
    }

    fn addresses(&self) -> Vec<String> {
        let all = self.failing.iter().chain([&self.staying]);
        all.map(|server| server.resp_address().to_string()).collect()
    }

    /// Its primary is killed, and another server comes in its place.
    fn kill(&mut self, program: &mut ClientProgram) {
        let primary = self.primary();
        self.failing[primary].kill();
        program.goes_on("the primary is killed");
        self.failing[primary] = start(&self.record, FAILING);
        self.primary();
    }

    /// Its primary stands still until all writers have gone on with another one, and then goes on itself.
    fn stop(&self, program: &mut ClientProgram) {
        let primary = self.primary();
        self.failing[primary].signal(Signal::STOP);
        wait_for("another one leads", || self.leads().filter(|leads| *leads != primary));
        program.goes_on("the primary stands still");
        self.failing[primary].signal(Signal::CONT);
        assert_ne!(self.primary(), primary);
        program.goes_on("the former primary goes on");
    }

    /// Its primary is drained.
    fn drain(&self, program: &mut ClientProgram) {
        let primary = self.primary();
        let name = self.failing[primary].resp_address().to_string();
        wait_for("it is drained", || {
            let drained = self.record.command(&["drain", &name, "--yes", SLOW]);
            (drained.code == Some(0)).then_some(())
        });
        wait_for("another one leads", || self.leads().filter(|leads| *leads != primary));
        program.goes_on("the primary is drained");
        self.record.must(&["undrain", &name, "--yes", SLOW]);
        self.primary();
    }

    /// Every key that was acknowledged is at the primary of its slot.
    fn has_all(&self, outcomes: &Outcomes) {
        let mut low = self.failing[self.primary()].resp();
        let mut high = self.staying.resp();
        for writer in WRITERS {
            let tag = &writer[writer.len() - 1..];
            let resp = if ["b", "c"].contains(&tag) { &mut low } else { &mut high };
            for number in &outcomes.acknowledged[writer] {
                let key = format!("{{{tag}}}:{writer}:{number}");
                assert_eq!(get(resp, &key), Value::bulk(number.to_string()), "{key}");
            }
        }
    }
}

fn get(resp: &mut Resp, key: &str) -> Value {
    // Its lease may lapse for a moment, on a busy machine.
    wait_for("it answers reads", || {
        Some(resp.call(&format!("GET {key}"))).filter(|found| !found.is_error())
    })
}

fn works_through_failovers(library: Library) {
    let Some(mut cluster) = Cluster::start() else { return };
    let arguments = [vec![FAILING.to_owned()], cluster.addresses()].concat();
    let Some(mut program) = ClientProgram::start(library, &arguments) else { return };
    // Those whose clients wait, while the primary is killed, stands still, or is drained.
    let queues: &[&str] = if library == Library::RedisPy { &["queue-b", "queue-c"] } else { &[] };
    program.goes_on("the load begins");
    program.go_on("the queues begin", queues);
    cluster.kill(&mut program);
    program.go_on("the primary was killed", queues);
    cluster.stop(&mut program);
    program.go_on("the primary stood still", queues);
    cluster.drain(&mut program);
    program.go_on("the primary was drained", queues);
    let outcomes = program.end();
    let Outcomes { failed, pauses, longest_ms, .. } = &outcomes;
    println!(
        "{library:?}: not acknowledged {failed:#?}, pauses {pauses:?}, longest {longest_ms:?} ms"
    );
    assert_eq!(outcomes.stale_or_lost, Vec::<String>::new(), "{library:?}");
    for writer in WRITERS {
        let acknowledged = outcomes.acknowledged[writer].len() as u64;
        assert_eq!(outcomes.found.get(writer), Some(&acknowledged), "{writer} has looked for all");
    }
    for queue in queues {
        assert!(outcomes.found.contains_key(*queue), "{queue} has looked for all");
    }
    cluster.has_all(&outcomes);
}

#[test]
fn redis_pys_clients_work_through_failovers() {
    works_through_failovers(Library::RedisPy);
}

#[test]
fn go_rediss_clients_work_through_failovers() {
    works_through_failovers(Library::GoRedis);
}

#[test]
fn lettuces_clients_work_through_failovers() {
    works_through_failovers(Library::Lettuce);
}
