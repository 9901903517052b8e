//! The data in a directory, read without a server.

use anyhow::{Context, bail};
use remora_engine::split_operation;
use remora_layout::database::Database;
use remora_log::Entry;
use remora_protocol::Command;
use remora_protocol::applied::{AppliedEntry, AppliedStep, LogPosition};
use remora_storage::{
    Directory, Found, Identity, LogNumber, Replayed, ShardSnapshot, SnapshotAt, StorageError, find,
    find_snapshot, read_snapshot, replay, snapshot_name,
};
use std::path::Path;

/// A data directory, looked through. Nothing in it is changed.
pub struct Data {
    /// Its files.
    pub volume: Directory,
    /// Which data these are.
    pub identity: Identity,
    /// The newest snapshot.
    pub snapshot: Option<SnapshotAt>,
    /// The log.
    pub found: Found,
}

/// A directory whose every byte is as it was written.
pub struct Whole {
    /// Operations of the snapshot.
    pub operations: u64,
    /// Bytes of it.
    pub snapshot_bytes: u64,
    /// Entries of the log.
    pub entries: u64,
}

/// An operation of a log or of a snapshot.
pub struct Operation<'a> {
    /// Where a replica has it from, and what that was.
    pub applied: Option<(AppliedStep, LogPosition)>,
    /// The command, and the database that it is about.
    pub command: Option<(Database, Command<'a>)>,
}

impl<'a> Operation<'a> {
    /// The operation that some bytes are; `None` if they are none of this version.
    pub fn decode(bytes: &'a [u8]) -> Option<Self> {
        let decode = |bytes| {
            Command::decode_within(bytes).map(|(database, command, _)| (database, command)).ok()
        };
        if !AppliedEntry::is(bytes) {
            return Some(Self { applied: None, command: Some(decode(bytes)?) });
        }
        let AppliedEntry { step, position, operation } = AppliedEntry::decode(bytes).ok()?;
        let command = match operation.is_empty() {
            true => None,
            false => Some(decode(operation)?),
        };
        Some(Self { applied: Some((step, position)), command })
    }
}

impl Data {
    /// Looks through a directory.
    pub fn open(directory: &Path) -> anyhow::Result<Self> {
        let volume = Directory::existing(directory)?;
        let name = directory.display().to_string();
        let Some(identity) = Identity::read(&volume, &name)? else {
            bail!("{name} is empty: it is no data directory");
        };
        let named = |error: StorageError| error.in_directory(directory);
        let snapshot = find_snapshot(&volume, &identity).map_err(named)?;
        let covered = snapshot.as_ref().map(|at| (at.epoch, at.covered()));
        let (epoch, covered) = covered.unwrap_or_default();
        let found = find(&volume, &identity, (epoch, &covered)).map_err(named)?;
        Ok(Self { volume, identity, snapshot, found })
    }

    /// Reads every byte; each operation has to be one.
    pub fn verify(&self) -> anyhow::Result<Whole> {
        let mut whole = Whole { operations: 0, snapshot_bytes: 0, entries: 0 };
        self.each_operation(|_, operation| {
            whole.operations += 1;
            whole.snapshot_bytes += operation.len() as u64;
            let is_one = Operation::decode(operation).is_some();
            is_one.then_some(()).context("it is no operation of this version")
        })?;
        self.each_entry(|_, entry| {
            let is_one = Operation::decode(entry.operation).is_some();
            is_one
                .then_some(())
                .with_context(|| format!("entry {} is no operation", entry.sequence))?;
            whole.entries += 1;
            Ok(())
        })?;
        Ok(whole)
    }

    /// The operations of the snapshot, if there is one, shard by shard.
    pub fn each_operation(
        &self,
        mut each: impl FnMut(usize, &[u8]) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        for at in self.snapshot.iter() {
            for (shard, ended) in at.shards.iter().enumerate() {
                self.each_of_shard((at.number, shard), ended, |operation| each(shard, operation))
                    .with_context(|| format!("{}/shard-{shard}", snapshot_name(at.number)))?;
            }
        }
        Ok(())
    }

    fn each_of_shard(
        &self,
        of: (u64, usize),
        ended: &ShardSnapshot,
        mut each: impl FnMut(&[u8]) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let (mut rest, mut operations): (Vec<u8>, u64) = (Vec::new(), 0);
        let read = read_snapshot(&self.volume, &self.identity, of, |piece| {
            rest.extend_from_slice(piece);
            let mut left = &rest[..];
            while let Some((operation, behind)) = split_operation(left)? {
                each(operation).with_context(|| format!("operation {operations}"))?;
                (left, operations) = (behind, operations + 1);
            }
            let taken = rest.len() - left.len();
            rest.drain(..taken);
            Ok::<(), anyhow::Error>(())
        });
        read?;
        match rest.is_empty() && operations == ended.operations {
            true => Ok(()),
            false => bail!(
                "the stream has {operations} operations, and its end says {}",
                ended.operations
            ),
        }
    }

    /// The entries of the log that count.
    pub fn each_entry(
        &self,
        mut each: impl FnMut(LogNumber, Entry<'_>) -> anyhow::Result<()>,
    ) -> anyhow::Result<()> {
        let Self { volume, identity, found, .. } = self;
        let read = replay(
            volume,
            identity,
            found,
            |_| true,
            |replayed| match replayed {
                Replayed::Ahead(_) => Ok(()),
                Replayed::Entry(number, _, entry) => each(number, entry),
            },
        );
        read.context("the directory is damaged")
    }
}
