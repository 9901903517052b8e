//! Frames of the log that are kept for cursors.

/// Keeps the frames that a cursor has not read from being dropped, until it is released.
#[derive(PartialEq, Eq, Debug)]
#[must_use = "what it holds is held until it is released"]
pub struct Hold(u64);

/// The holds of a log.
#[derive(Default)]
pub(crate) struct Holds {
    next_id: u64,
    /// By id, the first frame that is held; few.
    held: Vec<(u64, u64)>,
}

impl Holds {
    /// Holds all frames from this one on.
    pub fn add(&mut self, frame: u64) -> Hold {
        self.next_id += 1;
        self.held.push((self.next_id, frame));
        Hold(self.next_id)
    }

    /// The hold begins at this frame; nothing if it was broken.
    pub fn move_to(&mut self, hold: &Hold, frame: u64) -> Option<()> {
        let held = self.held.iter_mut().find(|(id, _)| *id == hold.0)?;
        held.1 = frame;
        Some(())
    }

    /// Ends a hold.
    pub fn end(&mut self, hold: Hold) {
        self.held.retain(|&(id, _)| id != hold.0);
    }

    /// Whether anything is held.
    #[inline]
    pub fn any(&self) -> bool {
        !self.held.is_empty()
    }

    /// Whether a frame before this one is held.
    pub fn hold_before(&self, frame: u64) -> bool {
        self.held.iter().any(|&(_, from)| from < frame)
    }

    /// Ends the holds on dropped frames.
    pub fn break_before(&mut self, frame: u64) {
        self.held.retain(|&(_, from)| from >= frame);
    }
}
