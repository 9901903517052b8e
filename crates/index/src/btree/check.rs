//! Looks at every node of a tree for broken invariants.

use super::tree::Tree;
use remora_arena::{Journal, Owner};
use remora_layout::btree::{Expected, OrderedNode};
use remora_layout::limits::MAX_ORDERED_KEY_BYTES;
use remora_layout::node::{NodeRef, Proof};

/// A broken invariant.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the node at {at:?}: {what}")]
pub struct Broken {
    /// The node.
    pub at: NodeRef,
    /// What is wrong with it.
    pub what: &'static str,
}

/// What a level holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Shape {
    /// Its nodes.
    pub nodes: u64,
    /// Their entries.
    pub entries: u64,
    /// Their used bytes.
    pub bytes: u64,
    /// Those of its nodes that are deep.
    pub deep: u64,
    /// The entries of these.
    pub deep_entries: u64,
}

/// A walk over all nodes, in the order of keys.
struct Check<'a, J: Journal> {
    tree: &'a Tree,
    owner: &'a Owner<J>,
    levels: Vec<Shape>,
    /// The right links of the nodes of each level behind which the next one comes.
    links: Vec<Vec<Option<NodeRef>>>,
}

fn demand(holds: bool, at: NodeRef, what: &'static str) -> Result<(), Broken> {
    if holds { Ok(()) } else { Err(Broken { at, what }) }
}

impl Tree {
    /// Checks all invariants; gives what each level holds, from the leaves up.
    ///
    /// # Errors
    /// The first broken one.
    pub fn check<J: Journal>(&self, owner: &Owner<J>) -> Result<Vec<Shape>, Broken> {
        let height = self.header.height as usize;
        let levels = vec![Shape::default(); height];
        let mut check = Check { tree: self, owner, levels, links: vec![Vec::new(); height] };
        let root = self.header.root;
        let keys = check.node(root, self.header.height - 1, &[], None)?;
        demand(keys == self.keys, root, "the tree has another number of keys")?;
        let mut links = check.links.iter().flatten();
        demand(links.all(Option::is_none), root, "a level's last node has a link")?;
        let deep: u64 = check.levels.iter().map(|level| level.deep).sum();
        demand(deep == self.mending.deep_nodes(), root, "a deep node is not known")?;
        let is_known = check.levels.iter().enumerate().all(|(level, shape)| {
            let known = self.shapes.at(level);
            // Entries of leaves are keys.
            let entries = if level == 0 { 0 } else { shape.entries - shape.deep_entries };
            (known.nodes, known.deep, known.entries) == (shape.nodes, shape.deep, entries)
        });
        demand(is_known, root, "what a level holds is not known")?;
        let nodes: u64 = check.levels.iter().map(|level| level.nodes).sum();
        demand(nodes == self.pool.used(), root, "a node is not in the tree")?;
        Ok(check.levels)
    }
}

impl<J: Journal> Check<'_, J> {
    /// Checks a node and all below it, which are for these keys; gives their keys.
    fn node(
        &mut self,
        at: NodeRef,
        level: u8,
        low: &[u8],
        high: Option<&[u8]>,
    ) -> Result<u64, Broken> {
        let options = &self.tree.options;
        let bytes = self.owner.slice(at.offset(), options.node_bytes);
        let expected = Expected { at: Some(at), tree: self.tree.at, level };
        let node = OrderedNode::verify(bytes, self.tree.home, expected, Proof::Checksum);
        let node = node.map_err(|_| Broken { at, what: "it does not prove itself" })?;
        demand(node.low() == low && node.high() == high, at, "its fences are not its parent's")?;
        demand(node.entries() <= options.fan_out, at, "it has too many entries")?;
        demand(node.keys() == options.keys, at, "its keys have another form")?;
        let shape = &mut self.levels[level as usize];
        shape.nodes += 1;
        shape.deep += u64::from(node.is_deep());
        shape.entries += node.entries() as u64;
        if node.is_deep() {
            shape.deep_entries += node.entries() as u64;
        }
        shape.bytes += node.used_bytes() as u64;
        // Below a deep node its first child is not where links lead.
        let mut links = self.links[level as usize].drain(..);
        let is_led_to = links.all(|link| link == Some(at));
        demand(is_led_to, at, "a link of its left neighbours misses it")?;
        drop(links);
        demand(
            node.is_deep() == self.tree.mending.is_deep(at),
            at,
            "it is deep, or not, and the owner does not know",
        )?;
        let keys = keys_of(&node);
        let ascend = keys.windows(2).all(|pair| pair[0] < pair[1]);
        demand(ascend, at, "its keys do not ascend")?;
        if node.is_leaf() {
            self.links[0].push(node.right());
            let are_inside = keys.iter().all(|key| node.place_of(key).is_eq());
            demand(are_inside, at, "a key is not between its fences")?;
            return Ok(keys.len() as u64);
        }
        demand(!keys.is_empty(), at, "it has no child")?;
        let mut below = 0;
        for index in 0..keys.len() {
            let child = node.child(index).expect("an entry");
            let from = if index == 0 { low } else { &keys[index][..] };
            let to = keys.get(index + 1).map(|key| &key[..]).or(high);
            let count = self.node(child, node.child_level(), from, to)?;
            let stored = self.owner.word(self.tree.count_word(at, index));
            demand(stored == count, at, "a count is not that of the child's keys")?;
            below += count;
        }
        self.links[level as usize].push(node.right());
        Ok(below)
    }
}

fn keys_of(node: &OrderedNode<'_>) -> Vec<Vec<u8>> {
    let mut key = [0; MAX_ORDERED_KEY_BYTES];
    let keys =
        (0..node.entries()).map(|index| node.key(index, &mut key).expect("an entry").to_vec());
    keys.collect()
}
