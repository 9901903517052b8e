//! The coordinator in memory keeps the contract.

use remora_cluster::conformance::{self, SHORT_SESSION_MS, TestEnsemble};
use remora_cluster::memory::{MemoryCoordinator, MemoryEnsemble};

/// Virtual time, one thread.
struct Virtual {
    ensemble: MemoryEnsemble,
    now_ms: u64,
}

impl TestEnsemble for Virtual {
    type Session = MemoryCoordinator;

    fn new() -> Self {
        Self { ensemble: MemoryEnsemble::new(), now_ms: 0 }
    }

    fn connect(&mut self, session_ms: u64) -> MemoryCoordinator {
        let session = self.ensemble.connect(session_ms);
        self.ensemble.delay(session.link(), 3, 7);
        session
    }

    fn now_ms(&self) -> u64 {
        self.now_ms
    }

    fn step(&mut self) {
        self.now_ms += SHORT_SESSION_MS / 50;
        self.ensemble.advance(self.now_ms);
    }

    fn cut(&mut self, session: &MemoryCoordinator, to: bool, from: bool) {
        self.ensemble.cut(session.link(), to, from);
    }

    fn set_quorum(&mut self, has_quorum: bool) {
        self.ensemble.set_quorum(has_quorum);
    }

    fn overwrite(&mut self, bytes: Vec<u8>) {
        self.ensemble.overwrite(bytes);
    }
}

#[test]
fn the_coordinator_in_memory_conforms() {
    conformance::run::<Virtual>();
}
