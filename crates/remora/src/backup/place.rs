//! A directory that a command fills.

use anyhow::Context;
use remora_command_line::usage;
use remora_storage::Directory;
use std::path::{Path, PathBuf};

/// An empty directory, or one that is not there yet.
pub struct EmptyDirectory {
    path: PathBuf,
    was_there: bool,
}

impl EmptyDirectory {
    /// The directory that this flag names.
    pub fn empty(path: &Path, flag: &str) -> anyhow::Result<Self> {
        let named = path.display();
        let was_there = path.exists();
        if was_there {
            let mut entries = std::fs::read_dir(path)
                .map_err(|error| usage(format!("{flag}: {named} cannot be read: {error}")))?;
            let other = entries
                .find(|entry| entry.as_ref().is_ok_and(|entry| entry.file_name() != "lost+found"));
            if let Some(entry) = other {
                let name = entry?.file_name().display().to_string();
                return Err(usage(format!(
                    "{flag}: {named} is not empty, it holds {name}: name an empty directory, or one that is not there yet"
                )));
            }
        }
        Ok(Self { path: path.to_owned(), was_there })
    }

    /// Makes the directory, and has it filled. After an error it is as before.
    pub fn fill<T>(self, fill: impl FnOnce(&Directory) -> anyhow::Result<T>) -> anyhow::Result<T> {
        let directory = Directory::at(&self.path)?;
        let filled = fill(&directory);
        if filled.is_err() {
            self.empty_again().context("removing what there is of it")?;
        }
        filled
    }

    fn empty_again(&self) -> std::io::Result<()> {
        if !self.was_there {
            return std::fs::remove_dir_all(&self.path);
        }
        for entry in std::fs::read_dir(&self.path)? {
            let entry = entry?;
            match entry.file_type()?.is_dir() {
                true if entry.file_name() == "lost+found" => {}
                true => std::fs::remove_dir_all(entry.path())?,
                false => std::fs::remove_file(entry.path())?,
            }
        }
        Ok(())
    }
}
