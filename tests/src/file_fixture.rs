//! `remora import` and `remora export` against a server.

use crate::{Finished, ServerProcess, remora, run};
use remora_client_core::{Predicate, Query, Rect};
use std::collections::BTreeMap;
use std::path::Path;
use tempfile::TempDir;

/// A server of two shards, and files beside it.
pub struct FileFixture {
    /// The server.
    pub server: ServerProcess,
    directory: TempDir,
}

impl Default for FileFixture {
    fn default() -> Self {
        Self::new()
    }
}

impl FileFixture {
    /// A fresh one.
    pub fn new() -> Self {
        let server = ServerProcess::start(&["--shards=2"]);
        Self { server, directory: tempfile::tempdir().unwrap() }
    }

    /// Where the files are.
    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    /// Writes a file.
    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        std::fs::write(self.path().join(name), bytes).unwrap();
    }

    /// Reads a file.
    pub fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path().join(name)).unwrap()
    }

    /// Runs `remora` with these words, among the files.
    pub fn run(&self, line: &str) -> Finished {
        let mut command = remora();
        command.args(line.split_whitespace()).arg("--server").arg(self.server.socket());
        command.current_dir(self.path());
        run(&mut command)
    }

    /// The same; it has to succeed.
    pub fn good(&self, line: &str) -> Finished {
        let finished = self.run(line);
        assert_eq!(finished.code, Some(0), "{line}: {}{}", finished.out, finished.err);
        finished
    }

    /// The digest of what a key holds.
    pub fn digest_of(&self, key: &str) -> String {
        let digest = self.server.resp().call(&format!("DEBUG DIGEST-VALUE {key}"));
        format!("{digest:?}")
    }

    /// Everything in a tree: places and bytes by their ids.
    pub fn objects(&self, tree: &str) -> BTreeMap<u64, (Rect, Option<Vec<u8>>)> {
        let mut session = self.server.session();
        let name = tree.as_bytes();
        let mut view = session.open_tree(name).unwrap().expect("the tree is there");
        let window = Rect::new(f64::MIN, f64::MAX, f64::MIN, f64::MAX).unwrap();
        let query = Query::Window { window, predicate: Predicate::Within };
        let found = session
            .search_tree(&mut view, &query, remora_client_core::Path::Read)
            .unwrap()
            .objects
            .to_vec();
        let objects = found.into_iter().map(|object| {
            let place = session.place(name, object.word).unwrap().expect("it was found");
            (object.word, (place.rect, place.data.map(<[u8]>::to_vec)))
        });
        objects.collect()
    }
}
