//! A script: bytes that are taken for choices. Any bytes are one; where they
//! end, all further choices are 0.

/// What is left of a script.
pub struct Script<'s> {
    rest: &'s [u8],
}

impl<'s> Script<'s> {
    /// All of it.
    pub fn new(bytes: &'s [u8]) -> Self {
        Self { rest: bytes }
    }

    /// What is left.
    pub fn rest(&self) -> &'s [u8] {
        self.rest
    }

    /// Whether no choice is left.
    pub fn is_over(&self) -> bool {
        self.rest.is_empty()
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        let Some((&byte, rest)) = self.rest.split_first() else { return 0 };
        self.rest = rest;
        byte
    }

    /// A number below `bound`, which is at most 256.
    pub fn below(&mut self, bound: usize) -> usize {
        self.byte() as usize % bound
    }

    /// Whether something is so that seldom is: once in so many times.
    pub fn one_in(&mut self, times: usize) -> bool {
        self.below(times) == times - 1
    }

    /// One of these.
    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }

    /// The next eight bytes.
    pub fn word(&mut self) -> u64 {
        u64::from_le_bytes(std::array::from_fn(|_| self.byte()))
    }

    /// Up to 255 of the next bytes.
    pub fn bytes(&mut self) -> &'s [u8] {
        let wanted = self.byte() as usize;
        let (bytes, rest) = self.rest.split_at(wanted.min(self.rest.len()));
        self.rest = rest;
        bytes
    }

    /// Two scripts: as many of the next bytes as two of them say, and the rest.
    pub fn split(mut self) -> (Self, Self) {
        let wanted = self.byte() as usize | (self.byte() as usize) << 8;
        let (first, second) = self.rest.split_at(wanted.min(self.rest.len()));
        (Self::new(first), Self::new(second))
    }
}
