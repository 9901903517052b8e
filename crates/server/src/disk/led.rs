//! What the data directory says of the last epoch that this server has led in its cluster.

use remora_cluster::led_epoch::LedEpoch;
use remora_storage::{Directory, LedEpochFile};
use std::sync::{Mutex, PoisonError};

/// See the module's text.
pub struct LedOnDisk {
    volume: Directory,
    said: Mutex<Option<LedEpoch>>,
}

impl LedOnDisk {
    /// What it says at the start of a process: of an epoch that a process before this one has led. One that
    /// is damaged says nothing.
    pub fn read(volume: Directory) -> Self {
        let said = LedEpochFile::read(&volume).unwrap_or_else(|error| {
            let directory = volume.path().display();
            tracing::warn!(
                "{directory}: it is not known whether this server has led last: {error}"
            );
            None
        });
        let said = said.map(|of| {
            let LedEpochFile { incarnation, epoch, is_durable } = of;
            LedEpoch { incarnation, epoch, is_durable }
        });
        Self { volume, said: Mutex::new(said) }
    }

    /// What it says.
    pub fn said(&self) -> Option<LedEpoch> {
        *self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes this. It is on the disk when this returns.
    ///
    /// # Errors
    /// The disk refuses: why.
    pub fn say(&self, led: LedEpoch) -> Result<(), String> {
        let LedEpoch { incarnation, epoch, is_durable } = led;
        let file = LedEpochFile { incarnation, epoch, is_durable };
        file.write(&self.volume).map_err(|error| error.to_string())?;
        *self.said.lock().unwrap_or_else(PoisonError::into_inner) = Some(led);
        Ok(())
    }
}
