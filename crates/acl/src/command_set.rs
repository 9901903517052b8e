//! A set of commands: a bit for each.

use crate::commands::{CommandId, Commands};

/// Bits of a word.
const BITS: usize = u64::BITS as usize;

/// The commands that a selector allows.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(crate) struct CommandSet {
    words: Vec<u64>,
}

impl CommandSet {
    pub(crate) fn fill(&mut self, commands: &impl Commands) {
        commands.all().for_each(|id| self.set(id, true));
    }

    pub(crate) fn set(&mut self, id: CommandId, allowed: bool) {
        let (word, bit) = (usize::from(id.0) / BITS, usize::from(id.0) % BITS);
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        self.words[word] = self.words[word] & !(1 << bit) | u64::from(allowed) << bit;
    }

    #[inline]
    pub(crate) fn contains(&self, id: CommandId) -> bool {
        let word = self.words.get(usize::from(id.0) / BITS).copied().unwrap_or(0);
        word >> (usize::from(id.0) % BITS) & 1 == 1
    }

    pub(crate) fn has_some(&self) -> bool {
        self.words.iter().any(|&word| word != 0)
    }

    pub(crate) fn has_all(&self, commands: &impl Commands) -> bool {
        commands.all().all(|id| self.contains(id))
    }
}
