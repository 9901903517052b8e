//! Trees of the thread's own shard: what is read of them where they lie.

use crate::resp::tests::world::{World, add_row};

/// What the shard's own thread reads where it lies is what other threads copy.
#[test]
fn the_own_shards_tree_is_read_where_it_lies() {
    let (mut own, mut other) = (World::at_home(1), World::new(1));
    for world in [&mut own, &mut other] {
        add_row(world, 3_000);
        // It learns where the tree is.
        (0..2).for_each(|_| drop(world.call(0, "RTREE.SEARCH t 7 0 8 1\r\n")));
    }
    let (before, _) = own.reads();
    let searches: Vec<String> = (0..40)
        .map(|at| format!("RTREE.SEARCH t {at} 0 {} 1 WITHRECT\r\n", at * 20))
        .chain(["RTREE.COUNT t 7 0 18 1\r\n", "RTREE.NEAREST t 7.2 0 9\r\n"].map(Into::into))
        .collect();
    for (round, change) in
        ["", "RTREE.REM t 9\r\n", "RTREE.ADDPOINT t 7 900 0\r\n"].iter().enumerate()
    {
        for world in [&mut own, &mut other] {
            drop(world.call(0, change));
        }
        for search in &searches {
            assert_eq!(own.call(0, search).0, other.call(0, search).0, "{round}: {search}");
        }
    }
    assert_eq!(own.reads(), (before + 3 * searches.len() as u64, 0), "all were read");
}
