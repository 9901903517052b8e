//! Combining: of the threads that want to put something into one ring, one, the
//! *combiner*, does it for all. The others leave what they have, and go on.
//!
//! ```text
//!   a thread                            the combiner
//!   leave a message                     put into the ring what was left
//!   full fence                          give the role back
//!   try to take the role,               full fence
//!   go on if another has it             look once more whether something was left
//! ```
//! Whichever fence comes second sees the other side's step: a thread that finds the
//! role taken has left its message before the combiner's last look.

use crate::sync::{Ordering, fence};
use remora_layout::plant::{Plant, planted};

/// Times that a thread takes the role again because more was left meanwhile. Then it
/// goes on with its own work: threads that wait for replies look, too.
const ROUNDS: usize = 16;

/// Makes the thread the combiner, if something was left and no thread is. `take` tries to
/// take the role, `drain` puts into the ring what was left, and says whether there was
/// room for all of it; without room, the threads that wait for replies try again.
#[inline]
pub fn combine<R, E>(
    waits: impl Fn() -> bool,
    mut take: impl FnMut() -> Option<R>,
    mut drain: impl FnMut(&mut R) -> Result<bool, E>,
) -> Result<(), E> {
    for _ in 0..ROUNDS {
        fence(Ordering::SeqCst);
        if !waits() {
            return Ok(());
        }
        let Some(mut role) = take() else { return Ok(()) };
        let had_room = drain(&mut role)?;
        drop(role);
        if !had_room || planted(Plant::CombineOnce) {
            return Ok(());
        }
    }
    Ok(())
}
