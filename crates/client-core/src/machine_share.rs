//! How many clients of this machine currently walk trees by READs (C24). They share a table of
//! pointers (`layout::pointer_table`): in the last word of one of its first lines each client
//! writes the time of its last walk.
//!
//! ```text
//!  word 7 of line 0..64   when, ms of CLOCK_BOOTTIME 48 bits | the client's number 16 bits
//! ```
//! Invariants: no client waits for another process, and nothing has to be undone when one dies. A
//! word older than [`ACTIVE_MS`] has no meaning, and another client may take it; a client whose
//! word was taken takes another one. Any process of this user may write any word: at worst this
//! client walks with one thread at a time.

use crate::sync::Words;
use remora_layout::limits::{CACHE_LINE_BYTES, MACHINE_CLIENTS};
use remora_layout::pointer_table::{CLIENT_WORD, LINE_WORDS};
use std::fmt;

/// How long a client counts as walking after a walk: longer than the pause between two checks, and
/// in most cases longer than a thread is not scheduled.
const ACTIVE_MS: u64 = 100;
/// How often a client announces that it walks, and counts the others.
const LOOK_MS: u64 = 10;
const NUMBER_BITS: u32 = 16;

/// One client's part. See the module's text.
pub struct MachineShare {
    words: Words,
    /// Distinguishes clients that would take the same word.
    number: u64,
    /// The line whose word belongs to this client, while no other takes it.
    line: usize,
    /// Lines with such words: a table may be smaller than so many clients need.
    lines: usize,
    looked_ms: u64,
    clients: usize,
}

impl fmt::Debug for MachineShare {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MachineShare").field("clients", &self.clients).finish_non_exhaustive()
    }
}

impl MachineShare {
    /// Of the client with this number at its server. The words are a table of whole lines,
    /// at least one.
    pub fn new(words: Words, number: u64) -> Self {
        let number = number & ((1 << NUMBER_BITS) - 1);
        let lines = MACHINE_CLIENTS.min(words.bytes() / CACHE_LINE_BYTES);
        let line = number as usize % lines;
        Self { words, number, line, lines, looked_ms: 0, clients: 1 }
    }

    /// How many clients walk; includes this one, which is about to walk.
    pub fn clients(&mut self, now_ns: u64) -> usize {
        let now_ms = now_ns / 1_000_000;
        if self.looked_ms == 0 || now_ms >= self.looked_ms + LOOK_MS {
            self.looked_ms = now_ms;
            self.look(now_ms);
        }
        self.clients
    }

    fn word(line: usize) -> usize {
        line * LINE_WORDS + CLIENT_WORD
    }

    fn look(&mut self, now_ms: u64) {
        let (mut others, mut free, mut is_own) = (0, None, false);
        for step in 0..self.lines {
            let line = (self.line + step) % self.lines;
            let told = self.words.load(Self::word(line));
            let (told_ms, number) = (told >> NUMBER_BITS, told & ((1 << NUMBER_BITS) - 1));
            let is_active = told_ms <= now_ms && now_ms - told_ms <= ACTIVE_MS;
            if step == 0 && number == self.number {
                is_own = true;
            } else if is_active {
                others += 1;
            } else {
                free = free.or(Some(line));
            }
        }
        if !is_own && let Some(line) = free {
            (self.line, is_own) = (line, true);
        }
        if is_own {
            self.words.store(Self::word(self.line), now_ms << NUMBER_BITS | self.number);
        }
        self.clients = others + 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_arena::Mapping;

    const MS: u64 = 1_000_000;

    fn words() -> Words {
        Words::new(Mapping::heap(MACHINE_CLIENTS * LINE_WORDS * 8))
    }

    #[test]
    fn clients_count_each_other_while_they_walk() {
        let words = words();
        let mut clients: Vec<_> =
            (0..5).map(|number| MachineShare::new(words.clone(), number)).collect();
        for at in 0..20 {
            let now = (1_000 + LOOK_MS * at) * MS;
            let counts: Vec<usize> = clients.iter_mut().map(|client| client.clients(now)).collect();
            assert!(at == 0 || counts == [5; 5], "{at}: {counts:?}");
        }
        // All but one have stopped, or died in the middle of it.
        let now = 1_000 + LOOK_MS * 20 + ACTIVE_MS;
        assert_eq!(clients[3].clients((now + 1) * MS), 1);
        assert_eq!(clients[0].clients((now + 2) * MS), 2, "it walks again");
    }

    #[test]
    fn clients_that_would_take_one_word_take_two() {
        let words = words();
        let number = MACHINE_CLIENTS as u64 + 3;
        let mut clients = [3, number].map(|number| MachineShare::new(words.clone(), number));
        for at in 1..10 {
            let now = (1_000 + LOOK_MS * at) * MS;
            let counts = clients.each_mut().map(|client| client.clients(now));
            assert!(at == 1 || counts == [2, 2], "{at}: {counts:?}");
        }
    }

    #[test]
    fn a_small_table_has_words_for_few() {
        let words = Words::new(Mapping::heap(8 * CACHE_LINE_BYTES));
        let mut clients: Vec<_> =
            (0..20).map(|number| MachineShare::new(words.clone(), number)).collect();
        let counts = |clients: &mut Vec<MachineShare>, ms: u64| {
            clients.iter_mut().map(|client| client.clients(ms * MS)).max()
        };
        assert_eq!(counts(&mut clients, 1_000), Some(9), "eight that told, and the one that looks");
        assert_eq!(counts(&mut clients, 1_010), Some(9));
    }

    #[test]
    fn words_of_strangers_do_no_harm() {
        let words = words();
        for line in 0..MACHINE_CLIENTS {
            words.store(MachineShare::word(line), u64::MAX >> line);
        }
        let mut client = MachineShare::new(words.clone(), 9);
        assert!((1..=MACHINE_CLIENTS).contains(&client.clients(5_000 * MS)));
        for line in 0..MACHINE_CLIENTS {
            words.store(MachineShare::word(line), 5_009 << NUMBER_BITS | 77);
        }
        assert_eq!(client.clients(5_010 * MS), MACHINE_CLIENTS + 1, "none is free");
        assert_eq!(client.clients((5_010 + ACTIVE_MS) * MS), 1);
    }
}
