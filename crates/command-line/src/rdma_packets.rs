//! RDMA packets on command lines, in the environment and in files.

use crate::failure::usage;
use clap::Args;
use remora_client_core::{Mtu, Packets};

/// Flags of RDMA packets, of commands that are clients, and of `doctor`.
#[derive(Clone, Debug, Default, Args)]
pub struct PacketArgs {
    /// Over RDMA: traffic class of what this process sends, 0 to 255; with
    /// RoCE four times the DSCP [default: 0].
    #[arg(long, env = "REMORA_RDMA_TRAFFIC_CLASS", value_name = "N")]
    pub rdma_traffic_class: Option<u8>,
    /// Over RDMA: service level, 0 to 15 [default: 0].
    #[arg(long, env = "REMORA_RDMA_SERVICE_LEVEL", value_name = "N")]
    pub rdma_service_level: Option<u8>,
    /// Over RDMA: index of the P_Key in the port's table [default: 0].
    #[arg(long, env = "REMORA_RDMA_PKEY_INDEX", value_name = "N")]
    pub rdma_pkey_index: Option<u16>,
    /// Over RDMA: longest packet, 256, 512, 1024, 2048 or 4096 bytes [default:
    /// what both ports have].
    #[arg(long, env = "REMORA_RDMA_MTU", value_name = "BYTES")]
    pub rdma_mtu: Option<u32>,
}

impl PacketArgs {
    /// The resulting settings.
    ///
    /// # Errors
    /// A level or length that there is not.
    pub fn packets(&self) -> anyhow::Result<Packets> {
        let mtu = self.rdma_mtu.map(|bytes| {
            let mtu = Mtu::of_bytes(bytes);
            mtu.ok_or_else(|| {
                usage(format!("rdma_mtu: {bytes} is not 256, 512, 1024, 2048 or 4096"))
            })
        });
        let packets = Packets {
            traffic_class: self.rdma_traffic_class.unwrap_or(0),
            service_level: self.rdma_service_level.unwrap_or(0),
            pkey_index: self.rdma_pkey_index.unwrap_or(0),
            mtu: mtu.transpose()?,
        };
        match packets.objection() {
            Some(objection) => Err(usage(format!("rdma_service_level: {objection}"))),
            None => Ok(packets),
        }
    }

    /// Those that were given, as flags, each with a space before it.
    pub fn command(&self) -> String {
        let flags = [
            ("traffic-class", self.rdma_traffic_class.map(u32::from)),
            ("service-level", self.rdma_service_level.map(u32::from)),
            ("pkey-index", self.rdma_pkey_index.map(u32::from)),
            ("mtu", self.rdma_mtu),
        ];
        let given = flags.into_iter().filter_map(|(name, value)| Some((name, value?)));
        given.map(|(name, value)| format!(" --rdma-{name} {value}")).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_is_taken_and_repeated() {
        let args = PacketArgs {
            rdma_traffic_class: Some(104),
            rdma_mtu: Some(1024),
            ..PacketArgs::default()
        };
        let packets = args.packets().unwrap();
        assert_eq!((packets.traffic_class, packets.mtu), (104, Some(Mtu::Bytes1024)));
        assert_eq!(args.command(), " --rdma-traffic-class 104 --rdma-mtu 1024");
        assert_eq!(PacketArgs::default().packets().unwrap(), Packets::default());
        assert_eq!(PacketArgs::default().command(), "");
    }

    #[test]
    fn what_there_is_not_is_refused() {
        let mtu = PacketArgs { rdma_mtu: Some(1500), ..PacketArgs::default() };
        assert!(mtu.packets().unwrap_err().to_string().contains("rdma_mtu: 1500"));
        let level = PacketArgs { rdma_service_level: Some(16), ..PacketArgs::default() };
        assert!(level.packets().unwrap_err().to_string().contains("rdma_service_level"));
    }
}
