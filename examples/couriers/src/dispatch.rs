//! The service itself: couriers say where they are and whether they are free;
//! a customer is told the nearest free ones. Read this as an example of the
//! client library.

use anyhow::Context;
use remora_client_core::{Client, OpenTree, Path, Query, Rect, Session, TreeFound, TreeSettings};

/// The free couriers. Only they are in this tree, so that the nearest
/// in it are the nearest free ones, by any path.
pub const FREE: &[u8] = b"couriers:free";
/// All others.
const BUSY: &[u8] = b"couriers:busy";

/// Makes the two trees, over a space of `edge` times `edge` metres.
pub fn make_trees(session: &mut Session, edge: f64) -> anyhow::Result<()> {
    let bounds = Rect::new(0.0, edge, 0.0, edge)?;
    for tree in [FREE, BUSY] {
        session.create_tree(tree, &TreeSettings { bounds, ..TreeSettings::default() })?;
    }
    Ok(())
}

/// What couriers tell. Each thread has one of its own.
pub struct Reports {
    session: Session,
}

impl Reports {
    /// A session of the process's connection.
    pub fn open(client: &Client) -> anyhow::Result<Self> {
        Ok(Self { session: client.session()? })
    }

    /// A courier is at `(x, y)`. One whose state has changed first leaves the
    /// tree that he was in: for a moment he is in none, never in both.
    pub fn report(
        &mut self,
        courier: u64,
        (x, y): (f64, f64),
        is_free: bool,
        has_changed: bool,
    ) -> anyhow::Result<()> {
        let (tree, other) = if is_free { (FREE, BUSY) } else { (BUSY, FREE) };
        if has_changed {
            self.session.remove_place(other, courier)?;
        }
        // Adds him, or moves him at once for all readers of the tree.
        self.session.put_place(tree, courier, Rect::point(x, y)?, None)?;
        Ok(())
    }
}

/// What customers ask. Each thread has one of its own.
pub struct Customers {
    session: Session,
    free: OpenTree,
    path: Path,
}

impl Customers {
    /// Searches by this path: asks the server, reads its memory, or chooses.
    pub fn open(client: &Client, path: Path) -> anyhow::Result<Self> {
        let mut session = client.session()?;
        let free = session.open_tree(FREE)?.context("the tree is gone")?;
        Ok(Self { session, free, path })
    }

    /// The free couriers nearest to `(x, y)`, the nearest first. What is found
    /// also says how it was obtained, and what it cost.
    pub fn nearest(&mut self, (x, y): (f64, f64), wanted: usize) -> anyhow::Result<TreeFound<'_>> {
        let query = Query::Nearest { x, y, wanted };
        Ok(self.session.search_tree(&mut self.free, &query, self.path)?)
    }
}
