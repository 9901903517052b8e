//! Snapshots of a simulated server: the shards' turns and the streams are production code, when they
//! have them is the world's.

use super::swarm::DiskSwarm;
use crate::probes::{Probe, Probes};
use remora_engine::{Now, Shard, SnapshotTurn};
use remora_fabric::sim::{SimJournal, SimWorld};
use remora_server::disk::{Content, SnapshotStreams};
use remora_storage::Identity;
use remora_storage::sim::SimVolume;

/// The snapshots of one incarnation.
pub struct Snapshots {
    volume: SimVolume,
    of: (Identity, u64),
    number: u64,
    /// When something is to be done next, virtual ns.
    due_ns: u64,
    under_way: Option<UnderWay>,
    /// By shard, what the last one covers, until it is asked for.
    covered: Option<Vec<u64>>,
}

struct UnderWay {
    streams: SnapshotStreams<SimVolume>,
    has_ended: Vec<bool>,
}

impl Snapshots {
    /// Behind what was found.
    pub fn behind(content: &Content<SimVolume>, world: &SimWorld, swarm: &DiskSwarm) -> Self {
        let mut snapshots = Self {
            volume: content.volume.clone(),
            of: (content.identity, content.epoch()),
            number: content.next_snapshot(),
            due_ns: 0,
            under_way: None,
            covered: None,
        };
        snapshots.pause(world, swarm);
        snapshots
    }

    /// Whether one is under way.
    pub fn is_under_way(&self) -> bool {
        self.under_way.is_some()
    }

    /// When something is to be done next, virtual ns.
    pub fn due_ns(&self) -> u64 {
        self.due_ns
    }

    /// What the last one covers, once.
    pub fn take_covered(&mut self) -> Option<Vec<u64>> {
        self.covered.take()
    }

    fn pause(&mut self, world: &SimWorld, swarm: &DiskSwarm) {
        self.due_ns = match swarm.snapshot_every_ns {
            0 => u64::MAX,
            most => world.now_ns() + world.draw(|random| random.within(&(1..=most))),
        };
    }

    /// Begins one, or goes on with it, if it is time. `synced` is the last sequence of a shard that
    /// is on the disk.
    pub fn turn(
        &mut self,
        shards: &mut [Shard<SimJournal>],
        (is_free, now, unix_ms): (&[bool], Now, u64),
        synced: impl Fn(usize) -> u64,
        (world, swarm, probes): (&SimWorld, &DiskSwarm, &mut Probes),
    ) -> bool {
        if self.due_ns > world.now_ns() {
            return false;
        }
        let turned = match self.under_way.take() {
            None => self.begin(shards),
            Some(under_way) => {
                let of_turn = (is_free, now, unix_ms);
                self.go_on(under_way, shards, of_turn, (world, swarm))
            }
        };
        match turned {
            Ok(Some(under_way)) if under_way.streams.may_count(synced) => {
                match under_way.streams.finish() {
                    Ok((covered, _)) => {
                        self.covered = Some(covered);
                        probes.add(Probe::SnapshotWritten, 1);
                    }
                    Err(_) => probes.add(Probe::SnapshotGivenUp, 1),
                }
                self.end(world, swarm);
            }
            Ok(Some(under_way)) => {
                self.under_way = Some(under_way);
                let pace = 1_000..=swarm.snapshot_pace_ns;
                self.due_ns = world.now_ns() + world.draw(|random| random.within(&pace));
            }
            Ok(None) | Err(_) => {
                probes.add(Probe::SnapshotGivenUp, 1);
                self.end(world, swarm);
            }
        }
        true
    }

    fn begin(&mut self, shards: &mut [Shard<SimJournal>]) -> std::io::Result<Option<UnderWay>> {
        let (identity, epoch) = self.of;
        let of = (self.number, epoch, shards.len());
        let streams = SnapshotStreams::begin(self.volume.clone(), identity, of)?;
        let begins = shards.iter_mut().map(|shard| shard.begin_snapshot().is_ok());
        let begun = begins.take_while(|begins| *begins).count();
        if begun < shards.len() {
            // The next one is being copied to a replica.
            shards[..begun].iter_mut().for_each(Shard::abandon_snapshot);
            streams.give_up();
            return Ok(None);
        }
        Ok(Some(UnderWay { streams, has_ended: vec![false; shards.len()] }))
    }

    /// A turn of some shards. `None`: it is given up.
    fn go_on(
        &self,
        mut under_way: UnderWay,
        shards: &mut [Shard<SimJournal>],
        (is_free, now, unix_ms): (&[bool], Now, u64),
        (world, swarm): (&SimWorld, &DiskSwarm),
    ) -> std::io::Result<Option<UnderWay>> {
        for number in 0..shards.len() {
            let shard = &mut shards[number];
            let is_slow = world.draw(|random| random.below(3)) == 0;
            if under_way.has_ended[number] || !is_free[number] || is_slow {
                continue;
            }
            let turn = shard.short_snapshot_turn(swarm.snapshot_keys, now);
            let mut stream = Vec::new();
            shard.take_snapshot(&mut stream);
            let written = under_way.streams.write(number, &stream).and_then(|()| match turn {
                SnapshotTurn::Ended { sequence } => {
                    under_way.has_ended[number] = true;
                    let end = (sequence, shard.used_bytes(), unix_ms);
                    under_way.streams.end_shard(number, end)
                }
                _ => Ok(()),
            });
            if written.is_err() || turn == SnapshotTurn::GivenUp {
                under_way.give_up(shards);
                return written.map(|()| None);
            }
        }
        Ok(Some(under_way))
    }

    fn end(&mut self, world: &SimWorld, swarm: &DiskSwarm) {
        self.number += 1;
        self.pause(world, swarm);
    }
}

impl UnderWay {
    /// Leaves the shards that have not come to the end. The others may be copied to a replica by now.
    fn give_up(self, shards: &mut [Shard<SimJournal>]) {
        let unended = shards.iter_mut().zip(&self.has_ended).filter(|(_, ended)| !**ended);
        unended.for_each(|(shard, _)| shard.abandon_snapshot());
        self.streams.give_up();
    }
}
