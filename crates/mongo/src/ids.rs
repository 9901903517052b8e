//! `_id`s that the server makes.

use bson::oid::ObjectId;
use std::sync::atomic::{AtomicU32, Ordering};

/// Makes ObjectIds: seconds, five random bytes of the process, and a number that grows.
pub struct IdMaker {
    random: [u8; 5],
    next: AtomicU32,
}

impl IdMaker {
    /// From these random bytes.
    pub fn new(random: &[u8; 32]) -> Self {
        let &[a, b, c, d, e, f, g, h, ..] = random;
        let next = u32::from_be_bytes([0, f, g, h]);
        Self { random: [a, b, c, d, e], next: AtomicU32::new(next) }
    }

    /// The next one, at this time.
    pub fn make(&self, now_ms: u64) -> ObjectId {
        let number = self.next.fetch_add(1, Ordering::Relaxed).to_be_bytes();
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&((now_ms / 1000) as u32).to_be_bytes());
        bytes[4..9].copy_from_slice(&self.random);
        bytes[9..].copy_from_slice(&number[1..]);
        ObjectId::from_bytes(bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_differ_and_sort_by_time() {
        let ids = IdMaker::new(&[255; 32]);
        let all: Vec<ObjectId> = (0..1000).map(|at| ids.make(1_000_000 + at * 1000)).collect();
        assert!(all.is_sorted() && all.windows(2).all(|two| two[0] != two[1]));
        let two = [ids.make(7000), ids.make(7999)];
        assert_eq!((two[0] != two[1], two[0].bytes()[..4].to_vec()), (true, vec![0, 0, 0, 7]));
    }
}
