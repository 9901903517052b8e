//! The ring pairs of one process, one for each shard.

use crate::sync::{AtomicU32, Mutex};
use remora_arena::ReadView;
use remora_fabric::AnyLink;
use remora_index::hash::TableRef;
use remora_layout::frame::ring_seed;
use remora_layout::hello::ServerHello;
use remora_layout::immediate;
use remora_layout::session::{credit_word, ring_offset};
use remora_ring::{Receiver, Sender};

/// One ring pair: this process's ends at one shard.
pub(crate) struct Lane {
    pub sender: Mutex<Sender>,
    pub receiver: Mutex<Receiver>,
    pub credit_word: usize,
    /// Credit goes by this link alone, once there is some: that of an earlier
    /// reply must not arrive after that of a later one, and only the operations
    /// of one link are ordered.
    pub credit_link: Mutex<Option<AnyLink>>,
    /// The shard's table, as it was when the process connected.
    pub table: TableRef,
    /// Requests whose replies nobody has taken out of the ring.
    pub outstanding: AtomicU32,
}

/// The ends of all ring pairs.
pub(crate) fn lanes(hello: &ServerHello, to_client: &ReadView, tables: Vec<TableRef>) -> Vec<Lane> {
    let mailbox = tables.len() as u32;
    let seed = hello.session_seed.get();
    let lane = |(number, table): (usize, TableRef)| {
        let ring = ring_offset(number);
        let sender = Sender::new(mailbox, ring as u64, ring_seed(seed, number, 0));
        let receiver = Receiver::new(to_client.clone(), ring, ring_seed(seed, number, 1));
        Lane {
            // The immediate wakes the shard.
            sender: Mutex::new(
                sender.with_immediate(immediate::of(immediate::Kind::Request, number)),
            ),
            receiver: Mutex::new(receiver),
            credit_word: credit_word(number),
            credit_link: Mutex::new(None),
            table,
            outstanding: AtomicU32::new(0),
        }
    };
    tables.into_iter().enumerate().map(lane).collect()
}
