//! Bytes that were read from a connection and are not executed.

/// Bytes in the order in which they came.
#[derive(Default)]
pub struct Input {
    bytes: Vec<u8>,
    /// This many bytes at the start are executed.
    taken: usize,
}

impl Input {
    /// Bytes that are not executed.
    pub const fn len(&self) -> usize {
        self.bytes.len() - self.taken
    }

    /// Whether there are none.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes that are not executed.
    pub fn rest(&self) -> &[u8] {
        &self.bytes[self.taken..]
    }

    /// Appends bytes. Only this function moves bytes that are not executed; behind a large request
    /// they are fewer than one turn reads.
    pub fn add(&mut self, fresh: &[u8]) {
        if fresh.is_empty() {
            return;
        }
        self.bytes.drain(..std::mem::take(&mut self.taken));
        self.bytes.extend_from_slice(fresh);
    }

    /// Marks this many more bytes as executed. Frees the buffer with the last one.
    pub fn take(&mut self, bytes: usize) {
        self.taken += bytes;
        if self.is_empty() {
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_not_moved_before_more_is_added() {
        let mut input = Input::default();
        input.add(&[7; 1_000]);
        let at = input.rest().as_ptr().addr();
        for taken in [100, 200, 300] {
            input.take(100);
            input.add(&[]);
            assert_eq!((input.len(), input.rest().as_ptr().addr()), (1_000 - taken, at + taken));
        }
        input.add(&[8; 10]);
        let expected = [&[7; 5][..], &[8; 10]].concat();
        assert_eq!((input.len(), &input.rest()[695..]), (710, &expected[..]));
        input.take(710);
        assert!(input.is_empty() && input.bytes.capacity() == 0, "the buffer is given back");
    }
}
