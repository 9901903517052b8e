//! The command line of `remora crash`.

use crate::types::{self, KeyType, TYPES};
use anyhow::Result;
use clap::{Args, ValueEnum};
use remora_command_line::{show_by_name, usage};

/// The longest round, in seconds.
const MOST_SECONDS: f64 = 600.0;

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

/// Kills real servers, cuts their power, and checks that nothing promised is lost.
#[derive(Clone, Debug, Args)]
pub struct CrashArgs {
    /// What the server promises of an acknowledged write.
    #[arg(long, value_enum)]
    pub durability: Durability,
    /// Rounds; each ends with a crash or a clean end of the server.
    #[arg(long)]
    pub rounds: u64,
    /// Replicas of each shard. This version has none.
    #[arg(long, default_value_t = 0)]
    pub replicas: u32,
    /// The coordinator of a cluster. This version has none.
    #[arg(long, value_name = "zk")]
    pub cluster: Option<String>,
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
        if self.replicas > 0 {
            return Err(usage("--replicas: this version has no replicas; leave it out, or name 0"));
        }
        if let Some(cluster) = &self.cluster {
            return Err(usage(format!(
                "--cluster {cluster}: this version has no clusters; leave it out"
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
        assert_eq!(checked(&["--types=geo,string"]).unwrap(), ["geo", "string"]);
    }

    #[test]
    fn what_makes_no_sense_is_refused_with_what_to_do() {
        for (flag, words) in [
            ("--types=strings", "there is no type \"strings\"; name all, or some of string, hash"),
            ("--types=", "there is no type \"\""),
            ("--seconds-per-round=0", "more than 0"),
            ("--seconds-per-round=NaN", "more than 0"),
            ("--replicas=1", "no replicas; leave it out"),
            ("--cluster=zk", "no clusters; leave it out"),
        ] {
            let text = format!("{:#}", checked(&[flag]).unwrap_err());
            assert!(text.contains(words), "{flag}: {text}");
        }
        let line = ["crash", "--durability=fsync", "--rounds=0"];
        let none = Command::try_parse_from(line).unwrap().args.checked();
        assert!(none.err().unwrap().to_string().contains("1 or more"));
    }
}
