//! `remora-sim compare`.

use super::report::Compared;
use super::{Workload, all};
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
