//! The command line of `remora crash`.

use crate::cluster::Kind;
use crate::types::{self, KeyType, TYPES};
use anyhow::Result;
use clap::builder::ArgPredicate;
use clap::{Args, ValueEnum};
use remora_command_line::{show_by_name, usage};

/// The longest round, in seconds.
const MOST_SECONDS: f64 = 600.0;

/// The most replicas of a run.
const MOST_REPLICAS: u32 = 8;

/// Replicas of a cluster, if their number is not named.
const CLUSTER_REPLICAS: u32 = 2;

/// What a server promises of an acknowledged write.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Durability {
    /// Nothing survives but a clean end.
    Memory,
    /// It survives the process at once, and a power cut after two seconds.
    Everysec,
    /// It survives both at once.
    Fsync,
}

show_by_name!(Durability);

/// What keeps the topology of a cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Coordinator {
    /// A real ZooKeeper.
    Zk,
}

/// Kills real servers, cuts their power, and checks that nothing promised is lost.
#[derive(Clone, Debug, Args)]
pub struct CrashArgs {
    /// What the server promises of an acknowledged write.
    #[arg(
        long,
        value_enum,
        required = false,
        required_unless_present = "cluster",
        default_value_if("cluster", ArgPredicate::IsPresent, "memory")
    )]
    pub durability: Durability,
    /// Rounds; each ends with a crash or a clean end of the server.
    #[arg(long)]
    pub rounds: u64,
    /// Replicas of the server: they are killed, too, stand still and lose their links, and one of
    /// them is promoted when the primary is gone.
    #[arg(long, default_value_t = 0)]
    pub replicas: u32,
    /// Replicas without which nothing is acknowledged [default: 1 with replicas]. With 0 and no disk
    /// nothing is promised to survive the primary.
    #[arg(long, value_name = "N")]
    pub min_replicas: Option<u32>,
    /// Leaves out the cuts of links between servers, for which network namespaces are needed.
    #[arg(long)]
    pub without_links: bool,
    /// This process is in a network namespace of its own: the command begins itself with it.
    #[arg(long, hide = true)]
    pub in_network_namespace: bool,
    /// Servers of a cluster (three, or --replicas and one) that go on by themselves, with a ZooKeeper
    /// of their own. Their durability is memory unless it is named.
    #[arg(long, value_enum)]
    pub cluster: Option<Coordinator>,
    /// Faults of a cluster [default: all], separated by commas.
    #[arg(long, value_enum, value_delimiter = ',', requires = "cluster", value_name = "NAME,..")]
    pub faults: Vec<Kind>,
    /// Measures instead what a failover costs others: the primary of one group is killed in each round, and
    /// another group serves. Its servers' CPU time per operation is compared with that before the kill,
    /// over --seconds-per-round.
    #[arg(long, requires = "cluster", conflicts_with_all = ["faults", "types"])]
    pub neighbour: bool,
    /// Operations a second that the other group serves.
    #[arg(long, default_value_t = 10_000, requires = "neighbour", value_name = "N")]
    pub rate: u64,
    /// Session of each server of a cluster at ZooKeeper, ms.
    #[arg(long, default_value_t = 2000, requires = "cluster", value_name = "MS")]
    pub session_ms: u64,
    /// The types of the keys, separated by commas.
    #[arg(long, default_value = "all", value_name = "all|NAME,..")]
    pub types: String,
    /// A round's load lasts at most so long, in seconds.
    #[arg(long, default_value_t = 1.0)]
    pub seconds_per_round: f64,
    /// What is drawn at random begins with it; without it another one each time.
    #[arg(long)]
    pub seed: Option<u64>,
    /// Prints one JSON object instead of the last line.
    #[arg(long)]
    pub json: bool,
}

impl CrashArgs {
    /// Replicas of the primary.
    pub fn replicas(&self) -> u32 {
        match (self.replicas, self.cluster) {
            (0, Some(_)) => CLUSTER_REPLICAS,
            (replicas, _) => replicas,
        }
    }

    /// Replicas without which nothing is acknowledged.
    pub fn min_replicas(&self) -> u32 {
        self.min_replicas.unwrap_or(self.replicas().min(1))
    }

    /// The types of the keys. Refuses what makes no sense, or cannot be had yet.
    pub fn checked(&self) -> Result<Vec<&'static dyn KeyType>> {
        if self.rounds == 0 {
            return Err(usage("--rounds 0 checks nothing: name 1 or more"));
        }
        let seconds = self.seconds_per_round;
        if !(seconds > 0.0 && seconds <= MOST_SECONDS) {
            return Err(usage(format!(
                "--seconds-per-round {seconds}: name more than 0 and at most {MOST_SECONDS} seconds"
            )));
        }
        if self.replicas > MOST_REPLICAS {
            return Err(usage(format!(
                "--replicas {}: name {MOST_REPLICAS} at most",
                self.replicas
            )));
        }
        if self.min_replicas() > self.replicas() {
            return Err(usage(format!(
                "--min-replicas {}: nothing would be acknowledged with {} replica(s)",
                self.min_replicas(),
                self.replicas()
            )));
        }
        if self.types == "all" {
            return Ok(TYPES.to_vec());
        }
        let known = || TYPES.iter().map(|of| of.name()).collect::<Vec<_>>().join(", ");
        let named = self.types.split(',').map(|name| {
            types::by_name(name).ok_or_else(|| {
                usage(format!(
                    "--types: there is no type \"{name}\"; name all, or some of {}",
                    known()
                ))
            })
        });
        named.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        args: CrashArgs,
    }

    fn checked(more: &[&str]) -> Result<Vec<&'static str>> {
        let line = [&["crash", "--durability=fsync", "--rounds=1"][..], more].concat();
        let types = Command::try_parse_from(line)?.args.checked()?;
        Ok(types.iter().map(|of| of.name()).collect())
    }

    #[test]
    fn types_are_named_or_all() {
        assert_eq!(checked(&[]).unwrap().len(), TYPES.len());
        assert_eq!(checked(&["--types=sorted,string"]).unwrap(), ["sorted", "string"]);
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_what_to_do() {
        for (flag, words) in [
            ("--types=strings", "there is no type \"strings\"; name all, or some of string, hash"),
            ("--types=", "there is no type \"\""),
            ("--seconds-per-round=0", "more than 0"),
            ("--seconds-per-round=NaN", "more than 0"),
            ("--replicas=9", "name 8 at most"),
            ("--min-replicas=1", "nothing would be acknowledged with 0 replica(s)"),
            ("--cluster=raft", "possible values: zk"),
            ("--faults=kill-primary", "--cluster <CLUSTER>"),
        ] {
            let text = format!("{:#}", checked(&[flag]).unwrap_err());
            assert!(text.contains(words), "{flag}: {text}");
        }
        let line = ["crash", "--durability=fsync", "--rounds=0"];
        let none = Command::try_parse_from(line).unwrap().args.checked();
        assert!(none.err().unwrap().to_string().contains("1 or more"));
    }
}
