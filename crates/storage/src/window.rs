//! A long file, read from its beginning to its end without holding all of it.

use crate::volume::VolumeFile;
use std::io;

/// Bytes that are read together.
const WINDOW_BYTES: usize = 1 << 20;

/// A part of a file that moves forward.
pub(crate) struct Window<F> {
    file: F,
    /// Bytes of the file that count.
    end: u64,
    /// Where the held bytes begin.
    from: u64,
    held: Vec<u8>,
}

impl<F: VolumeFile> Window<F> {
    /// Over the first `end` bytes of a file.
    pub fn new(file: F, end: u64) -> Self {
        Self { file, end, from: 0, held: Vec::new() }
    }

    /// So many bytes from an offset on, or as many as there are.
    pub fn at(&mut self, offset: u64, bytes: usize) -> io::Result<&[u8]> {
        let bytes = (bytes as u64).min(self.end.saturating_sub(offset)) as usize;
        let held = self.from..=self.from + self.held.len() as u64;
        if !held.contains(&offset) || !held.contains(&(offset + bytes as u64)) {
            self.move_to(offset, bytes.max(WINDOW_BYTES))?;
        }
        let rest = &self.held[(offset - self.from) as usize..];
        Ok(&rest[..bytes.min(rest.len())])
    }

    fn move_to(&mut self, offset: u64, most: usize) -> io::Result<()> {
        let bytes = (most as u64).min(self.end - offset) as usize;
        self.from = offset;
        self.held.resize(bytes, 0);
        let mut read = 0;
        // Bounded: each turn reads something.
        while read < bytes {
            match self.file.read_at(offset + read as u64, &mut self.held[read..])? {
                0 => break,
                some => read += some,
            }
        }
        self.held.truncate(read);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::SimVolume;
    use crate::volume::Volume;

    #[test]
    fn it_gives_any_bytes_up_to_its_end() {
        let disk = SimVolume::default();
        let file = disk.create("file").unwrap();
        let bytes: Vec<u8> = (0..3 * WINDOW_BYTES).map(|at| ((at * at) >> 7) as u8).collect();
        file.append(&[&bytes]).unwrap();
        let end = bytes.len() - 5;
        let mut window = Window::new(file.clone(), end as u64);
        let most = WINDOW_BYTES + 7;
        for (offset, bytes_wanted) in [
            (0, 10),
            (10, WINDOW_BYTES),
            (WINDOW_BYTES - 3, 6),
            (100, most),
            (end - 9, 20),
            (end, 1),
        ] {
            let found = window.at(offset as u64, bytes_wanted).unwrap();
            assert_eq!(found, &bytes[offset..end.min(offset + bytes_wanted)], "{offset}");
        }
        // A file that has become shorter has fewer.
        file.cut(10).unwrap();
        assert_eq!(Window::new(file, end as u64).at(4, 20).unwrap(), &bytes[4..10]);
    }
}
