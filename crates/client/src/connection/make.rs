//! Connections from what the ways of connecting give.

use super::{Carrier, Connection, MakeLink};
use crate::api::{Options, PointerCacheKind};
use crate::clock::Clock;
use crate::data_buffers::{ByLoad, DataBuffers};
use crate::error::ConnectError;
use crate::pointer_file::PointerTable;
use remora_arena::{Mapping, ReadView, Words};
use remora_fabric::far::{self, LargeMemory};
use remora_fabric::{Address, shm};
use remora_index::hash::TableRef;
use remora_layout::arena_header::word;
use remora_layout::hello::ServerHello;
use remora_layout::session::LINES_BYTES;
use std::os::fd::AsFd;

const NO_TABLE: &str = "an arena's table lies outside of it";

/// What a connection is made of over a fabric that is given, and not found by
/// dialling: the server's answer, and what has to be there already.
pub struct Parts {
    /// The server's answer.
    pub hello: ServerHello,
    /// Each shard's table.
    pub tables: Vec<TableRef>,
    /// The mailbox that the server writes.
    pub to_client: ReadView,
    /// The buffer into which the server writes large replies.
    pub large: ReadView,
    /// Makes each session's link. It does not complete operations at once.
    pub link: Box<MakeLink>,
    /// The clock of the client's machine.
    pub clock: Clock,
    /// The table of pointers that the machine's clients share, with the seed
    /// of its checksums.
    pub pointers: Option<(Words, u64)>,
}

impl Connection {
    pub(super) fn over_shm(
        address: &Address,
        connected: shm::Connected,
    ) -> Result<Self, ConnectError> {
        let not_a_server = |what| ConnectError::NotAServer { server: address.clone(), what };
        let hello = connected.hello;
        let arenas = connected.arenas.iter().enumerate();
        let tables: Option<Vec<TableRef>> =
            arenas.map(|(shard, arena)| TableRef::read(hello.region(shard), arena)).collect();
        let tables = tables.ok_or(not_a_server(NO_TABLE))?;
        let seed = hello.pointer_table_seed.get();
        let pointer_table = connected.pointer_table.as_ref();
        let pointer_table =
            pointer_table.map(|fd| PointerTable::of_server(fd.as_fd(), seed)).transpose()?;
        connected.socket.set_nonblocking(true)?;
        let clock = connected.to_server.clone();
        let carrier = Carrier::Shm {
            socket: connected.socket,
            to_server: connected.to_server,
            arenas: connected.arenas,
            bells: connected.bells,
        };
        let large = DataBuffers::region(connected.large);
        Self::new(&hello, clock, connected.to_client, pointer_table, tables, large, carrier)
    }

    pub(super) fn over_far(
        address: &Address,
        connected: far::Connected,
        options: &Options,
    ) -> Result<Self, ConnectError> {
        let not_a_server = |what| ConnectError::NotAServer { server: address.clone(), what };
        let hello = connected.hello;
        let arenas = connected.arenas.iter().enumerate();
        let table = |(shard, arena): (usize, &far::ArenaHeader)| {
            TableRef::parse(hello.region(shard), arena.word(word::REGION_BYTES), arena.page())
        };
        let tables: Option<Vec<TableRef>> = arenas.map(table).collect();
        let tables = tables.ok_or(not_a_server(NO_TABLE))?;
        let is_shared = options.pointer_cache == PointerCacheKind::Shared
            && hello.pointer_table_seed.get() != 0;
        let directory = options.pointer_directory.as_deref();
        let pointer_table =
            is_shared.then(|| PointerTable::of_machine(directory, &hello)).transpose()?;
        let clock = Words::new(Mapping::heap(LINES_BYTES));
        let carrier = Carrier::Far(connected.carrier);
        let large = match connected.large {
            LargeMemory::Region(view) => DataBuffers::region(view),
            LargeMemory::Registered(memory) => {
                let base_bytes = options.data_buffer_bytes;
                DataBuffers::registered(Box::new(ByLoad { memory, base_bytes }), Clock::default())
            }
        };
        Self::new(&hello, clock, connected.to_client, pointer_table, tables, large, carrier)
    }

    pub(super) fn over_parts(parts: Parts) -> Result<Self, ConnectError> {
        let Parts { hello, tables, to_client, large, link, clock: time, pointers } = parts;
        let clock = Words::new(Mapping::heap(LINES_BYTES));
        let large = DataBuffers::region(large);
        let carrier = Carrier::Other(link);
        let pointers = pointers.map(PointerTable::of_parts);
        let connection = Self::new(&hello, clock, to_client, pointers, tables, large, carrier)?;
        Ok(Self { time, ..connection })
    }
}
