//! Random histories of several incarnations: whatever the disk does, what was promised is there, and all
//! that is there was written.

use crate::support::{OfLife, Operation, Server, entries, look};
use remora_storage::Promise;
use remora_storage::sim::{DiskFault, SimVolume};
use remora_testing::Random;

/// Runs one incarnation; returns its disk after its end, and checks what is there.
fn live(
    volume: &SimVolume,
    before: &mut Vec<OfLife>,
    random: &mut Random,
    promise: Promise,
) -> SimVolume {
    let shards = 1 + random.below(4) as usize;
    let found = look(volume).unwrap();
    let mut server = Server::begin(volume, &found, shards, promise);
    let first: Vec<u64> = server.logs.iter().map(|log| log.last_sequence() + 1).collect();
    for _ in 0..random.below(120) {
        server.now_ms += random.below(400);
        let faults = [
            DiskFault::Write,
            DiskFault::Sync,
            DiskFault::Full,
            DiskFault::Gone,
            DiskFault::Moved,
            DiskFault::None,
        ];
        if random.below(15) == 0 {
            volume.set_fault(faults[random.below(6) as usize]);
        } else if random.below(4) == 0 {
            volume.set_fault(DiskFault::None);
        }
        for _ in 0..random.below(6) {
            let shard = random.below(shards as u64) as usize;
            match shards > 1 && random.below(6) == 0 {
                true => server.append_shared((shard, (shard + 1) % shards), random),
                false => server.append(shard, random),
            }
        }
        server.write(random);
        // Now and then something is written while a sync is under way.
        match random.below(4) {
            0 => {}
            1 => server.begin_sync(),
            _ => server.sync(),
        }
    }
    let is_power_cut = random.below(2) == 0;
    // What was written after the directory had moved, and before a sync, is elsewhere.
    let needs_sync = is_power_cut || volume.fault() == DiskFault::Moved;
    let after = match is_power_cut {
        true => volume.after_power_cut(&mut |below| random.below(below)),
        false => volume.after_kill(),
    };
    // Parts of an entry are promised together.
    let promised = |shard: usize| match (promise, needs_sync) {
        (Promise::Memory, _) => 0,
        (Promise::Written, true) => server.commit.synced(shard),
        _ => server.commit.durable(shard),
    };
    let mut promised: Vec<u64> = (0..shards).map(promised).collect();
    withhold_torn_parts(&server, &mut promised);
    let found = look(&after).unwrap_or_else(|error| panic!("{error}"));
    let all = entries(&after, &found).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(all[..all.len() - 1], before[..], "earlier incarnations stay");
    let own = all.last().unwrap();
    for shard in 0..shards {
        let kept = &own[shard];
        assert_eq!(kept[..], server.appended[shard][..kept.len()], "a prefix of what was written");
        let last = kept.last().map_or(first[shard] - 1, |(sequence, _)| *sequence);
        assert!(last >= promised[shard], "shard {shard}: {last} of {}", promised[shard]);
    }
    for parts in &server.shared {
        let is_there = |part: &remora_log::Part| {
            let kept = own[part.shard() as usize].last().map_or(0, |(sequence, _)| *sequence);
            kept >= part.sequence()
        };
        let there = parts.iter().filter(|part| is_there(part)).count();
        assert!(there == 0 || there == parts.len(), "all parts of an entry or none: {parts:?}");
    }
    before.push(own.clone());
    after
}

/// An entry of several shards counts once all its parts are there, and so do those behind it.
fn withhold_torn_parts(server: &Server, promised: &mut [u64]) {
    // Bounded: each turn lowers one.
    loop {
        let torn = server.shared.iter().find_map(|parts| {
            let is_there =
                |part: &remora_log::Part| part.sequence() <= promised[part.shard() as usize];
            let one = parts.iter().find(|part| is_there(part))?;
            (!parts.iter().all(is_there)).then_some((one.shard() as usize, one.sequence()))
        });
        let Some((shard, sequence)) = torn else { return };
        promised[shard] = sequence - 1;
    }
}

#[test]
fn what_was_promised_is_there_whatever_the_disk_does() {
    let mut incarnations = 0;
    for seed in 0..600 {
        let mut random = Random::new(seed);
        let promise =
            [Promise::Written, Promise::Synced, Promise::Memory][random.below(3) as usize];
        let (mut volume, mut before) = (SimVolume::default(), Vec::new());
        for _ in 0..1 + random.below(4) {
            volume.set_fault(DiskFault::None);
            volume = live(&volume, &mut before, &mut random, promise);
            incarnations += 1;
        }
    }
    assert!(incarnations > 600);
}

/// One write and one sync for all that waits, however many shards there are.
#[test]
fn a_group_is_one_write_and_one_sync() {
    let volume = SimVolume::default();
    let found = look(&volume).unwrap();
    let mut server = Server::begin(&volume, &found, 4, Promise::Synced);
    let mut random = Random::new(1);
    for shard in [0, 1, 2, 3].repeat(25) {
        server.append(shard, &mut random);
    }
    // The first group fills a segment, and the next one begins with a header.
    for (syncs_more, writes_more) in [(2, 3), (1, 1)] {
        let (syncs, writes) = volume.counts();
        let runs = (0..4).filter_map(|shard| server.next_run(shard, usize::MAX)).collect();
        let durable = |server: &Server| -> Vec<u64> {
            (0..4).map(|shard| server.commit.durable(shard)).collect()
        };
        let before = durable(&server);
        server.commit.write(runs, 0, 0).unwrap();
        assert_eq!(before, durable(&server), "none of it yet");
        server.sync();
        assert_eq!(volume.counts(), (syncs + syncs_more, writes + writes_more));
        (0..4).for_each(|shard| server.append(shard, &mut random));
    }
    let runs = (0..4).filter_map(|shard| server.next_run(shard, usize::MAX)).collect();
    server.commit.write(runs, 0, 0).unwrap();
    server.sync();
    for (shard, log) in server.logs.iter().enumerate() {
        assert_eq!(server.commit.durable(shard), log.last_sequence());
    }
}

/// Segments that a snapshot covers go; what is behind it stays.
#[test]
fn covered_segments_go_and_no_others() {
    for seed in 0..60 {
        let (mut random, volume) = (Random::new(seed), SimVolume::default());
        let mut server = Server::begin(&volume, &look(&volume).unwrap(), 2, Promise::Synced);
        for _ in 0..200 {
            server.append(random.below(2) as usize, &mut random);
            server.write(&mut random);
            server.sync();
        }
        let covered: Vec<u64> = (0..2)
            .map(|shard| random.within(7 * shard..server.commit.synced(shard as usize) + 1))
            .collect();
        server.commit.drop_covered(&covered).unwrap();
        let found =
            remora_storage::find(&volume, &crate::support::IDENTITY, (1, &covered)).unwrap();
        let all = entries(&volume, &found).unwrap();
        for shard in 0..2 {
            let behind = |(sequence, _): &&(u64, Operation)| *sequence > covered[shard];
            let kept: Vec<_> = all[0][shard].iter().filter(behind).collect();
            let synced = server.commit.synced(shard);
            let wanted = server.appended[shard].iter().filter(behind);
            let wanted: Vec<_> = wanted.filter(|(sequence, _)| *sequence <= synced).collect();
            assert_eq!(kept[..wanted.len()], wanted[..], "seed {seed}");
        }
    }
}

/// A crash between a snapshot and the end of the segments that it covers: the next snapshot's end
/// removes them.
#[test]
fn segments_that_a_crash_has_left_go_with_the_next_ones() {
    let (mut random, volume) = (Random::new(3), SimVolume::default());
    let mut live = |found: &remora_storage::Found| {
        let mut server = Server::begin(&volume, found, 2, Promise::Synced);
        for _ in 0..40 {
            server.append(random.below(2) as usize, &mut random);
            server.write(&mut random);
            server.sync();
        }
        server
    };
    live(&look(&volume).unwrap());
    let second = live(&look(&volume).unwrap());
    let covered: Vec<u64> = (0..2).map(|shard| second.commit.synced(shard)).collect();
    // A snapshot of the second incarnation counts, and nothing was removed.
    let find = |epoch| remora_storage::find(&volume, &crate::support::IDENTITY, (epoch, &covered));
    let found = find(2).unwrap();
    assert_eq!((found.incarnations.len(), found.numbers().len()), (1, volume.all().len()));
    let mut third = live(&found);
    let covered: Vec<u64> = (0..2).map(|shard| third.commit.synced(shard)).collect();
    third.commit.drop_covered(&covered).unwrap();
    let found = remora_storage::find(&volume, &crate::support::IDENTITY, (3, &covered)).unwrap();
    assert_eq!(found.left, [0; 0]);
    assert_eq!(found.numbers().len(), volume.all().len());
}

/// A segment ends although something is always written while a sync is under way, and an entry may
/// go on in the next one.
#[test]
fn a_segment_ends_though_writes_never_pause() {
    let (mut random, volume) = (Random::new(5), SimVolume::default());
    let mut server = Server::begin(&volume, &look(&volume).unwrap(), 2, Promise::Written);
    for _ in 0..400 {
        (0..2).for_each(|shard| server.append(shard, &mut random));
        server.write(&mut random);
        server.begin_sync();
        (0..2).for_each(|shard| server.append(shard, &mut random));
        server.write(&mut random);
        server.end_sync();
        server.now_ms += 300;
    }
    let found = look(&volume).unwrap();
    let bytes: Vec<u64> =
        found.incarnations[0].segments.iter().map(|segment| segment.bytes).collect();
    // Segments of 6 KiB, and what was written during two syncs.
    assert!(bytes.len() > 20 && bytes.iter().all(|bytes| *bytes < 16 << 10), "{bytes:?}");
    let covered: Vec<u64> = (0..2).map(|shard| server.commit.synced(shard)).collect();
    server.commit.drop_covered(&covered).unwrap();
    assert!(volume.all().len() < 4, "{:?}", volume.all());
}

/// A restart writes the end of the last segment again, in its place: it needs no room for a copy.
#[test]
fn a_restart_copies_no_segment() {
    let (mut random, volume) = (Random::new(6), SimVolume::default());
    let mut server = Server::begin(&volume, &look(&volume).unwrap(), 1, Promise::Written);
    (0..9).for_each(|_| server.append(0, &mut random));
    let runs = server.next_run(0, usize::MAX).into_iter().collect();
    server.commit.write(runs, 0, 0).unwrap();
    let files = volume.files_made();
    Server::begin(&volume, &look(&volume).unwrap(), 1, Promise::Written);
    assert_eq!(volume.files_made(), files + 1, "the next segment");
    let after = volume.after_power_cut(&mut |_| 0);
    let found = look(&after).unwrap();
    assert_eq!(entries(&after, &found).unwrap()[0][0], server.appended[0]);
}

/// A change that waits for the disk, and that is not written yet, is synced as soon as it is.
#[test]
fn a_wish_for_a_sync_stays_until_something_is_synced() {
    let (mut random, volume) = (Random::new(7), SimVolume::default());
    let mut server = Server::begin(&volume, &look(&volume).unwrap(), 1, Promise::Written);
    server.commit.want_sync();
    assert!(server.commit.sync_due(10).is_none(), "there is nothing");
    server.append(0, &mut random);
    let runs = server.next_run(0, usize::MAX).into_iter().collect();
    server.commit.write(runs, 0, 20).unwrap();
    assert!(server.commit.sync_due(20).is_some());
}
