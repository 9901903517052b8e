//! Policies to compare the engine's policy with: LRU, SIEVE, the best possible.

use super::replay::Cache;
use std::collections::{BinaryHeap, VecDeque};

const NOBODY: u32 = u32::MAX;

/// Least recently used, as far as uses are seen.
pub struct Lru {
    capacity: usize,
    held: usize,
    is_held: Vec<bool>,
    /// Uses in order; only the latest of each key counts.
    queue: VecDeque<(u32, u32)>,
    latest: Vec<u32>,
}

impl Lru {
    /// Room for `capacity` of `keys` keys.
    pub fn new(capacity: usize, keys: usize) -> Self {
        let (is_held, latest) = (vec![false; keys], vec![0; keys]);
        Self { capacity, held: 0, is_held, queue: VecDeque::new(), latest }
    }
}

impl Cache for Lru {
    fn has(&self, key: u32) -> bool {
        self.is_held[key as usize]
    }

    fn touched(&mut self, key: u32) {
        self.latest[key as usize] += 1;
        self.queue.push_back((key, self.latest[key as usize]));
    }

    fn insert(&mut self, key: u32, _: &dyn Fn(u32) -> bool) {
        while self.held == self.capacity {
            let (out, use_number) = self.queue.pop_front().expect("held keys were used");
            if self.is_held[out as usize] && self.latest[out as usize] == use_number {
                self.is_held[out as usize] = false;
                self.held -= 1;
            }
        }
        self.is_held[key as usize] = true;
        self.held += 1;
        self.touched(key);
    }
}

#[derive(Clone, Copy)]
struct Node {
    newer: u32,
    older: u32,
    is_held: bool,
    was_visited: bool,
}

/// SIEVE: one list by age, and a hand that moves from old to new.
pub struct Sieve {
    capacity: usize,
    held: usize,
    nodes: Vec<Node>,
    newest: u32,
    oldest: u32,
    hand: u32,
}

impl Sieve {
    /// Room for `capacity` of `keys` keys.
    pub fn new(capacity: usize, keys: usize) -> Self {
        let node = Node { newer: NOBODY, older: NOBODY, is_held: false, was_visited: false };
        let (newest, oldest, hand) = (NOBODY, NOBODY, NOBODY);
        Self { capacity, held: 0, nodes: vec![node; keys], newest, oldest, hand }
    }

    fn evict(&mut self) {
        // Ends: each turn takes a mark away, or finds a key without one.
        loop {
            if self.hand == NOBODY {
                self.hand = self.oldest;
            }
            let node = &mut self.nodes[self.hand as usize];
            if !node.was_visited {
                break;
            }
            node.was_visited = false;
            self.hand = node.newer;
        }
        let out = self.hand as usize;
        let Node { newer, older, .. } = self.nodes[out];
        match older {
            NOBODY => self.oldest = newer,
            _ => self.nodes[older as usize].newer = newer,
        }
        match newer {
            NOBODY => self.newest = older,
            _ => self.nodes[newer as usize].older = older,
        }
        self.nodes[out].is_held = false;
        self.hand = newer;
        self.held -= 1;
    }
}

impl Cache for Sieve {
    fn has(&self, key: u32) -> bool {
        self.nodes[key as usize].is_held
    }

    fn touched(&mut self, key: u32) {
        self.nodes[key as usize].was_visited = true;
    }

    fn insert(&mut self, key: u32, _: &dyn Fn(u32) -> bool) {
        if self.held == self.capacity {
            self.evict();
        }
        let older = self.newest;
        self.nodes[key as usize] = Node { newer: NOBODY, older, is_held: true, was_visited: false };
        match older {
            NOBODY => self.oldest = key,
            _ => self.nodes[older as usize].newer = key,
        }
        self.newest = key;
        self.held += 1;
    }
}

/// Hits of the best possible policy that, as all of these, takes in every key
/// that it is asked for: the key goes that is used again last (MIN).
pub fn optimal_hits(requests: &[u32], keys: usize, capacity: usize) -> u64 {
    let mut next_use = vec![NOBODY; requests.len()];
    let mut seen = vec![NOBODY; keys];
    for (at, &key) in requests.iter().enumerate().rev() {
        next_use[at] = seen[key as usize];
        seen[key as usize] = at as u32;
    }
    // The next use of each key held; the heap keeps former ones too.
    let mut current = vec![0; keys];
    let mut is_held = vec![false; keys];
    let mut heap: BinaryHeap<(u32, u32)> = BinaryHeap::new();
    let (mut held, mut hits) = (0, 0);
    for (at, &key) in requests.iter().enumerate() {
        if is_held[key as usize] {
            hits += 1;
        } else {
            while held == capacity {
                let (next, out) = heap.pop().expect("held keys stand in the heap");
                if is_held[out as usize] && current[out as usize] == next {
                    is_held[out as usize] = false;
                    held -= 1;
                }
            }
            is_held[key as usize] = true;
            held += 1;
        }
        current[key as usize] = next_use[at];
        heap.push((next_use[at], key));
    }
    hits
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs a sequence where every read is seen; gives the misses.
    fn misses(cache: &mut dyn Cache, requests: &str) -> String {
        let mut missed = String::new();
        for name in requests.chars() {
            let key = name as u32 - 'a' as u32;
            if cache.has(key) {
                cache.touched(key);
            } else {
                missed.push(name);
                cache.insert(key, &|_| false);
            }
        }
        missed
    }

    #[test]
    fn lru_by_hand() {
        // a b c, a again: b is the oldest when d comes, then c when b comes.
        assert_eq!(misses(&mut Lru::new(3, 26), "abcadbac"), "abcdbc");
    }

    #[test]
    fn sieve_by_hand() {
        // d: the hand takes a's mark and removes b. e: it goes on at c.
        // b: on at d. a is still there, and marked anew.
        assert_eq!(misses(&mut Sieve::new(3, 26), "abcadeabe"), "abcdeb");
    }

    #[test]
    fn the_best_possible_by_hand() {
        // When d comes, c among a b c is used again last; d itself is never used again.
        let requests: Vec<u32> = "abcdabac".bytes().map(|name| (name - b'a') as u32).collect();
        assert_eq!(optimal_hits(&requests, 4, 3), 3);
    }
}
