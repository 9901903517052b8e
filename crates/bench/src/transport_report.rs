//! The part of a report about the transport.

use remora_client_core::Client;

/// The transport of a run.
#[derive(Clone, Copy, Debug)]
pub struct TransportReport {
    /// Its name.
    pub name: &'static str,
    /// The kernel plays the RDMA device.
    pub is_software_rdma: bool,
    /// Over RDMA.
    pub queue_pairs: Option<QueuePairs>,
}

/// Queue pairs of the client's process (H41).
#[derive(Clone, Copy, Debug)]
pub struct QueuePairs {
    /// That it has.
    pub now: usize,
    /// That it would have if each of its threads had one to each shard.
    pub unshared: usize,
}

impl TransportReport {
    /// By this, and no RDMA device.
    pub fn by(name: &'static str) -> Self {
        Self { name, is_software_rdma: false, queue_pairs: None }
    }

    /// By connections such as this client's, which so many threads share.
    pub fn of(client: &Client, connections: usize, threads: usize) -> Self {
        let transport = client.transport();
        let queue_pairs = (transport == remora_fabric::Transport::Verbs)
            .then_some(QueuePairs { now: connections, unshared: threads * client.shards() });
        let is_software_rdma = client.rdma_device().is_some_and(remora_fabric::verbs::is_software);
        Self { name: transport.name(), is_software_rdma, queue_pairs }
    }
}
