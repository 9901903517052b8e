//! A model of one server's threads under an operating system, one thread for
//! each connection (Catfish C18, C19): threads that poll use up their time
//! slices, threads that sleep until an event cost a wake-up.
//!
//! This is a model and not a run of the product, which has as many shards as cores. Each core has
//! its own share of the threads. A connection has one request under way; its next one comes some
//! time after the reply.

use super::work::unit;
use remora_fabric::sim::Random;
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// How long a core is looked at, ns.
const LASTS_NS: u64 = 4_000_000_000;

/// Its parameters; times in ns.
#[derive(Clone, Copy, Debug)]
pub struct Threads {
    /// Cores of the server.
    pub cores: usize,
    /// A time slice, where several threads are ready.
    pub slice_ns: u64,
    /// Cost of a switch between threads.
    pub switch_ns: u64,
    /// Waking a thread that sleeps: an interrupt and the scheduler.
    pub wake_ns: u64,
    /// Serving a request.
    pub service_ns: u64,
    /// From a reply to the next request's arrival, at least.
    pub network_ns: u64,
    /// The client's own work in between, in the mean, of a time that chance
    /// says; 0: none.
    pub pause_ns: u64,
}

impl Default for Threads {
    /// 28 cores as Catfish's server; slices of 3 ms; 1.07 us for a switch and 5
    /// for a wake-up (calibration); a search of 10 us; 1.9 us of network.
    fn default() -> Self {
        Self {
            cores: 28,
            slice_ns: 3_000_000,
            switch_ns: 1_070,
            wake_ns: 5_000,
            service_ns: 10_000,
            network_ns: 1_900,
            pause_ns: 0,
        }
    }
}

/// Mean latencies, ns.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Latencies {
    /// Of threads that poll.
    pub polling: f64,
    /// Of threads that wait for events.
    pub events: f64,
}

/// A mean that grows.
#[derive(Default)]
struct Mean {
    sum_ns: u64,
    count: u64,
}

impl Mean {
    fn add(&mut self, ns: u64) {
        self.sum_ns += ns;
        self.count += 1;
    }
}

impl Threads {
    /// Both, with this many connections, a multiple of the cores or fewer.
    pub fn latencies(&self, connections: usize) -> Latencies {
        let (mut polling, mut events) = (Mean::default(), Mean::default());
        for core in 0..self.cores.min(connections) {
            // Threads are dealt out: the first cores may have one more.
            let threads = (connections - core).div_ceil(self.cores);
            let mut random = Random::new(1 + core as u64);
            self.poll(threads, &mut random, &mut polling);
            self.await_events(threads, &mut random, &mut events);
        }
        let mean = |mean: Mean| mean.sum_ns as f64 / mean.count.max(1) as f64;
        Latencies { polling: mean(polling), events: mean(events) }
    }

    /// When the next request arrives after a reply.
    fn next_ns(&self, replied_ns: u64, random: &mut Random) -> u64 {
        let pause_ns = -(1.0 - unit(random)).ln() * self.pause_ns as f64;
        replied_ns + self.network_ns + pause_ns as u64
    }

    /// One core: threads take turns of a slice each, in which they serve requests that have come or
    /// that come, and otherwise poll.
    fn poll(&self, threads: usize, random: &mut Random, mean: &mut Mean) {
        // The arrival of each thread's request, and its remaining work.
        let mut requests: Vec<(u64, u64)> =
            (0..threads).map(|_| (self.next_ns(0, random), self.service_ns)).collect();
        let (slice_ns, switch_ns) = match threads {
            1 => (LASTS_NS, 0),
            _ => (self.slice_ns, self.switch_ns),
        };
        let mut now_ns = 0;
        while now_ns < LASTS_NS {
            for (arrives_ns, left_ns) in &mut requests {
                let ends_ns = now_ns + slice_ns;
                while *arrives_ns < ends_ns {
                    let begins_ns = now_ns.max(*arrives_ns);
                    let done_ns = (begins_ns + *left_ns).min(ends_ns);
                    *left_ns -= done_ns - begins_ns;
                    now_ns = done_ns;
                    if *left_ns > 0 {
                        break;
                    }
                    mean.add(done_ns - *arrives_ns + self.network_ns);
                    (*arrives_ns, *left_ns) = (self.next_ns(done_ns, random), self.service_ns);
                }
                now_ns = ends_ns + switch_ns;
            }
        }
    }

    /// One core: a request wakes its thread and waits for those before it.
    fn await_events(&self, threads: usize, random: &mut Random, mean: &mut Mean) {
        let mut arrivals: BinaryHeap<Reverse<u64>> =
            (0..threads).map(|_| Reverse(self.next_ns(0, random))).collect();
        let mut free_ns = 0;
        while let Some(Reverse(arrives_ns)) = arrivals.pop()
            && arrives_ns < LASTS_NS
        {
            free_ns = free_ns.max(arrives_ns) + self.wake_ns + self.service_ns;
            mean.add(free_ns - arrives_ns + self.network_ns);
            arrivals.push(Reverse(self.next_ns(free_ns, random)));
        }
    }
}
