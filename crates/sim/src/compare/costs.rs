//! The costs in a compared world, and the source of each number.
//!
//! ```text
//!   thread --> machine's port --> server's port --> [agent] --> memory, rings
//!   thread <-- machine's port <-- server's port <---------------+
//! ```
//! Every arrow into a port or thread is a stage that serves one operation at a
//! time. A port has one stage for each direction.

use remora_fabric::sim::{SimCosts, SimHop, SimStage};
use std::sync::Arc;

/// The cost of a READ for the server's agent, on a transport that has one.
#[derive(Clone, Copy, Debug)]
pub struct AgentCosts {
    /// For each READ or WRITE, ns.
    pub op_ns: u64,
    /// For each byte that a READ fetches, ps.
    pub byte_ps: u64,
}

/// A set of parameters. Times are of one thread or port.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    /// Its name.
    pub name: &'static str,
    /// From port to port, one way, ns.
    pub latency_ns: u64,
    /// The server's port, for each byte in each direction, ps.
    pub server_byte_ps: u64,
    /// The server's port, for each operation that comes in, ns.
    pub server_op_ns: u64,
    /// A client machine's port, for each operation that it posts, ns.
    pub machine_post_ns: u64,
    /// A client machine's serial part of each READ that completes, ns.
    pub machine_read_ns: u64,
    /// A client machine's port, for each byte that comes in, ps.
    pub machine_byte_ps: u64,
    /// A client's thread: for each READ that completes, its check included, ns.
    pub thread_read_ns: u64,
    /// A client's thread: for each byte that it checks or decodes, ps.
    pub thread_byte_ps: u64,
    /// A client's thread: for each request with its reply, ns.
    pub thread_ask_ns: u64,
    /// A client's thread: between two operations, ns.
    pub thread_op_ns: u64,
    /// If READs cost the server's CPU: a thread beside the shards.
    pub agent: Option<AgentCosts>,
    /// A shard: for each request, ns.
    pub request_ns: u64,
    /// A shard: for each node that a search visits, ns.
    pub node_ns: u64,
    /// A shard: for each byte of a reply, ps.
    pub reply_byte_ps: u64,
    /// Bytes of headers of each message on the wire.
    pub header_bytes: u64,
}

/// One host. Measured here (docs/performance.md): a request of a key keeps a
/// shard 0.21 us (4.68 M/s with 32 outstanding) and takes 0.78 us in all; a
/// search of 7 nodes keeps it 1.89 us, of which 0.21 are the request's: 0.24
/// for each node. A client that reads 3 nodes of 1264 bytes needs 1.67 us:
/// 0.35 and 160 ps a byte. Memory carries about 10 bytes in a ns. No port is
/// in between: a READ is a copy.
pub const SHM: Costs = Costs {
    name: "shm",
    latency_ns: 150,
    server_byte_ps: 100,
    server_op_ns: 0,
    machine_post_ns: 0,
    machine_read_ns: 0,
    machine_byte_ps: 0,
    thread_read_ns: 150,
    thread_byte_ps: 160,
    thread_ask_ns: 120,
    thread_op_ns: 50,
    agent: None,
    request_ns: 210,
    node_ns: 240,
    reply_byte_ps: 100,
    header_bytes: 0,
};

/// RDMA of 100 Gbps. A READ takes 1.9 us, ports carry 11 bytes in a ns and
/// take 40 M operations a second (calibration: EDR InfiniBand through one
/// switch, and mlx5's measured bandwidth); posting costs 100 ns, polling 60. A
/// shard's request costs 0.6 us: 0.21 as over shared memory, and a posted
/// WRITE with its completion and the immediate's, 0.4.
pub const RDMA: Costs = Costs {
    name: "rdma",
    latency_ns: 850,
    server_byte_ps: 91,
    server_op_ns: 25,
    machine_post_ns: 25,
    machine_read_ns: 25,
    machine_byte_ps: 91,
    thread_read_ns: 160,
    thread_byte_ps: 160,
    thread_ask_ns: 220,
    thread_op_ns: 100,
    agent: None,
    request_ns: 600,
    node_ns: 240,
    reply_byte_ps: 100,
    header_bytes: 72,
};

/// TCP over 40 GbE. 40 us for a bare exchange and 3.4 bytes in a ns (the
/// calibration's choice for 40 GbE); 5 us of CPU for a message at either end,
/// half of what an exchange costs under load. The agent executes READs and
/// takes requests in; a shard sends its own replies.
pub const TCP: Costs = Costs {
    name: "tcp",
    latency_ns: 12_000,
    server_byte_ps: 294,
    server_op_ns: 0,
    machine_post_ns: 0,
    machine_read_ns: 0,
    machine_byte_ps: 294,
    thread_read_ns: 5_000,
    thread_byte_ps: 260,
    thread_ask_ns: 5_000,
    thread_op_ns: 100,
    agent: Some(AgentCosts { op_ns: 5_000, byte_ps: 100 }),
    request_ns: 5_210,
    node_ns: 240,
    reply_byte_ps: 200,
    header_bytes: 90,
};

/// One eighth of Catfish's cluster: one of its eight client machines, and for
/// it an eighth of the server. A search asked keeps a core 48.7 us (575.5 Kops
/// on 28 cores at scale 1e-5, less the 7 nodes' 0.3 us each); 28 / 8 cores are
/// four at 8 / 7 of that. Reading is bound by the client machine: 2.115 us a
/// READ (532.7 Kops at 7.1 nodes on eight machines), in which threads take
/// turns. An eighth of the server's port is 1.375 bytes in a ns.
pub const CATFISH: Costs = Costs {
    name: "catfish",
    latency_ns: 850,
    server_byte_ps: 727,
    server_op_ns: 25,
    machine_post_ns: 25,
    machine_read_ns: 2_115,
    machine_byte_ps: 0,
    thread_read_ns: 160,
    thread_byte_ps: 160,
    thread_ask_ns: 220,
    thread_op_ns: 100,
    agent: None,
    request_ns: 53_250,
    node_ns: 343,
    reply_byte_ps: 100,
    header_bytes: 72,
};

/// The two stages of a port: output and input.
#[derive(Clone, Default, Debug)]
pub struct Port {
    /// Out of the machine.
    pub out: SimStage,
    /// Into the machine.
    pub into: SimStage,
}

/// The resources that one thread's operations pass.
#[derive(Clone, Copy, Debug)]
pub struct Way<'w> {
    /// The server's port.
    pub server: &'w Port,
    /// The server's agent.
    pub agent: &'w SimStage,
    /// The port of the thread's machine.
    pub machine: &'w Port,
    /// The thread.
    pub thread: &'w SimStage,
}

impl Costs {
    /// Costs of the link by which a thread reads and asks.
    pub fn from_client(&self, way: Way<'_>) -> Arc<SimCosts> {
        let mut there = vec![
            SimHop {
                stage: Some(way.machine.out.clone()),
                read_ns: self.machine_post_ns,
                write_ns: self.machine_post_ns,
                after_ns: self.latency_ns,
                byte_ps: self.machine_byte_ps,
            },
            SimHop {
                stage: Some(way.server.into.clone()),
                read_ns: self.server_op_ns,
                write_ns: self.server_op_ns,
                byte_ps: self.server_byte_ps,
                after_ns: 0,
            },
        ];
        let out = SimHop {
            stage: Some(way.server.out.clone()),
            byte_ps: self.server_byte_ps,
            after_ns: self.latency_ns,
            ..SimHop::default()
        };
        let mut back = vec![out];
        if let Some(AgentCosts { op_ns, byte_ps }) = self.agent {
            let stage = Some(way.agent.clone());
            let (read_ns, write_ns) = (op_ns, op_ns);
            there.push(SimHop { stage: stage.clone(), read_ns, write_ns, ..SimHop::default() });
            back.insert(0, SimHop { stage, byte_ps, ..SimHop::default() });
        }
        back.push(SimHop {
            stage: Some(way.machine.into.clone()),
            read_ns: self.machine_read_ns,
            byte_ps: self.machine_byte_ps,
            ..SimHop::default()
        });
        back.push(SimHop {
            stage: Some(way.thread.clone()),
            read_ns: self.thread_read_ns,
            byte_ps: self.thread_byte_ps,
            ..SimHop::default()
        });
        let reads_cost_peer_cpu = self.agent.is_some();
        Arc::new(SimCosts { there, back, header_bytes: self.header_bytes, reads_cost_peer_cpu })
    }

    /// Costs of the link by which the server answers a thread.
    pub fn from_server(&self, way: Way<'_>) -> Arc<SimCosts> {
        let there = vec![
            SimHop {
                stage: Some(way.server.out.clone()),
                byte_ps: self.server_byte_ps,
                after_ns: self.latency_ns,
                ..SimHop::default()
            },
            SimHop {
                stage: Some(way.machine.into.clone()),
                byte_ps: self.machine_byte_ps,
                ..SimHop::default()
            },
            SimHop {
                stage: Some(way.thread.clone()),
                write_ns: self.thread_ask_ns,
                byte_ps: self.thread_byte_ps,
                ..SimHop::default()
            },
        ];
        let back = vec![SimHop { after_ns: self.latency_ns, ..SimHop::default() }];
        Arc::new(SimCosts {
            there,
            back,
            header_bytes: self.header_bytes,
            reads_cost_peer_cpu: false,
        })
    }
}
