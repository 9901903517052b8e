//! The choice of the nodes that are worth having at hand (F12 to F14, F22, F31).

use remora_index::btree::{FatRoot, FatRootLimits, Weighed};
use remora_testing::Random;

fn node(parent: Option<usize>, ranges: usize, visits: u64) -> Weighed {
    Weighed { parent, ranges, visits }
}

fn ranges(ranges: usize) -> FatRootLimits {
    FatRootLimits { ranges, ..FatRootLimits::nodes(usize::MAX) }
}

/// Figure 4(i): {k7}, {k11, k13, k16}, {k8, k9, k10} and {k14, k15} make a fat root of 9 keys, which
/// tell 10 ranges apart (F13).
#[test]
fn the_papers_example_has_nine_keys() {
    let nodes = [
        node(None, 2, 100),   // {k7}
        node(Some(0), 3, 20), // left of k7: two keys
        node(Some(0), 4, 80), // {k11, k13, k16}
        node(Some(2), 4, 40), // {k8, k9, k10}
        node(Some(2), 2, 5),  // {k12}
        node(Some(2), 3, 30), // {k14, k15}
        node(Some(2), 3, 5),
    ];
    let chosen = FatRoot::choose(&nodes, ranges(10));
    assert_eq!((chosen.merged, chosen.ranges), (vec![0, 2, 3, 5], 10));
}

/// Random nodes below a root, each with so many ranges, and never more visits than their parents.
fn family(random: &mut Random, count: usize, ranges: usize) -> Vec<Weighed> {
    let mut nodes = vec![node(None, ranges, 1_000)];
    let mut left = vec![(1_000u64, ranges)];
    while nodes.len() < count {
        let parent = random.below(nodes.len());
        let (visits, children) = &mut left[parent];
        if *children == 0 || *visits == 0 {
            continue;
        }
        let share = random.below(*visits) + 1;
        (*visits, *children) = (*visits - share, *children - 1);
        nodes.push(node(Some(parent), ranges, share));
        left.push((share, ranges));
    }
    nodes
}

/// Among all sets of full nodes that fit, none saves more visits: III-B says so, and here every set is
/// tried.
#[test]
fn where_nodes_are_full_no_choice_saves_more() {
    let mut random = Random::new(1);
    let mut refused = 0;
    for _ in 0..200 {
        let nodes = family(&mut random, 11, 4);
        let most = random.below(30usize) + 4;
        let chosen = FatRoot::choose(&nodes, ranges(most));
        assert!(chosen.ranges <= most);
        let saved = |set: &mut dyn Iterator<Item = usize>| -> u64 {
            set.map(|index| nodes[index].visits).sum()
        };
        let best = (1u32..1 << nodes.len())
            .filter(|set| {
                let is_in = |index: usize| set >> index & 1 == 1;
                let is_whole = |index: usize| nodes[index].parent.is_none_or(is_in);
                let members = (0..nodes.len()).filter(|&index| is_in(index));
                3 * (set.count_ones() as usize) < most && members.clone().all(is_whole)
            })
            .map(|set| saved(&mut (0..nodes.len()).filter(|index| set >> index & 1 == 1)));
        assert_eq!(saved(&mut chosen.nodes()), best.max().unwrap_or(0));
        refused += u64::from(chosen.merged.len() < nodes.len());
    }
    assert!(refused > 50, "{refused} were limited");
}

/// A chain of single children of a full root, so that depth alone decides (F14).
#[test]
fn the_limit_of_depth_leaves_deep_nodes_to_the_layers() {
    let chain: Vec<Weighed> =
        (0..6).map(|depth: usize| node(depth.checked_sub(1), 2, 100 - depth as u64)).collect();
    let limits = FatRootLimits { depth: 3, layers: 2, layer_nodes: 9, ..ranges(600) };
    let chosen = FatRoot::choose(&chain, limits);
    assert_eq!(chosen.merged, [0, 1, 2]);
    assert_eq!(chosen.layers, [vec![3], vec![4]]);
    assert_eq!(FatRoot::choose(&chain, ranges(600)).merged.len(), 6);
}

/// Of each layer the most visited nodes, and only below those of the layer before (F22).
#[test]
fn layers_have_the_most_visited_children_of_the_layer_before() {
    let nodes = [
        node(None, 3, 100),
        node(Some(0), 3, 50),
        node(Some(0), 3, 30),
        node(Some(0), 3, 20),
        node(Some(1), 3, 10),
        node(Some(3), 3, 19),
        node(Some(1), 3, 40),
        node(Some(2), 3, 15),
    ];
    let limits =
        FatRootLimits { ranges: 3, layers: 2, layer_nodes: 2, ..FatRootLimits::nodes(usize::MAX) };
    let chosen = FatRoot::choose(&nodes, limits);
    assert_eq!((&chosen.merged[..], &chosen.layers[..]), (&[0][..], &[vec![1, 2], vec![6, 7]][..]));
    // Node 5 is visited more than node 7, but its parent is not at hand.
    let few = FatRoot::choose(&nodes, FatRootLimits { nodes: 4, ..limits });
    assert_eq!(few.nodes().collect::<Vec<_>>(), [0, 1, 2, 6]);
}

/// Several trees: the super-root tells their roots apart, and is the first node of the queue (F31).
#[test]
fn the_trees_of_several_servers_share_one_fat_root() {
    let nodes = [node(None, 4, 10), node(None, 4, 70), node(None, 4, 20), node(Some(1), 4, 60)];
    // Three ranges of the super-root; three more for each merged node.
    let chosen = FatRoot::choose(&nodes, ranges(9));
    assert_eq!((chosen.merged, chosen.ranges), (vec![1, 3], 9));
    let chosen = FatRoot::choose(&nodes, ranges(12));
    assert_eq!((chosen.merged, chosen.ranges), (vec![1, 3, 2], 12));
}
