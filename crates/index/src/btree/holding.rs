//! A tree's nodes are held and released: their addresses stay meanwhile.

use super::pins::Held;
use super::tree::{Tree, TreeError};
use remora_arena::{Journal, Owner};
use remora_layout::node::NodeRef;

impl Tree {
    /// Holds the addresses of nodes of this tree under an epoch until `until_ms`. An epoch that holds
    /// some already holds these too, and all of them until then, or until its former time if that is
    /// later.
    ///
    /// # Errors
    /// More would be held than may be; nothing has changed.
    pub fn pin(
        &mut self,
        epoch: u64,
        nodes: impl IntoIterator<Item = NodeRef>,
        until_ms: u64,
    ) -> Result<(), TreeError> {
        if !self.pins.hold(epoch, nodes.into_iter().collect(), until_ms) {
            return Err(TreeError::TooManyHeld);
        }
        self.mending.was_held = true;
        Ok(())
    }

    /// Ends an epoch: nodes that no other epoch holds may be joined, and are mended. True if there was
    /// such an epoch.
    pub fn release<J: Journal>(&mut self, owner: &Owner<J>, epoch: u64) -> bool {
        let was_there = self.pins.has(epoch);
        for at in self.pins.end(epoch) {
            self.look_at(owner, at);
        }
        self.forget_holders();
        was_there
    }

    /// Ends the epochs whose time has come.
    pub fn lapse<J: Journal>(&mut self, owner: &Owner<J>, now_ms: u64) {
        for epoch in self.pins.due(now_ms) {
            self.release(owner, epoch);
        }
    }

    /// The time of the epoch that ends first; `None` if nothing is held.
    pub fn next_lapse_ms(&self) -> Option<u64> {
        self.pins.next_lapse_ms()
    }

    /// What is held.
    pub fn held(&self) -> Held {
        self.pins.all()
    }
}
