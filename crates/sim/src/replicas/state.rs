//! The replicas of a world.

use super::counts::ReplicaCounts;
use super::oracle::Oracle;
use super::server::ReplicaTask;
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// The replicas of a world; none in most.
#[derive(Default)]
pub struct Replicas {
    pub(super) places: RefCell<Vec<ReplicaTask>>,
    pub(super) oracle: RefCell<Option<Rc<RefCell<Oracle>>>>,
    /// Replicas that have died: the incarnation that they followed, and the ends of its logs then.
    pub(super) died: RefCell<Vec<(u64, Vec<u64>)>>,
    pub(super) counts: Rc<Cell<ReplicaCounts>>,
}
