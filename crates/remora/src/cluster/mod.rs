//! `remora cluster`: makes a cluster, shows it, and changes who leads.
//!
//! Invariant: a command says what it will do, and does it only with `--yes`.

mod args;
mod changing;
mod drain;
mod lag;
mod promote;
mod server;
mod session;
mod status;
mod watching;

use anyhow::{Context, bail};
pub use args::ClusterCommand;
use args::{ChangeArgs, InitArgs, PromoteArgs, Where};
use changing::{change_member, find, may, name_of, say};
use remora_cluster::topology::change;
use remora_cluster::topology::{GroupId, Invalid, Member, Topology};
use remora_command_line::usage;
use remora_layout::limits::{MAX_GROUP_NAME_BYTES, MAX_GROUPS, MAX_MIN_REPLICAS};
use session::CoordinatorSession;

/// Does what was asked.
///
/// # Errors
/// The coordinator cannot be reached, or the change is refused, with the reason.
pub fn run(command: ClusterCommand) -> anyhow::Result<()> {
    match command {
        ClusterCommand::Init(args) => init(&args),
        ClusterCommand::Status(args) => status::run(&args),
        ClusterCommand::Join(at) => join(&at),
        ClusterCommand::Drain(args) => drain::run(&args),
        ClusterCommand::Undrain(args) => {
            let say = |of: &Member| format!("{} may lead again", name_of(of));
            change_member(&args, say, change::undrain).map(|_| ())
        }
        ClusterCommand::Leave(args) => leave(&args),
        ClusterCommand::Promote(args) => promote(&args),
    }
}

fn init(args: &InitArgs) -> anyhow::Result<()> {
    let id = |at: usize| GroupId(at as u32 + 1);
    let groups = args.groups.iter().enumerate();
    let groups = groups.map(|(at, name)| (id(at), name.clone(), args.min_replicas)).collect();
    let topology = Topology::new(rand::random::<u64>() | 1, groups)
        .map_err(|error| usage(why_not(&error, args)))?;
    let mut session = CoordinatorSession::open(&args.at)?;
    if session.topology().is_ok() {
        bail!("there is a cluster at {} already: remora cluster status shows it", args.at.cluster);
    }
    let (names, replicas) = (args.groups.join(", "), args.min_replicas);
    let will = format!(
        "a new cluster at {}: group(s) {names}; a change is acknowledged once its primary and at least {replicas} replica(s) have it",
        args.at.cluster
    );
    if !may(args.yes, &will) {
        return Ok(());
    }
    session.create(&topology)?;
    say(&format!("done. Start servers: remora serve --cluster {} --group NAME", args.at.cluster));
    Ok(())
}

/// Why there can be no such cluster, by its flags.
fn why_not(error: &Invalid, args: &InitArgs) -> String {
    let at = |id: &GroupId| args.groups.get(id.0 as usize - 1).cloned().unwrap_or_default();
    match error {
        Invalid::Name(id) => format!(
            "--group: {:?} is no name, or is there twice: a name has 1 to {MAX_GROUP_NAME_BYTES} ASCII letters, digits, '-', '_' and '.'",
            at(id)
        ),
        Invalid::Number(_) => {
            format!("--min-replicas: {} is not in 0..={MAX_MIN_REPLICAS}", args.min_replicas)
        }
        Invalid::TooMany(_) => {
            format!("--group: {} are too many: {MAX_GROUPS} at most", args.groups.len())
        }
        other => other.to_string(),
    }
}

fn join(at: &Where) -> anyhow::Result<()> {
    let mut session = CoordinatorSession::open(at)?;
    let topology = session.topology()?;
    say(
        "a server joins by itself when it is started, and has all keys of its group before it counts:",
    );
    for group in topology.groups() {
        say(&format!("    remora serve --cluster {} --group {}", at.cluster, group.name));
    }
    say(
        "add --bind ADDRESS, at which the other machines reach it, or --announce HOST:PORT with --fabric-address ADDRESS:PORT where they reach it at another one; and as many --shards as the others. Beyond loopback servers need --requirepass and the same --peer-password, or a network of their own and --protected-mode=false",
    );
    Ok(())
}

/// A server that runs may not be removed: it is stopped first.
fn leave(args: &ChangeArgs) -> anyhow::Result<()> {
    let mut session = CoordinatorSession::open(&args.at)?;
    let topology = session.topology()?;
    let member = find(&topology, &args.server)?;
    let is_present = session.members().contains(&member.instance());
    // What it has is more important than that it runs.
    change::leave(&topology, member.id).context("this change is refused")?;
    if is_present {
        bail!(
            "{} is running: stop it first. If it was stopped just now, its session ends within its time",
            name_of(member)
        );
    }
    drop(session);
    let say = |of: &Member| format!("the cluster will forget {}", name_of(of));
    change_member(args, say, change::leave).map(|_| ())
}

fn promote(args: &PromoteArgs) -> anyhow::Result<()> {
    let PromoteArgs { change: args, accept_loss } = args;
    let mut session = CoordinatorSession::open(&args.at)?;
    let topology = session.topology()?;
    let member = find(&topology, &args.server)?;
    let (id, instance) = (member.id, member.instance());
    let group = topology.group(member.group).context("its group is gone")?;
    let (name, group_id, epoch) = (group.name.clone(), group.id, group.epoch);
    if group.primary == Some(instance) {
        bail!("{} leads group {name} already", name_of(member));
    }
    if *accept_loss {
        let mut will = format!(
            "{} will lead group {name}. CHANGES THAT IT LACKS ARE LOST, also acknowledged ones",
            name_of(member)
        );
        if let Some(primary) = group.primary {
            let of = topology.member(primary.member);
            let of = of.map_or_else(|| primary.to_string(), name_of);
            will += &format!(
                "\nSTOP THE FORMER PRIMARY FIRST, {of}: if it is alive and cut off it may go on acknowledging changes, which are lost, and answering reads; with an empty in-sync set it does so without end"
            );
        }
        if may(args.yes, &will) {
            session.change(|topology| {
                change::promote_with_loss(topology, group_id, epoch, instance)
            })?;
            say("done: recorded");
        }
        return Ok(());
    }
    if epoch > 0 && !group.in_sync.contains(&instance) {
        bail!(
            "{} is not in the in-sync set of group {name}, and may lack acknowledged changes: wait until it is (remora cluster status)",
            name_of(member)
        );
    }
    let will = format!("{} will lead group {name}, without a loss", name_of(member));
    if !may(args.yes, &will) {
        return Ok(());
    }
    promote::until_it_leads(&mut session, (group_id, id))?;
    say("done: it is recorded as the primary");
    Ok(())
}
