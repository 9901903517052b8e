//! The nodes of an ordered tree, as the owner lists and hands them out, and addresses that stay.

use super::OpenOrdered;
use crate::error::Error;
use crate::session::Session;
use remora_layout::btree::{InnerNode, NodeInfo};
use remora_protocol::message::Status;
use remora_protocol::ordered::{OrderedCommand, OrderedHold, inner_nodes_of, node_infos_of};

impl Session {
    /// The nodes of a level, 0 that of the leaves, in the order of their keys, so many at most; none if
    /// there is no tree.
    pub fn ordered_nodes(
        &mut self,
        open: &OpenOrdered,
        level: u8,
        limit: u64,
    ) -> Result<Vec<NodeInfo>, Error> {
        self.core.begin()?;
        let core = &mut self.core;
        let answer = open.ask(core, &OrderedCommand::Nodes { level, limit })?;
        let Some(range) = answer.value.filter(|_| answer.status == Status::Ok) else {
            return Ok(Vec::new());
        };
        Ok(node_infos_of(core.in_reply(range)).collect())
    }

    /// Inner nodes of a tree, from the top, whose children's addresses are held from then on. `None` if
    /// there is no tree, or the epoch does not hold the address at which they are to begin.
    ///
    /// # Errors
    /// See [`Error`]. More would be held than may be: that is refused as too large.
    pub fn ordered_hold(
        &mut self,
        open: &OpenOrdered,
        hold: OrderedHold,
    ) -> Result<Option<Vec<InnerNode>>, Error> {
        self.core.begin()?;
        let core = &mut self.core;
        let answer = open.ask(core, &OrderedCommand::Hold(hold))?;
        let Some(range) = answer.value.filter(|_| answer.status == Status::Ok) else {
            return Ok(None);
        };
        match inner_nodes_of(core.in_reply(range)) {
            Some(nodes) => Ok(Some(nodes)),
            None => Err(core.asker.endpoint.end(Error::Protocol("nodes that cannot be"))),
        }
    }

    /// Ends an epoch that holds addresses; true if it held some.
    pub fn ordered_release(&mut self, open: &OpenOrdered, epoch: u64) -> Result<bool, Error> {
        self.core.begin()?;
        Ok(open.ask(&mut self.core, &OrderedCommand::Release { epoch })?.number == 1)
    }
}
