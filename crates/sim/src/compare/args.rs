//! `remora-sim compare`.

use super::report::Compared;
use super::{Admits, Latencies, Threads, Workload, all, walking};
use super::{links, replication};
use std::process::ExitCode;

/// Compares the policies by which clients choose between asking and reading, in
/// virtual time.
#[derive(clap::Args)]
pub struct Args {
    /// Lists the workloads.
    #[arg(long)]
    list: bool,
    /// Only this workload; may be given several times.
    #[arg(long, value_name = "NAME", value_parser = parse_workload)]
    workload: Vec<Workload>,
    /// Lets every phase last so many times as long.
    #[arg(long, value_name = "TIMES", default_value_t = 1)]
    longer: u64,
    /// Instead: threads of one client machine, and how many may walk at a time
    /// (Catfish Fig. 8).
    #[arg(long, conflicts_with_all = ["workload", "json"])]
    walking: bool,
    /// Instead: a model of polling against waiting for events (Catfish Fig. 6).
    #[arg(long, conflicts_with_all = ["workload", "json", "walking"])]
    threads: bool,
    /// Instead: what replicas cost a SET (HydraDB Fig. 13).
    #[arg(long, conflicts_with_all = ["workload", "json", "walking", "threads"])]
    replication: bool,
    /// Instead: what a hop along a link costs, and a get (KELI Fig. 8).
    #[arg(long, conflicts_with_all = ["workload", "json", "walking", "threads", "replication"])]
    links: bool,
    /// Prints one JSON object a line instead of tables.
    #[arg(long)]
    json: bool,
}

fn parse_workload(name: &str) -> Result<Workload, String> {
    let mut workloads = all();
    let names: Vec<&str> = workloads.iter().map(|work| work.name).collect();
    let at = names.iter().position(|known| *known == name);
    at.map(|at| workloads.swap_remove(at)).ok_or(format!("there are: {}", names.join(", ")))
}

impl Args {
    /// Compares; fails if `cost` misses its bound somewhere.
    pub fn run(self) -> ExitCode {
        let workloads = if self.workload.is_empty() { all() } else { self.workload };
        if self.list {
            workloads.iter().for_each(|work| println!("{:14} {}", work.name, work.shows));
            return ExitCode::SUCCESS;
        }
        if self.walking {
            print!("{}", walking_table());
            return ExitCode::SUCCESS;
        }
        if self.replication {
            print!("{}", replication::table());
            return ExitCode::SUCCESS;
        }
        if self.links {
            print!("{}", links::table());
            return ExitCode::SUCCESS;
        }
        if self.threads {
            print!("{}", threads_table());
            return ExitCode::SUCCESS;
        }
        let mut is_reached = true;
        for mut work in workloads {
            work.phases.iter_mut().for_each(|phase| phase.ms *= self.longer);
            let compared = Compared::of(&work);
            is_reached &= compared.is_reached();
            print!("{}", if self.json { compared.json() } else { compared.table() });
        }
        if is_reached { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

fn walking_table() -> String {
    let mut text = "threads  admitted  1000 searches ms  walk us  search us\n".to_owned();
    let admitted = [("all", Admits::All), ("2", Admits::AtMost(2)), ("3", Admits::AtMost(3))];
    for threads in [1, 2, 3, 4, 6, 8, 10] {
        for (name, admits) in admitted.into_iter().chain([("auto", Admits::Auto)]) {
            let it = walking(threads, admits);
            let (completion, walk) = (it.completion_ns / 1e6, it.walk_ns / 1e3);
            let search = it.search_ns / 1e3;
            text +=
                &format!("{threads:7}  {name:8}  {completion:16.2}  {walk:7.2}  {search:9.2}\n");
        }
    }
    text
}

fn threads_table() -> String {
    let mut text = "connections  pause us  polling us  events us\n".to_owned();
    for pause_ns in [0, 25_000, 2_000_000] {
        let threads = Threads { pause_ns, ..Threads::default() };
        for connections in [14, 28, 42, 56, 84, 112, 168, 224, 280, 336] {
            let Latencies { polling, events } = threads.latencies(connections);
            let (polling, events, pause_us) = (polling / 1e3, events / 1e3, pause_ns / 1_000);
            text += &format!("{connections:11}  {pause_us:8}  {polling:10.1}  {events:9.1}\n");
        }
    }
    text
}
