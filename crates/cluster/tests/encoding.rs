//! Bytes that claim to be a topology.

use remora_cluster::coordinator::{decode_presence, encode_presence};
use remora_cluster::topology::change::{self, Joining, Promotion};
use remora_cluster::topology::{DecodeError, GroupId, Instance, MemberId, Topology};
use remora_layout::hash::checksum;
use remora_testing::Random;

/// The same bytes with their length and their checksum made right.
pub fn sealed(bytes: &[u8]) -> Vec<u8> {
    let mut bytes = bytes.to_vec();
    let body = bytes.len() - 24;
    let sum = checksum(&bytes[24..], 1);
    bytes[12..16].copy_from_slice(&(body as u32).to_le_bytes());
    bytes[16..24].copy_from_slice(&sum.to_le_bytes());
    bytes
}

fn topology() -> Topology {
    let group = |id: u32| (GroupId(id), format!("group-{id}"), 1);
    let mut topology = Topology::new(77, vec![group(1), group(2)]).expect("valid");
    for member in 1..5 {
        let joining = Joining {
            instance: Instance { member: MemberId(member), incarnation: 10 * member },
            group: GroupId(1 + member as u32 % 2),
            fabric_address: format!("10.0.0.{member}:7380"),
            resp_address: format!("10.0.0.{member}:7379"),
        };
        topology = change::join(&topology, joining).expect("it joins");
    }
    let to = Instance { member: MemberId(2), incarnation: 20 };
    let other = Instance { member: MemberId(4), incarnation: 40 };
    let promotion = Promotion { group: GroupId(1), epoch: 0, to, in_sync: Vec::new() };
    let topology = change::promote(&topology, promotion).expect("the first");
    change::set_in_sync(&topology, GroupId(1), (to, 1), vec![other]).expect("it leads")
}

#[test]
fn each_damaged_bit_and_each_other_length_is_seen() {
    let bytes = topology().encode();
    for at in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[at / 8] ^= 1 << (at % 8);
        assert!(Topology::decode(&damaged).is_err(), "bit {at}");
    }
    for length in 0..bytes.len() {
        assert!(Topology::decode(&bytes[..length]).is_err(), "{length} bytes");
    }
    let longer = [&bytes[..], &[0]].concat();
    assert_eq!(Topology::decode(&longer), Err(DecodeError::Length(longer.len())));
    assert!(matches!(Topology::decode(&sealed(&longer)), Err(DecodeError::Length(_))));
}

#[test]
fn another_format_says_so_in_words() {
    let mut bytes = topology().encode();
    bytes[8..12].copy_from_slice(&2u32.to_le_bytes());
    let error = Topology::decode(&bytes).expect_err("another format");
    assert_eq!(error, DecodeError::OtherFormat(2));
    assert!(error.to_string().contains("format 2") && error.to_string().contains("format 1"));
    assert_eq!(
        Topology::decode(b"something else entirely, and long"),
        Err(DecodeError::NoTopology)
    );
}

/// A program with a mistake seals what it likes: what decodes is valid, and has this encoding.
#[test]
fn what_decodes_is_valid_and_has_one_encoding() {
    let honest = topology().encode();
    let mut random = Random::new(5);
    let (mut valid, mut refused) = (0, 0);
    for _ in 0..60_000 {
        let mut bytes = honest.clone();
        for _ in 0..1 + random.below(3) {
            let at = random.within(24..bytes.len());
            match random.below(4) {
                0 => bytes[at] ^= 1 << random.below(8),
                1 => bytes[at] = random.below(4u8),
                2 => bytes.truncate(at.max(32)),
                _ => bytes[at] = 0xff,
            }
        }
        let bytes = sealed(&bytes);
        match Topology::decode(&bytes) {
            Ok(topology) => {
                assert_eq!(topology.validate(), Ok(()));
                assert_eq!(topology.encode(), bytes);
                valid += 1;
            }
            Err(_) => refused += 1,
        }
    }
    assert!(valid > 1_000 && refused > 1_000, "{valid} valid, {refused} refused");
}

#[test]
fn a_presence_is_read_as_it_was_written() {
    let instance = Instance { member: MemberId(7), incarnation: u64::MAX };
    let bytes = encode_presence(instance);
    assert_eq!(decode_presence(&bytes), Some(instance));
    for at in 0..8 {
        let mut damaged = bytes;
        damaged[at] ^= 0x80;
        assert_eq!(decode_presence(&damaged), None, "byte {at}");
    }
    assert_eq!(decode_presence(&bytes[1..]), None);
    assert_eq!(decode_presence(&[0; 24]), None);
}
