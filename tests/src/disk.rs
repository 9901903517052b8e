//! A disk that fails and loses its power, for a real server: the layer of `remora crash`.

use crate::server::ServerProcess;
use remora_crash::{Fault, Layer};
use std::path::PathBuf;
use tempfile::TempDir;

/// A data directory that lies on such a disk.
pub struct UnreliableDisk {
    layer: Layer,
    data: PathBuf,
    _directory: TempDir,
}

impl UnreliableDisk {
    /// An empty one, which works.
    #[allow(clippy::new_without_default)]
    pub fn new() -> Self {
        let directory = TempDir::new().expect("a directory");
        let path = directory.path().canonicalize().expect("it is there");
        let (data, home) = (path.join("data"), path.join("layer"));
        std::fs::create_dir(&data).expect("a directory");
        let layer = Layer::build(&data, &home).expect("the layer");
        Self { layer, data, _directory: directory }
    }

    /// Starts a server on it.
    pub fn serve(&self, flags: &[&str]) -> ServerProcess {
        ServerProcess::start_with_environment(&self.data, &self.layer.environment(), flags)
    }

    /// Lets it be bad from now on, or good again.
    pub fn set_fault(&self, fault: Option<Fault>) {
        self.layer.set_fault(fault).expect("the layer's control");
    }

    /// Cuts the power, once the server was killed.
    pub fn cut_power(&mut self, seed: u64) {
        self.layer.cut_power(seed).expect("the layer's journal");
    }

    /// The data directory.
    pub fn data(&self) -> &std::path::Path {
        &self.data
    }
}
