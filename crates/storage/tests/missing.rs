//! Files that are missing are named, whatever they are, and nothing is taken for a directory that
//! has lost some.

use crate::support::{IDENTITY, Server, look};
use remora_storage::sim::{DiskFault, SimVolume};
use remora_storage::{
    Found, Promise, ShardSnapshot, SnapshotWriter, StorageError, Volume, find, find_snapshot,
    remove_leftovers,
};
use remora_testing::Random;

/// Some more of an incarnation of two shards, all of it synced.
fn go_on(server: &mut Server, random: &mut Random) {
    for _ in 0..40 {
        server.append(random.below(2) as usize, random);
        server.write(random);
        server.sync();
    }
}

/// A disk with three incarnations, and what each had synced, by shard.
fn three_incarnations() -> (SimVolume, Vec<Vec<u64>>) {
    let (mut random, volume) = (Random::new(2), SimVolume::default());
    let mut synced = Vec::new();
    for _ in 0..3 {
        let mut server = Server::begin(&volume, &look(&volume).unwrap(), 2, Promise::Synced);
        go_on(&mut server, &mut random);
        synced.push((0..2).map(|shard| server.commit.synced(shard)).collect());
    }
    (volume, synced)
}

fn refused(found: Result<Found, StorageError>, name: &str) -> String {
    let text = found.expect_err(name).to_string();
    assert!(text.starts_with(&format!("corrupt {name} offset=0 ")), "{text}");
    assert!(text.contains("missing"), "{text}");
    text
}

#[test]
fn any_missing_segment_but_the_last_is_named() {
    let segments = three_incarnations().0.all();
    assert!(segments.len() > 6, "{segments:?}");
    for name in &segments[..segments.len() - 1] {
        let volume = three_incarnations().0;
        volume.remove(name).unwrap();
        refused(look(&volume), name);
    }
}

#[test]
fn with_a_snapshot_the_log_of_its_incarnation_has_to_be_there() {
    let (volume, synced) = three_incarnations();
    let of_incarnation = |volume: &SimVolume, epoch: u64| -> Vec<String> {
        let found = look(volume).unwrap();
        let incarnation =
            found.incarnations.into_iter().find(|incarnation| incarnation.epoch == epoch).unwrap();
        incarnation.segments.into_iter().map(|segment| segment.name).collect()
    };
    let names: Vec<Vec<String>> = (1..=3).map(|epoch| of_incarnation(&volume, epoch)).collect();
    for epoch in 1..=3 {
        let covered = (epoch as u64, &synced[epoch - 1][..]);
        let (volume, _) = three_incarnations();
        assert!(find(&volume, &IDENTITY, covered).is_ok());
        for name in names[epoch - 1].iter() {
            volume.remove(name).unwrap();
        }
        let last = names[epoch - 1].last().unwrap();
        // Of the last incarnation only its number is not known.
        let text = refused(
            find(&volume, &IDENTITY, covered),
            match epoch {
                3 => &names[2][0],
                _ => last,
            },
        );
        assert!(text.contains("snapshot"), "{text}");
    }
    // Its end is missing: the snapshot has more than the log.
    let incarnation = look(&volume).unwrap().incarnations.pop().unwrap();
    let last = incarnation.segments.iter().rposition(|segment| segment.runs > 0).unwrap();
    for segment in &incarnation.segments[last..] {
        volume.remove(&segment.name).unwrap();
    }
    refused(find(&volume, &IDENTITY, (3, &synced[2])), &incarnation.segments[last].name);
}

/// Some of the names that were removed are there again after a power cut, and others are not.
#[test]
fn a_gap_in_what_the_snapshot_covers_does_no_harm() {
    let (mut random, volume) = (Random::new(5), SimVolume::default());
    let mut server = Server::begin(&volume, &look(&volume).unwrap(), 2, Promise::Synced);
    (0..2).for_each(|_| go_on(&mut server, &mut random));
    let covered: Vec<u64> = (0..2).map(|shard| server.commit.synced(shard)).collect();
    (0..2).for_each(|_| go_on(&mut server, &mut random));
    let names = volume.all();
    let is_needed = volume.after_kill();
    server.commit.drop_covered(&covered).unwrap();
    let kept = volume.all();
    let dropped = names.len() - kept.len();
    assert!(dropped > 3 && kept.len() > 2, "{names:?}");
    for first_lost in 0..dropped - 1 {
        let volume = is_needed.after_kill();
        names[first_lost + 1..dropped].iter().for_each(|name| volume.remove(name).unwrap());
        let found = find(&volume, &IDENTITY, (1, &covered)).unwrap();
        assert_eq!(found.left.len(), first_lost + 1);
        assert_eq!(found.numbers().len(), volume.all().len());
        // The next incarnation goes on, and removes them with its snapshot.
        let mut next = Server::begin(&volume, &found, 2, Promise::Synced);
        go_on(&mut next, &mut random);
        let covered: Vec<u64> = (0..2).map(|shard| next.commit.synced(shard)).collect();
        next.commit.drop_covered(&covered).unwrap();
        assert!(!volume.all().contains(&names[0]));
    }
    // One that is needed.
    is_needed.remove(&kept[0]).unwrap();
    is_needed.remove(&names[1]).unwrap();
    refused(find(&is_needed, &IDENTITY, (1, &covered)), &names[1]);
}

/// A process that finds two snapshots may be the first one to sync their names.
#[test]
fn a_snapshot_is_left_whenever_the_power_goes() {
    let snapshot = |volume: &SimVolume, number: u64| {
        let mut writer = SnapshotWriter::begin(volume.clone(), IDENTITY, (number, 1, 1)).unwrap();
        writer.write(0, &[number as u8; 100]).unwrap();
        writer.end_shard(0, ShardSnapshot::default()).unwrap();
        writer.finish()
    };
    let first = SimVolume::default();
    snapshot(&first, 1).unwrap();
    // The calls of a snapshot, of which some fail at its end.
    for calls in 0..16 {
        for seed in 0..40 {
            let mut random = Random::new(seed);
            let volume = first.after_kill();
            let mut writer = SnapshotWriter::begin(volume.clone(), IDENTITY, (2, 1, 1)).unwrap();
            writer.write(0, &[2; 100]).unwrap();
            writer.end_shard(0, ShardSnapshot::default()).unwrap();
            volume.set_fault_in(calls, DiskFault::Gone);
            let _ = writer.finish();
            let volume = volume.after_kill();
            volume.set_fault_in(random.below(4), DiskFault::Gone);
            let _ = remove_leftovers(&volume);
            let volume = volume.after_power_cut(&mut |below| random.below(below));
            let left = find_snapshot(&volume, &IDENTITY).unwrap().expect("one of them is left");
            assert_eq!(left.shards.len(), 1);
        }
    }
}

#[test]
fn a_log_that_is_gone_whole_is_missed() {
    let volume = SimVolume::default();
    IDENTITY.write(&volume).unwrap();
    assert!(look(&volume).unwrap().incarnations.is_empty());
    Server::begin(&volume, &look(&volume).unwrap(), 2, Promise::Synced);
    IDENTITY.note_log(&volume).unwrap();
    assert_eq!(look(&volume).unwrap().incarnations.len(), 1);
    volume.remove("log-0000000000000001").unwrap();
    refused(look(&volume), "log-0000000000000001");
}
