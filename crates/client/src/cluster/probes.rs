//! Asks servers of the cluster for its topology, one after the other, in turn: one that has lost its
//! coordinator tells an old one, so no server is asked twice in a row while others answer.

use super::pause::Pause;
use crate::error::{ClusterConnectError, ConnectError};
use crate::options::Address;
use remora_client_core as core;
use remora_cluster::topology::Topology;
use remora_layout::limits::{TOPOLOGY_PROBE_MS, TOPOLOGY_PROBES_KEPT};
use std::time::{Duration, Instant};

const PROBE_TIMEOUT: Duration = Duration::from_millis(TOPOLOGY_PROBE_MS);

/// See the module's text.
pub(super) struct Probes {
    options: core::Options,
    seeds: Vec<core::Address>,
    kept: Vec<(core::Address, core::Session)>,
    turn: usize,
}

impl Probes {
    /// The addresses that the application has given.
    pub fn new(options: &core::Options, seeds: &[Address]) -> Self {
        let options = core::Options {
            pointer_cache: core::PointerCacheKind::Off,
            timeout: PROBE_TIMEOUT,
            connect_timeout: PROBE_TIMEOUT,
            ..options.clone()
        };
        let seeds = seeds.iter().map(|of| of.0.clone()).collect();
        Self { options, seeds, kept: Vec::new(), turn: 0 }
    }

    /// The topology, from the first server that tells one. `known`: where servers are, besides the
    /// application's addresses. `suspect` is asked last.
    ///
    /// # Errors
    /// No server tells one within the time that is left: why the last one does not.
    pub fn ask(
        &mut self,
        known: Vec<core::Address>,
        suspect: Option<&core::Address>,
        pause: &Pause,
    ) -> Result<Topology, ClusterConnectError> {
        let mut order = in_turn(known, &self.seeds, suspect, self.turn);
        self.turn = self.turn.wrapping_add(1);
        let mut failed = ClusterConnectError::NoAddress;
        for address in order.drain(..) {
            let Some(left) = pause.left(Instant::now()) else { break };
            match self.ask_one(&address, left) {
                Ok(topology) => return Ok(topology),
                Err(why) => failed = why,
            }
        }
        Err(failed)
    }

    fn ask_one(
        &mut self,
        address: &core::Address,
        left: Duration,
    ) -> Result<Topology, ClusterConnectError> {
        let at = self.kept.iter().position(|(of, _)| of == address);
        let mut session = match at {
            Some(at) => self.kept.swap_remove(at).1,
            None => {
                let hello_timeout = PROBE_TIMEOUT.min(left);
                let options = core::Options { hello_timeout, ..self.options.clone() };
                core::Session::connect(address, &options).map_err(ConnectError)?
            }
        };
        let told =
            session.topology().map_err(|error| ClusterConnectError::Session(error.into()))?;
        let server = || Address(address.clone());
        let bytes = told.ok_or_else(|| ClusterConnectError::NoCluster(server()))?;
        let topology =
            decoded(&bytes).map_err(|why| ClusterConnectError::Topology(server(), why))?;
        self.kept.truncate(TOPOLOGY_PROBES_KEPT - 1);
        self.kept.push((address.clone(), session));
        Ok(topology)
    }

    /// The client has found its primaries.
    pub fn settle(&mut self) {
        self.kept.clear();
    }
}

/// The topology that a server has sent.
pub(super) fn decoded(bytes: &[u8]) -> Result<Topology, String> {
    Topology::decode(bytes).map_err(|error| error.to_string())
}

/// All addresses, each once, beginning with another one each time; the suspect last.
fn in_turn(
    known: Vec<core::Address>,
    seeds: &[core::Address],
    suspect: Option<&core::Address>,
    turn: usize,
) -> Vec<core::Address> {
    let mut order = known;
    order.extend(seeds.iter().filter(|of| !order.contains(of)).cloned().collect::<Vec<_>>());
    let is_suspect = suspect.is_some_and(|suspect| order.contains(suspect));
    order.retain(|of| Some(of) != suspect);
    if !order.is_empty() {
        let first = turn % order.len();
        order.rotate_left(first);
    }
    order.extend(suspect.filter(|_| is_suspect).cloned());
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(port: u16) -> core::Address {
        core::Address::Tcp(([127, 0, 0, 1], port).into())
    }

    #[test]
    fn each_server_has_its_turn_and_a_suspect_is_last() {
        let ports = |order: Vec<core::Address>| -> Vec<u16> {
            let port = |of: &core::Address| match of {
                core::Address::Tcp(of) => of.port(),
                core::Address::Unix(_) | core::Address::Host(..) => 0,
            };
            order.iter().map(port).collect()
        };
        let known = || [1, 2, 3].map(address).to_vec();
        let seeds = [address(3), address(4)];
        assert_eq!(ports(in_turn(known(), &seeds, None, 0)), [1, 2, 3, 4]);
        assert_eq!(ports(in_turn(known(), &seeds, None, 1)), [2, 3, 4, 1]);
        assert_eq!(ports(in_turn(known(), &seeds, Some(&address(2)), 5)), [4, 1, 3, 2]);
        assert_eq!(ports(in_turn(known(), &seeds, Some(&address(9)), 0)), [1, 2, 3, 4]);
        assert_eq!(ports(in_turn(vec![address(1)], &[], Some(&address(1)), 3)), [1]);
    }
}
