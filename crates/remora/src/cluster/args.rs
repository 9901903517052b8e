//! The flags of `remora cluster`.

use clap::{Args, Subcommand};

/// What `remora cluster` can do.
#[derive(Debug, Subcommand)]
pub enum ClusterCommand {
    /// Makes a cluster without servers; they join with `remora serve --cluster`.
    Init(InitArgs),
    /// Shows groups, roles, epochs, in-sync sets and slots.
    Status(StatusArgs),
    /// Says how a server joins, with the line to type.
    Join(Where),
    /// Takes a server's part from it, without a loss: it leads no more, and nothing waits for it. Then
    /// it may be stopped, and leave.
    Drain(DrainArgs),
    /// Ends a drain: the server may lead again.
    Undrain(ChangeArgs),
    /// Removes a server that has no part any more, and was stopped.
    Leave(ChangeArgs),
    /// Makes a server the primary of its group, without a loss.
    Promote(PromoteArgs),
}

/// Where the cluster is.
#[derive(Debug, Args)]
pub struct Where {
    /// Coordinator and path, as zk://host1,host2,host3/path, or zk+tls:// for TLS with the authority
    /// REMORA_COORDINATOR_TLS_CA.
    #[arg(long, env = "REMORA_CLUSTER", value_name = "zk://HOSTS/PATH")]
    pub cluster: String,
    /// Longest wait for the coordinator, s.
    #[arg(long, value_name = "S", default_value_t = 10)]
    pub timeout_s: u64,
}

/// Flags of `remora cluster init`.
#[derive(Debug, Args)]
pub struct InitArgs {
    /// Where the cluster is.
    #[command(flatten)]
    pub at: Where,
    /// Groups of servers, which divide the slots equally; each is named once. A name has 1 to 32 ASCII
    /// letters, digits, `-`, `_` and `.`.
    #[arg(long = "group", value_name = "NAME", default_value = "main")]
    pub groups: Vec<String>,
    /// Replicas that must have stored a change before it is acknowledged, 0 to 16. It stays as it is.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub min_replicas: u8,
    /// Does it.
    #[arg(long)]
    pub yes: bool,
}

/// Flags of `remora cluster status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Where the cluster is.
    #[command(flatten)]
    pub at: Where,
    /// Prints one JSON object.
    #[arg(long)]
    pub json: bool,
}

/// Flags of a change that concerns one server.
#[derive(Debug, Args)]
pub struct ChangeArgs {
    /// Where the cluster is.
    #[command(flatten)]
    pub at: Where,
    /// The server: its id, the beginning of it, or one of its addresses.
    pub server: String,
    /// Does it.
    #[arg(long)]
    pub yes: bool,
}

/// Flags of `remora cluster drain`.
#[derive(Debug, Args)]
pub struct DrainArgs {
    /// The server.
    #[command(flatten)]
    pub change: ChangeArgs,
    /// Ends once it is recorded that the server is to be drained; the cluster goes on with it.
    #[arg(long)]
    pub no_wait: bool,
    /// Longest wait until the server has no part any more, s.
    #[arg(long, value_name = "S", default_value_t = 300)]
    pub wait_s: u64,
}

/// Flags of `remora cluster promote`.
#[derive(Debug, Args)]
pub struct PromoteArgs {
    /// The server.
    #[command(flatten)]
    pub change: ChangeArgs,
    /// Also if the server may lack acknowledged changes, which are lost then: where nothing is left
    /// that has them.
    #[arg(long)]
    pub accept_loss: bool,
}
