//! Memory of a client that requests name for their replies (RDMA_Mongo 4.3,
//! M14, M15): registered when it is needed, as much as the load allows.

use super::connection::Connection;
use super::load::{LoadMeter, buffer_bytes};
use super::memlock::{Locked, NotRegistered};
use super::registration::{Registration, access};
use crate::locks::lock;
use crate::sync::Mutex;
use remora_arena::{Mapping, ReadView, Words};
use std::sync::Arc;

/// Registers memory for the replies of one connection.
pub struct DataMemory {
    connection: Arc<Connection>,
    meter: Mutex<LoadMeter>,
}

/// Registered memory that the peer may write.
pub struct DataBuffer {
    // Before the memory.
    registration: Registration,
    view: ReadView,
}

impl DataMemory {
    /// For replies over this connection, whose port the meter is for.
    pub(super) fn new(connection: Arc<Connection>, meter: LoadMeter) -> Self {
        Self { connection, meter: Mutex::new(meter) }
    }

    /// Zeroed memory of so many bytes, registered for the peer to write.
    ///
    /// # Errors
    /// The device, or the limit of locked memory, does not allow it.
    pub fn register(&self, bytes: usize) -> Result<DataBuffer, NotRegistered> {
        let words = Words::new(Mapping::heap(bytes));
        let registration = Registration::of(self.connection.domain(), &words, access::WRITE)?;
        Ok(DataBuffer { registration, view: words.view() })
    }

    /// How many bytes there should be at most, where there are `held` now: by
    /// formula (1) for `base`, and by the limit of locked memory.
    pub fn limit_bytes(&self, base: usize, held: usize) -> usize {
        let by_load = buffer_bytes(base, lock(&self.meter).load());
        let room = Locked::now().room();
        by_load.min(room.map_or(usize::MAX, |room| held.saturating_add(room as usize)))
    }
}

impl DataBuffer {
    /// The memory, which the peer writes.
    pub fn view(&self) -> &ReadView {
        &self.view
    }

    /// Address of its first byte, for requests.
    pub fn address(&self) -> u64 {
        self.registration.address()
    }

    /// Its key, for requests.
    pub fn key(&self) -> u32 {
        self.registration.rkey()
    }
}
