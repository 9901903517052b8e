//! The simulated fabric: in process, one thread, virtual time, one seed.
//!
//! It is the weakest fabric that the contract allows. An operation takes
//! effect over an interval of virtual time. A READ shows of each word any value
//! that the word held in that interval, each word by itself: the writer's
//! fences order nothing inside an operation. The words of a WRITE become
//! visible in any order. What stays is the order between the operations of a
//! link, and that no word is torn. Everything that happens is drawn from the
//! seed, so a run repeats itself exactly.
//!
//! A link may also be made with costs that are stated (`costs`): it then tears
//! nothing, and time is what is looked at.

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
