//! The Hilbert R-tree (Catfish 5.2.3, C6; Kamel and Faloutsos, VLDB 1994): entries stand in the
//! order of the Hilbert values of their centres, and a full node shares with a neighbour before two
//! are split into three.
//!
//! Each node carries its largest Hilbert value (LHV). The paper's sequence number (LSN) serves its
//! many writers; here there is one writer, and readers use versions and `left_at`.

use super::change::Change;
use super::geometry::mbr;
use super::way::Path;
use remora_arena::{ArenaFull, Journal};
use remora_layout::node::{Entry, NodeRef};
use remora_layout::rect::Rect;

/// Bits of a coordinate on the curve.
const ORDER: u8 = 32;

/// The Hilbert value of a rectangle's middle, on a curve that fills `bounds`.
/// What lies outside counts as on the edge.
pub(super) fn value(rect: &Rect, bounds: &Rect) -> u64 {
    let (x, y) = rect.centre();
    let scale = |at: f64, min: f64, max: f64| {
        let part = (at * 0.5 - min * 0.5) / (max * 0.5 - min * 0.5);
        // Casts saturate, and what is no number becomes 0.
        (part * (1u64 << ORDER) as f64) as u32
    };
    curve(scale(x, bounds.min_x, bounds.max_x), scale(y, bounds.min_y, bounds.max_y))
}

/// The position of a cell on the curve.
fn curve(x: u32, y: u32) -> u64 {
    fast_hilbert::xy2h(x, y, ORDER)
}

impl<J: Journal> Change<'_, '_, J> {
    /// The Hilbert value that an entry of a node of `level` is sorted by.
    fn value_of(&self, entry: &Entry, level: u8) -> u64 {
        match level {
            0 => value(&entry.rect, &self.header.bounds),
            _ => self.edit.lhv(self.arena.owner, NodeRef::from_word(entry.word)),
        }
    }

    /// The id of the last object below an entry of a node of `level`.
    fn last_id(&self, entry: &Entry, level: u8) -> u64 {
        let mut last = *entry;
        // Bounded: each turn is nearer to a leaf.
        for _ in 0..level {
            let entries = self.entries(NodeRef::from_word(last.word));
            last = *entries.last().expect("a node below another one has entries");
        }
        last.word
    }

    /// Adds an object. Objects with one Hilbert value stand in the order of their ids.
    pub fn put_in_order(&mut self, entry: Entry) -> Result<(), ArenaFull> {
        let hilbert = self.value_of(&entry, 0);
        let mut path = Path::with_capacity(self.header.height as usize);
        let mut at = self.header.root;
        for level in (1..self.header.height).rev() {
            let entries = self.entries(at);
            let after = entries.partition_point(|way| match self.value_of(way, level) {
                value if value == hilbert => self.last_id(way, level) < entry.word,
                value => value < hilbert,
            });
            let index = after.min(entries.len() - 1);
            path.push((at, index));
            at = NodeRef::from_word(entries[index].word);
        }
        let entries = self.entries(at);
        let place = (hilbert, entry.word);
        let index = entries.partition_point(|known| (self.value_of(known, 0), known.word) <= place);
        self.entries_mut(at).insert(index, entry);
        self.go_up_in_order(at, path)
    }

    /// Removes the entry at the end of a way.
    pub fn take_out_in_order(&mut self, mut path: Path) -> Result<(), ArenaFull> {
        let (at, index) = path.pop().expect("a way ends at a leaf");
        self.entries_mut(at).remove(index);
        self.go_up_in_order(at, path)
    }

    /// Makes everything above a changed node right again.
    fn go_up_in_order(&mut self, mut at: NodeRef, mut path: Path) -> Result<(), ArenaFull> {
        let mut level = 0;
        loop {
            let lhv = self.entries(at).last().map_or(0, |last| self.value_of(last, level));
            self.edit.set_lhv(self.arena.owner, at, lhv);
            let count = self.entries(at).len();
            let Some((parent, index)) = path.pop() else {
                if count > self.header.capacity as usize {
                    let sibling = self.new_node(level)?;
                    self.share(&[at, sibling], level);
                    self.grow_root(at, sibling, level)?;
                    let (root, lhv) = (self.header.root, self.edit.lhv(self.arena.owner, sibling));
                    self.edit.set_lhv(self.arena.owner, root, lhv);
                }
                return Ok(());
            };
            if count > self.header.capacity as usize || count < self.least {
                self.share_with_neighbour(parent, index, level)?;
            } else {
                let rect = mbr(self.entries(at));
                if self.entries(parent)[index].rect != rect {
                    self.entries_mut(parent)[index].rect = rect;
                }
            }
            (at, level) = (parent, level + 1);
        }
    }

    /// A child with too many or too few entries and a neighbour share what they
    /// have: among one node if that is enough, else two, else three.
    fn share_with_neighbour(
        &mut self,
        parent: NodeRef,
        index: usize,
        level: u8,
    ) -> Result<(), ArenaFull> {
        let child =
            |change: &Self, index: usize| NodeRef::from_word(change.entries(parent)[index].word);
        // The emptier neighbour.
        let neighbours = [index.checked_sub(1), Some(index + 1)];
        let first = neighbours
            .into_iter()
            .flatten()
            .filter(|&other| other < self.entries(parent).len())
            .min_by_key(|&other| self.entries(child(self, other)).len())
            .expect("an inner node has two children at least")
            .min(index);
        let pair = [child(self, first), child(self, first + 1)];
        let total: usize = pair.iter().map(|&node| self.entries(node).len()).sum();
        let capacity = self.header.capacity as usize;
        let mut nodes = pair.to_vec();
        if total <= capacity {
            let mut rest = std::mem::take(self.entries_mut(pair[1]));
            self.entries_mut(pair[0]).append(&mut rest);
            self.free_node(pair[1]);
            nodes.pop();
        } else if total > 2 * capacity {
            nodes.push(self.new_node(level)?);
        }
        self.share(&nodes, level);
        let ways: Vec<Entry> = nodes
            .iter()
            .map(|&node| Entry { rect: mbr(self.entries(node)), word: node.to_word() })
            .collect();
        self.entries_mut(parent).splice(first..first + 2, ways);
        Ok(())
    }

    /// Shares the entries of neighbours evenly, in their order.
    fn share(&mut self, nodes: &[NodeRef], level: u8) {
        let mut all = Vec::new();
        for &node in nodes {
            all.append(self.entries_mut(node));
        }
        let (each, more) = (all.len() / nodes.len(), all.len() % nodes.len());
        let mut rest = all.into_iter();
        for (position, &node) in nodes.iter().enumerate() {
            let count = each + (position < more) as usize;
            self.entries_mut(node).extend(rest.by_ref().take(count));
            let lhv = self.entries(node).last().map_or(0, |last| self.value_of(last, level));
            self.edit.set_lhv(self.arena.owner, node, lhv);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_curve_goes_from_cell_to_cell() {
        // The cells of the finest 16 by 16 corner, by where the curve comes by.
        let mut cells: Vec<(u64, u32, u32)> =
            (0..256).map(|cell| (curve(cell % 16, cell / 16), cell % 16, cell / 16)).collect();
        cells.sort();
        for pair in cells.windows(2) {
            assert_eq!(pair[1].0, pair[0].0 + 1);
            assert_eq!(pair[0].1.abs_diff(pair[1].1) + pair[0].2.abs_diff(pair[1].2), 1);
        }
    }

    #[test]
    fn everything_has_a_value() {
        let unit = Rect::new(0.0, 1.0, 0.0, 1.0).unwrap();
        let far = Rect::point(1e300, f64::MIN).unwrap();
        assert_eq!(value(&far, &unit), value(&Rect::point(1.0, 0.0).unwrap(), &unit));
        let point = Rect::default();
        assert_eq!(value(&point, &point), 0);
    }
}
