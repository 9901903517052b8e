//! What the commands that change a member share: they find it, say what they will do, and do it.

use super::args::ChangeArgs;
use super::session::CoordinatorSession;
use anyhow::{Context, bail};
use remora_cluster::topology::change::Refusal;
use remora_cluster::topology::{Member, MemberId, MemberState, Topology};
use std::io::Write;

/// Prints a line.
pub fn say(line: &str) {
    // Without a reader the command goes on all the same.
    let _ = writeln!(std::io::stdout(), "{line}");
}

/// A member, for people.
pub fn name_of(member: &Member) -> String {
    format!("server {} at {}", member.id, member.resp_address)
}

/// Whether to go on: it was said what will happen.
pub fn may(yes: bool, will: &str) -> bool {
    say(will);
    if !yes {
        say("nothing is done yet: say --yes to do it");
    }
    yes
}

/// The one member that a text names.
pub fn find<'a>(topology: &'a Topology, named: &str) -> anyhow::Result<&'a Member> {
    let is_named = |of: &&Member| {
        of.state != MemberState::Replaced
            && (of.id.to_string().starts_with(named)
                || of.resp_address == named
                || of.fabric_address == named)
    };
    let mut found = topology.members().iter().filter(is_named);
    match (found.next(), found.next()) {
        (Some(member), None) => Ok(member),
        (Some(_), Some(_)) => bail!("{named} names several servers: say more of its id"),
        (None, _) => bail!("the cluster has no server {named}: remora cluster status lists them"),
    }
}

/// Changes a member if `--yes` was given, and returns the session and the member then.
///
/// # Errors
/// There is no such member, the change is refused, or the coordinator does not record it.
pub fn change_member(
    args: &ChangeArgs,
    will: impl Fn(&Member) -> String,
    change: impl Fn(&Topology, MemberId) -> Result<Topology, Refusal>,
) -> anyhow::Result<Option<(CoordinatorSession, MemberId)>> {
    let mut session = CoordinatorSession::open(&args.at)?;
    let topology = session.topology()?;
    let member = find(&topology, &args.server)?;
    let id = member.id;
    // What would be refused is refused before the question.
    change(&topology, id).context("this change is refused")?;
    if !may(args.yes, &will(member)) {
        return Ok(None);
    }
    session.change(|topology| change(topology, id))?;
    say("done: recorded");
    Ok(Some((session, id)))
}
