//! The client's side of making a session over RDMA. The order is in
//! [`remora_layout::verbs`], the server's side in `host`.

use super::arenas::read_arenas;
use super::connection::{Connection, Parts};
use super::data_buffer::DataMemory;
use super::errors::VerbsError;
use super::load::LoadMeter;
use super::memlock::{self, NotRegistered};
use super::packets::Packets;
use super::peer::PeerRegion;
use super::registration::{Registration, access};
use super::setup::{Unconnected, devices_of_environment, key_of, open};
use crate::HelloStream;
use remora_arena::Words;
use remora_layout::hello::Refusal;
use remora_layout::verbs::{RegionKey, VerbsEnd, VerbsReady};
use std::io::{Read, Write};
use std::sync::Arc;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A client's description of itself.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct ClientSide {
    pub(super) end: VerbsEnd,
    pub(super) mailbox: RegionKey,
}

/// Why a client has no session over RDMA.
pub(crate) enum BeginError {
    Verbs(VerbsError),
    Stream(std::io::Error),
    Refused(Refusal),
}

impl From<VerbsError> for BeginError {
    fn from(error: VerbsError) -> Self {
        Self::Verbs(error)
    }
}

impl From<NotRegistered> for BeginError {
    fn from(refused: NotRegistered) -> Self {
        Self::Verbs(refused.into())
    }
}

impl From<std::io::Error> for BeginError {
    fn from(error: std::io::Error) -> Self {
        Self::Stream(error)
    }
}

/// The client's end, on the stream on which the hellos were said, with what
/// registers memory for large replies. The keys of regions are said through its TLS, if it has that;
/// from then on the stream only shows the end of either side, and TLS has no more to do.
pub(crate) fn begin(
    mut stream: HelloStream,
    shards: usize,
    to_client: &Words,
    packets: &Packets,
) -> Result<(Arc<Connection>, DataMemory), BeginError> {
    let mut server_end = VerbsEnd::new_zeroed();
    stream.read_exact(server_end.as_mut_bytes())?;
    let arenas = read_arenas(&mut stream, shards)?;
    memlock::check(memlock::client_bytes(shards))?;
    let local = stream.socket().local_addr()?.ip().to_canonical();
    let (domain, place) = open(Some(local), &devices_of_environment())?;
    let meter = LoadMeter::new(&place);
    let unconnected = Unconnected::with_packets(&domain, &place, packets)?;
    let mailbox = Registration::of(&domain, to_client, access::WRITE)?;
    let side = ClientSide { end: unconnected.end(), mailbox: key_of(&mailbox, mailbox.rkey()) };
    // First: the server may write as soon as it has heard of this end.
    let pair = unconnected.connect(&server_end)?;
    stream.write_all(side.as_bytes())?;
    let mut ready = VerbsReady::new_zeroed();
    stream.read_exact(ready.as_mut_bytes())?;
    if ready.refusal.get() != 0 {
        let refusal = Refusal::from_number(ready.refusal.get());
        return Err(BeginError::Refused(refusal.unwrap_or(Refusal::Unavailable)));
    }
    let mut peer: Vec<PeerRegion> = arenas.into_iter().map(PeerRegion::Arena).collect();
    peer.push(PeerRegion::Mailbox(ready.mailbox));
    let connection = Connection::new(Parts {
        pair,
        domain,
        control: stream.into_parts().0,
        peer,
        shards,
        exposed: vec![mailbox],
        windows: Vec::new(),
        on_immediate: Box::new(|_| {}),
    })?;
    Ok((Arc::clone(&connection), DataMemory::new(connection, meter)))
}
