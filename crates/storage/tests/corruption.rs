//! Bytes that change after they were synced are found, and where.

use crate::support::{Server, entries, look};
use remora_storage::sim::SimVolume;
use remora_storage::{Promise, StorageError};
use remora_testing::Random;

/// A disk with two lives of two shards, and all that is synced.
fn written(seed: u64) -> SimVolume {
    let (mut random, volume) = (Random::new(seed), SimVolume::default());
    for _ in 0..2 {
        let mut server = Server::begin(&volume, &look(&volume).unwrap(), 2, Promise::Synced);
        for _ in 0..40 {
            server.append(random.below(2) as usize, &mut random);
            server.write(&mut random);
            server.sync();
        }
    }
    volume
}

#[test]
fn a_changed_byte_is_refused_with_its_file_or_leaves_a_prefix() {
    let mut refused = 0;
    let whole = entries(&written(1), &look(&written(1)).unwrap()).unwrap();
    for at in 0..400 {
        let volume = written(1);
        let mut random = Random::new(at);
        let names = volume.all();
        let name = &names[random.below(names.len() as u64) as usize];
        let found = look(&volume).unwrap();
        let segments = found.lives.iter().flat_map(|life| &life.segments);
        let bytes = segments.clone().find(|segment| segment.name == *name).unwrap().bytes;
        let is_last = segments.last().unwrap().name == *name;
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
            // The last run of all: nothing says that it was synced.
            Ok(found) => {
                assert!(is_last && found.notices.len() == 1, "{name} {offset}");
                let left = entries(&volume, &found).unwrap();
                let (left, all) = (&left[1], &whole[1]);
                assert!((0..2).all(|shard| all[shard].starts_with(&left[shard])));
            }
        }
    }
    assert!(refused > 350, "{refused}");
}
