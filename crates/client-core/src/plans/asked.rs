//! A plan asked in one message.

use crate::core::Core;
use crate::error::Error;
use remora_plan::{Outcome, Plan, bytes};
use remora_protocol::Command;

/// Asks for a plan. Sessions distribute themselves over the server's threads: any thread runs plans.
pub(super) fn run(core: &mut Core, plan: &Plan) -> Result<Outcome, Error> {
    let plan = bytes::encode(plan);
    let shard = core.asker.endpoint.number as usize % core.directory.shards.len();
    let mut found = Vec::new();
    core.ask_parts_of(shard, &Command::Plan { plan: &plan }, |part| {
        found.extend_from_slice(part);
        Ok(())
    })?;
    let outcome = Outcome::from_bytes(&found);
    outcome.ok_or_else(|| core.asker.endpoint.end(Error::Protocol("an outcome that cannot be")))
}
