//! A disk, as this crate uses it: flat names in one directory and in its subdirectories.

use std::io;

/// A directory on a disk.
///
/// What was appended to a file survives a power cut once [`VolumeFile::sync`] has returned; a name
/// that was made, renamed or removed does once [`Volume::sync_names`] has.
pub trait Volume: Clone + Send + 'static {
    /// An open file.
    type File: VolumeFile;

    /// The names in a subdirectory, or in the directory itself (`""`), in no order.
    fn names(&self, of: &str) -> io::Result<Vec<String>>;

    /// Opens a file to read and to cut it.
    fn open(&self, name: &str) -> io::Result<Self::File>;

    /// Makes an empty file, in place of another one of this name.
    fn create(&self, name: &str) -> io::Result<Self::File>;

    /// Makes a subdirectory, if there is none of this name.
    fn make_subdirectory(&self, name: &str) -> io::Result<()>;

    /// Gives a file or subdirectory another name.
    fn rename(&self, from: &str, to: &str) -> io::Result<()>;

    /// Removes a file, or a subdirectory with what is in it.
    fn remove(&self, name: &str) -> io::Result<()>;

    /// Syncs the names in a subdirectory, or in the directory itself (`""`).
    fn sync_names(&self, of: &str) -> io::Result<()>;

    /// Whether the directory is still the one that its name means. A directory can be moved, removed
    /// or covered by a mount while its files are open: they take writes and syncs as before, and no
    /// later process finds them.
    ///
    /// # Errors
    /// It is not, with a text that says where it should be.
    fn is_same(&self) -> io::Result<()>;

    /// Whether this name is still the one of this open file.
    ///
    /// # Errors
    /// It is not.
    fn is_named(&self, name: &str, file: &Self::File) -> io::Result<()>;
}

/// An open file. Clones are of the same file.
pub trait VolumeFile: Clone + Send + 'static {
    /// Appends all bytes. After an error some of them may be there.
    fn append(&self, slices: &[&[u8]]) -> io::Result<()>;

    /// Writes the bytes that lie at an offset once more, so that the next sync brings them to the
    /// disk, whatever became of earlier syncs.
    fn write_again(&self, offset: u64, bytes: &[u8]) -> io::Result<()>;

    /// Returns once all that was appended before is on the disk. After an error it is not known what is
    /// there, and another call proves nothing.
    fn sync(&self) -> io::Result<()>;

    /// Bytes of the file.
    fn bytes(&self) -> io::Result<u64>;

    /// Fills `buffer` from an offset on; returns how many bytes there were.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<usize>;

    /// Cuts the file.
    fn cut(&self, bytes: u64) -> io::Result<()>;
}

/// All of a file, from an offset on, at most this many bytes.
pub(crate) fn read_from(file: &impl VolumeFile, offset: u64, most: usize) -> io::Result<Vec<u8>> {
    let bytes = file.bytes()?.saturating_sub(offset).min(most as u64) as usize;
    let mut buffer = vec![0; bytes];
    let mut read = 0;
    // Bounded: each turn reads something.
    while read < bytes {
        match file.read_at(offset + read as u64, &mut buffer[read..])? {
            0 => break,
            some => read += some,
        }
    }
    buffer.truncate(read);
    Ok(buffer)
}
