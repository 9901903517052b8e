//! A history of stores, and the memory in the middle of it: the weakest READ that the fabric allows.

use remora_arena::Journal;
use remora_layout::node::NodeRef;
use remora_testing::Random;
use std::cell::RefCell;
use std::rc::Rc;

/// Every store so far, in order.
#[derive(Clone, Default)]
pub struct Recorder(pub Rc<RefCell<Vec<(usize, u64)>>>);

impl Journal for Recorder {
    const ACTIVE: bool = true;
    fn stored(&mut self, index: usize, value: u64) {
        self.0.borrow_mut().push((index, value));
    }
    fn fenced(&mut self) {}
}

/// The memory as it was when some of the stores had happened.
pub struct Replay<'r> {
    pub words: Vec<u64>,
    pub stores: &'r [(usize, u64)],
    pub time: usize,
    /// After one in this many words, up to three stores happen.
    pub calm: u64,
}

impl Replay<'_> {
    /// So many stores happen.
    pub fn go_on(&mut self, steps: usize) {
        for _ in 0..steps {
            let Some(&(index, value)) = self.stores.get(self.time) else { return };
            self.words[index] = value;
            self.time += 1;
        }
    }

    /// Reads a node; stores happen meanwhile.
    pub fn read(&mut self, at: NodeRef, bytes: usize, random: &mut Random) -> Vec<u8> {
        let count = bytes / 8;
        let mut taken = vec![0u64; count];
        // Ascending, descending, or from somewhere in the middle.
        let (from, step) = match random.below(3) {
            0 => (0, 1),
            1 => (count - 1, count - 1),
            _ => (random.below(count as u64) as usize, 1),
        };
        for turn in 0..count {
            let word = (from + turn * step) % count;
            taken[word] = self.words[at.offset() / 8 + word];
            if random.below(self.calm) == 0 {
                let steps = random.below(4);
                self.go_on(steps as usize);
            }
        }
        taken.iter().flat_map(|word| word.to_le_bytes()).collect()
    }
}
