//! What the failover of one group costs another: the CPU time of that group's servers per operation.
//!
//! ```text
//!   group 0   loads keys    at rest            primary killed ---> another leads ---> all in sync
//!   group 1   <---------------- operations at a steady rate ---------------------------------->
//!   windows                 | first | second |              failover                 |
//! ```
//! The two windows before the kill say how far two windows differ without one. All three look at the
//! cluster as often, so that what the looking costs is in each. The processes of the two groups are
//! different ones: what a group's own new replica copies is no other group's work.

use super::members::{ClusterPlan, Members};
use crate::args::CrashArgs;
use anyhow::{Context, ensure};
use remora_command_line::{Connection, ProcessCpu, note, usage};
use remora_resp::Value;
use remora_zookeeper::LocalServer;
use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The group that fails over, and the one that is measured.
const STRUCK: usize = 0;
const MEASURED: usize = 1;
const GROUPS: usize = 2;
/// Connections that load the measured group.
const LOADERS: u64 = 2;
/// Commands of a connection that are sent together: half SET, half GET.
const PIPELINE: usize = 10;
/// Keys of each group, and bytes of a value.
const KEYS: usize = 10_000;
const VALUE_BYTES: usize = 100;
/// Between two looks at the cluster.
const LOOK: Duration = Duration::from_millis(100);
/// All servers are in sync by then.
const WHOLE_LIMIT: Duration = Duration::from_secs(60);
/// After a failover the load goes on so long before the next round.
const REST: Duration = Duration::from_secs(1);

/// CPU time of the measured group's servers, and what they did meanwhile.
#[derive(Clone, Copy, Debug)]
struct Window {
    cpu: Duration,
    operations: u64,
    lasted: Duration,
}

impl Window {
    fn us_per_operation(&self) -> f64 {
        self.cpu.as_secs_f64() * 1e6 / self.operations.max(1) as f64
    }
}

/// One kill.
#[derive(Clone, Copy, Debug)]
struct Measured {
    before: [Window; 2],
    failover: Window,
}

impl Measured {
    /// The CPU time of an operation during the failover over that before, less 1.
    fn more(&self) -> f64 {
        let [first, second] = self.before;
        let before = Window {
            cpu: first.cpu + second.cpu,
            operations: first.operations + second.operations,
            lasted: first.lasted + second.lasted,
        };
        self.failover.us_per_operation() / before.us_per_operation() - 1.0
    }

    /// That of the second window over the first: what two windows differ by without a failover.
    fn noise(&self) -> f64 {
        let [first, second] = self.before;
        second.us_per_operation() / first.us_per_operation() - 1.0
    }
}

/// What the threads of the load share.
struct Load {
    address: String,
    keys: Vec<String>,
    operations: AtomicU64,
    refused: AtomicU64,
    is_over: AtomicBool,
}

/// Runs the measurement, and prints it.
///
/// # Errors
/// A server did what it should not, or the measured group refused operations.
pub fn run(args: &CrashArgs) -> anyhow::Result<()> {
    LocalServer::check().map_err(|error| usage(error.to_string()))?;
    let directory = tempfile::tempdir()?;
    let plan = ClusterPlan {
        durability: args.durability,
        groups: GROUPS,
        ..ClusterPlan::in_memory(args.min_replicas(), args.session_ms)
    };
    let servers = args.replicas() as usize + 1;
    let mut members = Members::start(servers, plan, (None, directory.path()))?;
    let measured = measure(&mut members, args).inspect_err(|_| members.note_state())?;
    members.terminate()?;
    print(&measured, args)
}

fn measure(members: &mut Members, args: &CrashArgs) -> anyhow::Result<Vec<Measured>> {
    let primaries = [STRUCK, MEASURED].map(|group| {
        let status = members.wait_until_whole_of(group, WHOLE_LIMIT)?;
        let primary = status.primary.context("no primary")?;
        anyhow::Ok(members.places()?[primary].resp.to_string())
    });
    let [struck, address] = primaries;
    fill(&struck?)?;
    let address = address?;
    let keys = fill(&address)?;
    let load =
        Load { address, keys, operations: 0.into(), refused: 0.into(), is_over: false.into() };
    let window = Duration::from_secs_f64(args.seconds_per_round);
    let measured = std::thread::scope(|scope| {
        let load = &load;
        let pace = Duration::from_secs_f64((LOADERS as usize * PIPELINE) as f64 / args.rate as f64);
        let loaders: Vec<_> =
            (0..LOADERS).map(|number| scope.spawn(move || operate(load, number, pace))).collect();
        std::thread::sleep(REST);
        let rounds = (1..=args.rounds).map(|round| {
            let measured = strike(members, load, window)?;
            note(&format!("round {round}: {}", line(&measured)));
            std::thread::sleep(REST);
            Ok(measured)
        });
        let measured: anyhow::Result<Vec<Measured>> = rounds.collect();
        load.is_over.store(true, Ordering::Relaxed);
        for loader in loaders {
            loader.join().expect("a loader does not panic")?;
        }
        measured
    })?;
    ensure!(load.refused.into_inner() == 0, "the other group refused operations");
    Ok(measured)
}

/// Two windows, a kill, and the window behind it.
fn strike(members: &mut Members, load: &Load, quiet: Duration) -> anyhow::Result<Measured> {
    let before = members.wait_until_whole_of(STRUCK, WHOLE_LIMIT)?;
    let primary = before.primary.context("no primary")?;
    let first = window(members, load, |_, lasted| Ok(lasted >= quiet))?;
    let second = window(members, load, |_, lasted| Ok(lasted >= quiet))?;
    let failover = {
        members.kill(primary)?;
        window(members, load, |members, lasted| {
            ensure!(lasted < WHOLE_LIMIT, "the group is not whole after {lasted:?}");
            let Ok(now) = members.status_of(STRUCK) else { return Ok(false) };
            let leads = now.primary.is_some() && now.epoch > before.epoch;
            if leads {
                members.begin(primary)?;
            }
            Ok(leads && now.in_sync.len() + 1 == members.of_group(STRUCK).len())
        })?
    };
    Ok(Measured { before: [first, second], failover })
}

/// Counts until a condition holds, which is looked at every [`LOOK`].
fn window(
    members: &mut Members,
    load: &Load,
    mut is_over: impl FnMut(&mut Members, Duration) -> anyhow::Result<bool>,
) -> anyhow::Result<Window> {
    let clocks: Vec<ProcessCpu> = members
        .of_group(MEASURED)
        .map(|number| members.pid(number).and_then(ProcessCpu::of).context("a server is gone"))
        .collect::<anyhow::Result<_>>()?;
    let spent = || -> anyhow::Result<Duration> {
        let spent = clocks.iter().map(|clock| clock.spent().context("a server is gone"));
        spent.sum()
    };
    let (began, cpu, operations) =
        (Instant::now(), spent()?, load.operations.load(Ordering::Relaxed));
    loop {
        std::thread::sleep(LOOK);
        // Each window looks, whether it has to know or not.
        members.status_of(MEASURED)?;
        if is_over(members, began.elapsed())? {
            break;
        }
    }
    Ok(Window {
        cpu: spent()? - cpu,
        operations: load.operations.load(Ordering::Relaxed) - operations,
        lasted: began.elapsed(),
    })
}

/// Sets keys at a primary, of those slots that are its group's. Their names.
fn fill(address: &str) -> anyhow::Result<Vec<String>> {
    let mut link = Connection::connect(address)?;
    let mut keys = Vec::with_capacity(KEYS);
    let mut number = 0;
    while keys.len() < KEYS {
        let names: Vec<String> = (number..number + 100).map(|of| format!("key:{of}")).collect();
        number += names.len();
        names.iter().for_each(|name| link.push(&[b"SET", name.as_bytes(), &[7; VALUE_BYTES]]));
        link.flush()?;
        for name in names {
            match link.reply()? {
                // The other group's.
                Value::Error(text) if text.starts_with(b"MOVED") => {}
                Value::Error(text) => {
                    anyhow::bail!("SET is refused: {}", String::from_utf8_lossy(text))
                }
                _ => keys.push(name),
            }
        }
    }
    Ok(keys)
}

/// Sends pipelines at a steady pace.
fn operate(load: &Load, number: u64, pace: Duration) -> anyhow::Result<()> {
    let mut link = Connection::connect(&load.address)?;
    let (began, mut sent, mut at) = (Instant::now(), 0u32, number as usize * KEYS / 2);
    while !load.is_over.load(Ordering::Relaxed) {
        for command in 0..PIPELINE {
            at = (at + 13) % load.keys.len();
            let key = load.keys[at].as_bytes();
            match command % 2 {
                0 => link.push(&[b"SET", key, &[7; VALUE_BYTES]]),
                _ => link.push(&[b"GET", key]),
            }
        }
        link.flush()?;
        for _ in 0..PIPELINE {
            let is_refused = matches!(link.reply()?, Value::Error(_));
            load.refused.fetch_add(is_refused.into(), Ordering::Relaxed);
        }
        load.operations.fetch_add(PIPELINE as u64, Ordering::Relaxed);
        sent += 1;
        std::thread::sleep((pace * sent).saturating_sub(began.elapsed()));
    }
    Ok(())
}

fn line(of: &Measured) -> String {
    let [first, second] = of.before;
    format!(
        "CPU per operation {:.2} and {:.2} us before, {:.2} us in the {:.1} s of the failover: {:+.1} %, and {:+.1} % without one",
        first.us_per_operation(),
        second.us_per_operation(),
        of.failover.us_per_operation(),
        of.failover.lasted.as_secs_f64(),
        of.more() * 100.0,
        of.noise() * 100.0
    )
}

/// The median, and the greatest; of an even number the greater one of the middle.
fn median_and_worst(mut values: Vec<f64>) -> (f64, f64) {
    values.sort_by(f64::total_cmp);
    (values[values.len() / 2], values[values.len() - 1])
}

fn print(measured: &[Measured], args: &CrashArgs) -> anyhow::Result<()> {
    let of = |value: fn(&Measured) -> f64| median_and_worst(measured.iter().map(value).collect());
    let (more, worst) = of(Measured::more);
    let (noise, worst_noise) = of(|of| of.noise().abs());
    let (us, _) = of(|of| of.failover.us_per_operation());
    let (seconds, longest) = of(|of| of.failover.lasted.as_secs_f64());
    let operations: u64 = measured.iter().map(|of| of.failover.operations).sum();
    let mut out = std::io::stdout().lock();
    if args.json {
        let fields = serde_json::json!({
            "kills": measured.len(),
            "session_ms": args.session_ms,
            "rate": args.rate,
            "operations": operations,
            "failover_s": { "median": seconds, "worst": longest },
            "cpu_us_per_op": us,
            "more": { "median": more, "worst": worst },
            "noise": { "median": noise, "worst": worst_noise },
        });
        writeln!(out, "{fields}")?;
        return Ok(());
    }
    writeln!(
        out,
        "kills={} operations={operations} cpu_us_per_op={us:.2} more_percent={:.1} worst_percent={:.1} without_percent={:.1} without_worst_percent={:.1}",
        measured.len(),
        more * 100.0,
        worst * 100.0,
        noise * 100.0,
        worst_noise * 100.0
    )?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(cpu_us: u64, operations: u64) -> Window {
        let cpu = Duration::from_micros(cpu_us);
        Window { cpu, operations, lasted: Duration::from_secs(1) }
    }

    #[test]
    fn a_failover_is_compared_with_both_windows_before_it() {
        let before = [window(10_000, 1_000), window(22_000, 2_000)];
        let measured = Measured { before, failover: window(11_200, 1_000) };
        assert!((measured.more() - 0.05).abs() < 1e-9, "11.2 us over 32,000 us of 3,000");
        assert!((measured.noise() - 0.1).abs() < 1e-9, "11 us over 10 us");
    }

    #[test]
    fn the_median_and_the_worst() {
        assert_eq!(median_and_worst(vec![3.0, -1.0, 9.0]), (3.0, 9.0));
    }
}
