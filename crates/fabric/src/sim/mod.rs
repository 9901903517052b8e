//! The simulated fabric: in process, one thread, virtual time, one seed.
//!
//! It is the weakest fabric that the contract allows. An operation takes effect over an interval of
//! virtual time. A READ returns for each word any value that the word held in that interval,
//! independently of the other words: the writer's fences order nothing inside an operation. The
//! words of a WRITE become visible in any order. Only two guarantees remain: the order between the
//! operations of a link, and that no word is torn. The seed decides every event, so a run repeats
//! itself exactly.
//!
//! A link may also have fixed costs (`costs`): it then tears nothing, and the simulation measures
//! time.

mod costs;
mod flight;
mod history;
mod link;
mod random;
mod state;
mod target;
mod world;

pub use costs::{SimCosts, SimHop, SimStage};
pub use history::SimJournal;
pub use link::SimLink;
pub use random::Random;
pub use state::SimBundle;
pub use target::SimTarget;
pub use world::{Scheduled, SimOptions, SimWorld, Tasks};
