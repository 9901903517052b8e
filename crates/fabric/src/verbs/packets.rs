//! An operator's settings for the packets of queue pairs: their treatment in switches, their
//! partition, their length.

use super::errors::VerbsError;
use super::objects::Context;
use remora_layout::limits::MAX_SERVICE_LEVEL;

/// Settings of a queue pair's packets. Each end's settings apply to its own packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Packets {
    /// Traffic class of the global header: with RoCE v2 the IP header's type of
    /// service, of which the upper six bits are the DSCP by which switches choose a
    /// lossless queue. InfiniBand within one subnet sends no such header.
    pub traffic_class: u8,
    /// Service level, 0 to [`MAX_SERVICE_LEVEL`]: on InfiniBand the subnet manager
    /// maps it to a virtual lane; with RoCE it is the Ethernet priority, in a VLAN.
    pub service_level: u8,
    /// Index of the partition key in the port's table; both ends' keys must match.
    pub pkey_index: u16,
    /// Largest packet; `None`: the active size of the port. The smaller one of both ends' is used,
    /// and never more than the port has.
    pub mtu: Option<Mtu>,
}

/// The lengths that a packet's payload may have at most.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
pub enum Mtu {
    /// 256 bytes.
    Bytes256 = 1,
    /// 512 bytes.
    Bytes512 = 2,
    /// 1024 bytes.
    Bytes1024 = 3,
    /// 2048 bytes.
    Bytes2048 = 4,
    /// 4096 bytes.
    Bytes4096 = 5,
}

impl Mtu {
    /// All of them, shortest first.
    pub const ALL: [Self; 5] =
        [Self::Bytes256, Self::Bytes512, Self::Bytes1024, Self::Bytes2048, Self::Bytes4096];

    /// Its length.
    pub const fn bytes(self) -> u32 {
        128 << self as u8
    }

    /// The one of this length.
    pub fn of_bytes(bytes: u32) -> Option<Self> {
        Self::ALL.into_iter().find(|mtu| mtu.bytes() == bytes)
    }
}

/// Bytes of the number that names a wanted packet length to the peer.
pub(super) fn mtu_bytes(told: u8) -> u32 {
    128 << told.clamp(Mtu::Bytes256 as u8, Mtu::Bytes4096 as u8)
}

impl Packets {
    /// The reason why no device takes these settings, if any.
    pub fn objection(&self) -> Option<String> {
        let level = self.service_level;
        (level > MAX_SERVICE_LEVEL)
            .then(|| format!("a service level of {level} is not in 0..={MAX_SERVICE_LEVEL}"))
    }

    /// The number that names the largest packet to the peer, where the port
    /// has `active`.
    pub(super) fn mtu_told(&self, active: u8) -> u8 {
        self.mtu.map_or(active, |mtu| active.min(mtu as u8))
    }

    /// Whether a port has a partition key at the place.
    ///
    /// # Errors
    /// It has none, or does not answer.
    pub(super) fn check(&self, context: &Context, port: u8) -> Result<(), VerbsError> {
        let length = context.pkeys(port)?;
        if self.pkey_index < length {
            return Ok(());
        }
        let (device, index) = (context.name.clone(), self.pkey_index);
        Err(VerbsError::NoPartition { device, port, index, length })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_those_of_verbs() {
        let bytes: Vec<u32> = Mtu::ALL.iter().map(|mtu| mtu.bytes()).collect();
        assert_eq!(bytes, [256, 512, 1024, 2048, 4096]);
        assert!(Mtu::ALL.into_iter().all(|mtu| Mtu::of_bytes(mtu.bytes()) == Some(mtu)));
        assert_eq!([0, 128, 1000, 1500, 8192].map(Mtu::of_bytes), [None; 5]);
    }

    #[test]
    fn a_wish_shortens_packets_and_never_lengthens_them() {
        let told = |mtu, active| Packets { mtu, ..Packets::default() }.mtu_told(active);
        assert_eq!(told(None, 5), 5);
        assert_eq!(told(Some(Mtu::Bytes1024), 5), 3);
        assert_eq!(told(Some(Mtu::Bytes4096), 3), 3);
        assert!(Mtu::ALL.into_iter().all(|mtu| mtu_bytes(told(Some(mtu), 5)) == mtu.bytes()));
    }

    #[test]
    fn service_levels_have_four_bits() {
        let objection = |service_level| Packets { service_level, ..Packets::default() }.objection();
        assert_eq!([objection(0), objection(15)], [None, None]);
        assert!(objection(16).unwrap().contains("16"));
    }
}
