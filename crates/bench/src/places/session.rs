//! A tree by a session of the client library.

use super::args::{Load, PlacesArgs};
use super::report::Loaded;
use super::target::Places;
use crate::costs::{Costs, costs_of};
use anyhow::{Context, ensure};
use remora_client_core::{
    Client, OpenTree, Path, Predicate, Query, Rect, Session, TreeRead, TreeSettings,
};
use remora_command_line::{Puts, note};
use std::time::{Duration, Instant};

/// Name of the bench's tree. One that is left of a run that was killed is
/// replaced.
pub const TREE: &[u8] = b"remora-bench-places";

/// Loads the tree anew. Gives how long that took.
pub fn load(
    client: &Client,
    args: &PlacesArgs,
    space: &Rect,
    objects: impl Iterator<Item = (u64, Rect)>,
    count: u64,
) -> anyhow::Result<Duration> {
    let mut session = client.session()?;
    session.drop_tree(TREE)?;
    let settings = TreeSettings { kind: args.tree.into(), capacity: args.capacity, bounds: *space };
    ensure!(session.create_tree(TREE, &settings)?, "another run has just made the bench's tree");
    let began = Instant::now();
    let mut noted = began;
    let mut progress = |done: u64| {
        if noted.elapsed() > Duration::from_secs(1) {
            noted = Instant::now();
            note(&format!("loading: {done} of {count} objects"));
        }
    };
    match args.load {
        Load::Bulk => {
            let mut objects = objects;
            session.load_tree(TREE, &mut objects, &mut progress)?;
        }
        Load::Insert => {
            let mut puts = Puts::new(session, TREE);
            for (done, (id, rect)) in objects.enumerate() {
                puts.put(id, rect, None)?;
                progress(done as u64);
            }
            puts.settle()?;
        }
    }
    let took = began.elapsed();
    note(&format!("loaded {count} objects in {:.2} s", took.as_secs_f64()));
    Ok(took)
}

/// The known state of the tree.
pub fn loaded(client: &Client, took: Duration) -> anyhow::Result<Loaded> {
    let info = client.session()?.tree_info(TREE)?.context("the bench's tree is gone")?;
    let (bytes, index_bytes) = (info.node_bytes, info.index_bytes);
    Ok(Loaded { objects: info.objects, height: info.height, bytes, index_bytes, took })
}

/// A session, its view of the tree, and the path that searches take.
pub struct SessionPlaces {
    session: Session,
    tree: OpenTree,
    path: Path,
}

impl SessionPlaces {
    /// A session of a connection, and a tree that is there.
    pub fn open(client: &Client, tree: &[u8], path: Path, read: TreeRead) -> anyhow::Result<Self> {
        let mut session = client.session()?;
        let tree = session.open_tree(tree)?.context("the tree is gone")?;
        Ok(Self { session, tree: tree.reading(read), path })
    }
}

impl Places for SessionPlaces {
    fn search(
        &mut self,
        window: &Rect,
        see: &mut dyn FnMut(u64, Option<&Rect>),
    ) -> anyhow::Result<Option<u64>> {
        let query = Query::Window { window: *window, predicate: Predicate::Intersects };
        let found = self.session.search_tree(&mut self.tree, &query, self.path)?;
        found.objects.iter().for_each(|object| see(object.word, Some(&object.rect)));
        Ok(Some(found.nodes_visited))
    }

    fn put(&mut self, id: u64, rect: Rect) -> anyhow::Result<bool> {
        Ok(self.session.put_place(self.tree.name(), id, rect, None)?)
    }

    fn costs(&self) -> Costs {
        costs_of(&self.session)
    }
}
