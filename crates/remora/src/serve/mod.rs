//! `remora serve`: settings, the socket's place, the log, and the end.

mod durability;
mod eviction;
mod replica_acks;
mod replica_reads;
mod secret;
mod settings;
mod socket;
mod tls;

use crate::recovery_bar::RecoveryBar;
use anyhow::Context;
use clap::Args;
use remora_command_line::serving::{
    Ending, limit_draining, raise_descriptor_limit, remove_directory_of, start_log, watch_for_end,
};
use remora_command_line::{unavailable, usage};
use remora_fabric::verbs::is_software;
use remora_server::{Config, Server, StartError};
use rustix::process::{DumpableBehavior, set_dumpable_behavior};
pub use settings::DEFAULT_MAX_MEMORY;
use settings::{Layer, Settings};
use std::io::Write;
use std::path::PathBuf;
use tracing::{info, warn};

/// Flags of `remora serve`. Each setting may stand on the command line, in
/// the environment or in the file; the earlier of these wins.
#[derive(Debug, Args)]
pub struct ServeArgs {
    /// TOML file with settings, named as the flags with _ for -.
    #[arg(long, env = "REMORA_CONFIG", value_name = "FILE")]
    config: Option<PathBuf>,
    #[command(flatten)]
    flags: Layer,
    /// Prints the settings that would hold, as TOML, and ends.
    #[arg(long)]
    check: bool,
    /// Ends when standard input does, and takes the socket's directory along.
    #[arg(long, hide = true)]
    owned_by_parent: bool,
    /// Removes the data directory at the end: its owner made it for a while.
    #[arg(long, hide = true, requires = "owned_by_parent")]
    temporary_data: bool,
}

/// Serves until a signal, or the owner's end.
pub fn run(args: ServeArgs) -> anyhow::Result<()> {
    let file = args.config.as_deref().map(Layer::from_file).transpose()?.unwrap_or_default();
    let settings = Settings::decide(args.flags.over(file))?;
    let warnings = settings.check_listeners()?;
    if args.check {
        write!(std::io::stdout(), "{}", settings.to_toml()?)?;
        return Ok(());
    }
    secret::hide_passwords()?;
    start_log(&settings.log)?;
    warnings.iter().for_each(|warning| warn!("{warning}"));
    if settings.is_cluster_of_one_machine() {
        warn!(
            "this server tells the cluster that it is at {}, which only this machine reaches: with servers on several machines set bind, or announce",
            settings.bind
        );
    }
    if !settings.core_dumps {
        let hidden = set_dumpable_behavior(DumpableBehavior::NotDumpable);
        hidden.context("keeping the memory out of core dumps")?;
    }
    raise_descriptor_limit();
    socket::prepare(&settings.socket, settings.socket_is_default)?;
    let endings = watch_for_end(args.owned_by_parent)?;
    let config = Config { cluster: settings.cluster(), ..settings.to_config() };
    let server = start(config).map_err(|error| match error {
        StartError::Config(what) => usage(what),
        StartError::Verbs(why) => unavailable(format!("verbs: {why}")),
        other => anyhow::Error::new(other),
    })?;
    announce(&settings, &server);

    let ending = endings.recv().context("nobody watches for the end any more")?;
    match ending {
        Ending::Signal(signal) => info!("signal {signal}: draining"),
        Ending::OwnerGone => info!("the owner has gone: draining"),
    }
    limit_draining()?;
    let socket_path = server.socket_path().to_path_buf();
    server.shutdown();
    if let Some(directory) = settings.data_dir.filter(|_| args.temporary_data) {
        std::fs::remove_dir_all(directory).context("removing the temporary data")?;
    }
    if args.owned_by_parent {
        remove_directory_of(&socket_path);
    }
    info!("ended");
    Ok(())
}

/// Starts the server. A terminal has a bar while the data are loaded, else the log tells of it.
fn start(config: Config) -> Result<Server, StartError> {
    if !RecoveryBar::has_terminal() {
        return Server::start(config);
    }
    let bar = RecoveryBar::new("recovering");
    Server::start_watched(config, &|progress| bar.show(&progress))
}

/// The banner in the log, and the line that a starter waits for.
fn announce(settings: &Settings, server: &Server) {
    let (resp, socket, pid) =
        (server.resp_address(), server.socket_path().display(), std::process::id());
    info!(
        "remora {}: {} shard(s){}, {} of memory, eviction {}, wake {}, transport {}",
        env!("CARGO_PKG_VERSION"),
        settings.shards,
        settings.shards_by.map(|rule| format!(" ({rule})")).unwrap_or_default(),
        settings.max_memory,
        settings.eviction,
        settings.wake,
        settings.transport
    );
    match &settings.data_dir {
        Some(directory) => info!("data in {}", directory.display()),
        None => info!("nothing is kept: without data_dir the data end with the server"),
    }
    info!("RESP on {resp}, shared memory by {socket}");
    if let Some(address) = server.mongo_address() {
        info!("MongoDB's protocol on {address}");
    }
    if let Some(address) = server.fabric_address() {
        info!("sessions over TCP on {address}");
        let devices = server.rdma_devices();
        if !devices.is_empty() {
            info!("sessions over RDMA by {}", devices.join(", "));
            for device in devices.iter().filter(|device| is_software(device)) {
                warn!(
                    "{device} is RDMA in software, for tests: a client over it can make this kernel crash (docs/rdma.md)"
                );
            }
        }
    }
    let mut out = std::io::stdout().lock();
    // Without a reader the server serves all the same.
    let kept = match (&settings.data_dir, settings.durability) {
        (Some(directory), Some(durability)) => format!("{durability} data={}", directory.display()),
        _ => "none".into(),
    };
    let replicas = match settings.min_replicas {
        0 => String::new(),
        some => format!(" min_replicas={some} replica_acks={}", settings.replica_acks),
    };
    let fabric = server.fabric_address().map(|of| format!(" fabric={of}")).unwrap_or_default();
    let mongo = server.mongo_address().map(|of| format!(" mongo={of}")).unwrap_or_default();
    let line = format!(
        "ready resp={resp} socket={socket} pid={pid}{fabric}{mongo} durability={kept}{replicas}"
    );
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}
