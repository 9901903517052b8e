//! Bytes that change after they were synced are found, and where.

use crate::support::{Server, entries, look};
use remora_layout::limits::LOG_QUIET_MS;
use remora_storage::sim::SimVolume;
use remora_storage::{Promise, StorageError};
use remora_testing::Random;

/// A disk with two incarnations of two shards, and all that is synced. `is_marked`: the second incarnation was
/// quiet for a moment at its end.
fn written(seed: u64, is_marked: bool) -> SimVolume {
    let (mut random, volume) = (Random::new(seed), SimVolume::default());
    for _ in 0..2 {
        let mut server = Server::begin(&volume, &look(&volume).unwrap(), 2, Promise::Synced);
        for _ in 0..40 {
            server.append(random.below(2) as usize, &mut random);
            server.write(&mut random);
            server.sync();
        }
        server.now_ms += LOG_QUIET_MS * u64::from(is_marked);
        server.sync();
    }
    volume
}

#[test]
fn a_changed_byte_is_refused_with_its_file_or_leaves_a_prefix() {
    let (mut refused, mut cut) = (0, 0);
    for at in 0..800 {
        let (seed, is_marked) = (at / 2 % 8, at % 2 == 0);
        let volume = written(seed, is_marked);
        let whole = entries(&volume, &look(&volume).unwrap()).unwrap();
        let mut random = Random::new(at);
        let names = volume.all();
        let name = &names[random.below(names.len() as u64) as usize];
        let found = look(&volume).unwrap();
        let segments = found.incarnations.iter().flat_map(|incarnation| &incarnation.segments);
        let bytes = segments.clone().find(|segment| segment.name == *name).unwrap().bytes;
        let last = segments.last().unwrap();
        let (is_last, entry_bytes) = (last.name == *name, last.entry_bytes);
        let offset = random.below(bytes);
        volume.spoil(name, offset as usize);
        match look(&volume) {
            Err(StorageError::Corrupt { name: told, offset: at, .. }) => {
                assert_eq!(told, *name);
                assert!(at <= offset, "{at} is behind {offset}");
                refused += 1;
            }
            Err(StorageError::Cluster { .. } | StorageError::Layout { .. }) => refused += 1,
            Err(other) => panic!("{other}"),
            // The mark itself, or the last run of all where no mark says that it was synced.
            Ok(found) => {
                assert!(is_last && found.notices.len() == 1, "{name} {offset}");
                let left = entries(&volume, &found).unwrap();
                let (left, all) = (&left[1], &whole[1]);
                assert!((0..2).all(|shard| all[shard].starts_with(&left[shard])));
                assert!(!is_marked || (offset >= entry_bytes && left == all), "{name} {offset}");
                cut += 1;
            }
        }
    }
    assert!(refused > 750 && cut > 0, "{refused} {cut}");
}
