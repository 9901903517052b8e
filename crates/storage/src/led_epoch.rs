//! Which epoch of a cluster the server of a data directory has led last: a short text file.
//!
//! ```text
//! remora led epoch
//! layout 1
//! incarnation 54a1f2d0c96b7733
//! epoch 12
//! durable yes
//! check 7bd1c2a8e0f96624
//! ```
//! A backup does not have it: what a backup holds is older than what was acknowledged.

use crate::error::StorageError;
use crate::sealed::{self, Sealed};
use crate::volume::Volume;

const NAME: &str = "led-epoch";
const TITLE: &str = "remora led epoch";
/// Longest file that is read, bytes.
const MOST_BYTES: usize = 4096;

/// See the module's text.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LedEpochFile {
    /// The incarnation of the process that led.
    pub incarnation: u64,
    /// The epoch, as the coordinator of the cluster counts.
    pub epoch: u64,
    /// The directory has each change that was acknowledged in that epoch, or before it.
    pub is_durable: bool,
}

impl LedEpochFile {
    /// What a directory says; `None` if it says nothing.
    ///
    /// # Errors
    /// The file is damaged, or cannot be read.
    pub fn read<V: Volume>(volume: &V) -> Result<Option<Self>, StorageError> {
        let names = volume.names("").map_err(|source| StorageError::io("list", NAME, source))?;
        if !names.iter().any(|name| name == NAME) {
            return Ok(None);
        }
        let text = sealed::read(volume, NAME, MOST_BYTES)?;
        let sealed = Sealed::open(NAME, TITLE, &text)?;
        let is_durable = match sealed.value("durable")? {
            "yes" => true,
            "no" => false,
            other => return Err(sealed.wrong(&format!("durable {other} is neither yes nor no"))),
        };
        let incarnation = sealed.number("incarnation", 16)?;
        Ok(Some(Self { incarnation, epoch: sealed.number("epoch", 10)?, is_durable }))
    }

    /// Writes it, in place of what the directory said before. It is on the disk when this returns.
    ///
    /// # Errors
    /// The disk refuses, or the directory is not at its path any more.
    pub fn write<V: Volume>(&self, volume: &V) -> Result<(), StorageError> {
        let Self { incarnation, epoch, is_durable } = self;
        let durable = if *is_durable { "yes" } else { "no" };
        let lines = format!("incarnation {incarnation:016x}\nepoch {epoch}\ndurable {durable}\n");
        sealed::write(volume, NAME, &sealed::seal(TITLE, &lines))?;
        volume.is_same().map_err(|source| StorageError::io("write", NAME, source))
    }
}
