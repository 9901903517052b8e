//! Which epoch a server has led last, as its directory says.

use crate::support::{IDENTITY, Server, look};
use remora_storage::sim::SimVolume;
use remora_storage::{LedEpochFile, Promise, Volume, copy_data};
use remora_testing::Random;

const FIRST: LedEpochFile = LedEpochFile { incarnation: u64::MAX, epoch: 7, is_durable: true };
const SECOND: LedEpochFile = LedEpochFile { incarnation: 3, epoch: 8, is_durable: false };

#[test]
fn it_says_what_was_written_last() {
    let volume = SimVolume::default();
    assert_eq!(LedEpochFile::read(&volume).unwrap(), None);
    for of in [FIRST, SECOND] {
        of.write(&volume).unwrap();
        assert_eq!(LedEpochFile::read(&volume).unwrap(), Some(of));
    }
}

#[test]
fn no_byte_of_it_is_believed_that_has_changed() {
    let volume = SimVolume::default();
    FIRST.write(&volume).unwrap();
    let name = volume.all().into_iter().find(|name| name == "led-epoch").unwrap();
    let bytes = volume.open(&name).and_then(|file| remora_storage::VolumeFile::bytes(&file));
    for offset in 0..bytes.unwrap() as usize {
        let volume = SimVolume::default();
        FIRST.write(&volume).unwrap();
        volume.spoil(&name, offset);
        assert!(LedEpochFile::read(&volume).is_err(), "byte {offset}");
    }
}

#[test]
fn a_power_cut_leaves_what_was_written() {
    for seed in 0..200 {
        let (mut random, volume) = (Random::new(seed), SimVolume::default());
        FIRST.write(&volume).unwrap();
        SECOND.write(&volume).unwrap();
        let found = volume.after_power_cut(&mut |most| random.below(most));
        assert_eq!(LedEpochFile::read(&found).unwrap(), Some(SECOND), "seed {seed}");
    }
}

/// What a backup holds is older than what was acknowledged.
#[test]
fn a_backup_does_not_say_that_its_server_has_led() {
    let (from, to) = (SimVolume::default(), SimVolume::default());
    IDENTITY.write(&from).unwrap();
    let mut server = Server::begin(&from, &look(&from).unwrap(), 2, Promise::Synced);
    server.sync();
    FIRST.write(&from).unwrap();
    copy_data(&from, &IDENTITY, &to).unwrap();
    assert_eq!(LedEpochFile::read(&to).unwrap(), None);
}
