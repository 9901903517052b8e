//! Bytes that were read from a connection and are not executed.

/// A buffer of so many bytes is given back once less than one in [`SPARSE`] of them is left.
const KEEP_BYTES: usize = 256 << 10;
const SPARSE: usize = 8;

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

    /// Memory that the buffer takes.
    pub const fn capacity(&self) -> usize {
        self.bytes.capacity()
    }

    /// Appends bytes, of a request of `need` bytes if that is known: the buffer grows no further for it.
    /// Behind a large request fewer bytes are moved than one turn reads.
    pub fn add(&mut self, fresh: &[u8], need: usize) {
        if fresh.is_empty() {
            return;
        }
        self.bytes.drain(..std::mem::take(&mut self.taken));
        let wanted = self.bytes.len() + fresh.len();
        if wanted > self.bytes.capacity() {
            let room = (2 * self.bytes.capacity()).clamp(wanted, need.max(wanted));
            self.bytes.reserve_exact(room - self.bytes.len());
        }
        self.bytes.extend_from_slice(fresh);
    }

    /// Marks this many more bytes as executed. Frees the buffer with the last one, and a large one of which
    /// little is left.
    pub fn take(&mut self, bytes: usize) {
        self.taken += bytes;
        if self.is_empty() {
            *self = Self::default();
        } else if self.capacity() >= KEEP_BYTES && self.len() < self.capacity() / SPARSE {
            *self = Self { bytes: self.rest().to_vec(), taken: 0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_is_not_moved_before_more_is_added() {
        let mut input = Input::default();
        input.add(&[7; 1_000], 1);
        let at = input.rest().as_ptr().addr();
        for taken in [100, 200, 300] {
            input.take(100);
            input.add(&[], 1);
            assert_eq!((input.len(), input.rest().as_ptr().addr()), (1_000 - taken, at + taken));
        }
        input.add(&[8; 10], 1);
        let expected = [&[7; 5][..], &[8; 10]].concat();
        assert_eq!((input.len(), &input.rest()[695..]), (710, &expected[..]));
        input.take(710);
        assert!(input.is_empty() && input.bytes.capacity() == 0, "the buffer is given back");
    }

    #[test]
    fn a_large_buffer_is_as_large_as_its_request_and_goes_with_it() {
        const NEED: usize = 5 << 20;
        let mut input = Input::default();
        while input.len() < NEED {
            input.add(&[7; 50_000], NEED);
            assert!(input.capacity() <= NEED.max(input.len()));
        }
        input.add(&[8; 3], 1);
        input.take(NEED);
        assert!(input.capacity() < KEEP_BYTES && input.rest().ends_with(&[8; 3]));
    }
}
