//! Addresses that others hold: what is asked for, and inner nodes as they are handed out.

use crate::items::Items;
use crate::message::Status;
use remora_layout::btree::{CHILD_INFO_WORDS, ChildInfo, InnerNode, NODE_INFO_WORDS, NodeInfo};
use remora_layout::limits::{MAX_HELD_LEVELS, MAX_HOLD_BYTES, MAX_HOLD_MS, WORD_BYTES};
use remora_layout::node::NodeRef;

/// Which inner nodes are to be handed out, and how long the addresses of their children are held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OrderedHold {
    /// The epoch that holds the addresses; its holder's choice. The same one again holds more, and
    /// for longer.
    pub epoch: u64,
    /// From the request on, in ms, at most [`MAX_HOLD_MS`].
    pub for_ms: u64,
    /// Levels of inner nodes, from the top, at most [`MAX_HELD_LEVELS`]. 0 only holds for longer what
    /// the epoch holds.
    pub levels: usize,
    /// Bytes of the reply, at most [`MAX_HOLD_BYTES`]; nodes that it has no room for are not handed
    /// out. The first one is, whatever it takes.
    pub most_bytes: usize,
    /// A node whose address the epoch holds, at which they begin; `None`: at the root.
    pub below: Option<NodeRef>,
}

/// Words of an encoded [`OrderedHold`].
const HOLD_WORDS: usize = 5;

fn words_of<const N: usize>(bytes: &[u8]) -> Option<[u64; N]> {
    let (words, rest) = bytes.as_chunks::<WORD_BYTES>();
    let words: &[_; N] = words.try_into().ok().filter(|_| rest.is_empty())?;
    Some(words.map(u64::from_le_bytes))
}

fn push_words(list: &mut Vec<u8>, words: &[u64]) {
    list.extend(words.iter().flat_map(|word| word.to_le_bytes()));
}

impl OrderedHold {
    pub(super) fn write(self, to: &mut Vec<u8>) {
        let Self { epoch, for_ms, levels, most_bytes, below } = self;
        let below = below.map_or(0, NodeRef::to_word);
        push_words(to, &[epoch, for_ms, levels as u64, most_bytes as u64, below]);
    }

    pub(super) fn parse(bytes: &[u8]) -> Result<Self, Status> {
        let words = words_of::<HOLD_WORDS>(bytes).ok_or(Status::Malformed)?;
        let [epoch, for_ms, levels, most_bytes, below] = words;
        let is_within = for_ms <= MAX_HOLD_MS
            && levels <= MAX_HELD_LEVELS as u64
            && most_bytes <= MAX_HOLD_BYTES as u64;
        if !is_within {
            return Err(Status::TooLarge);
        }
        let below = (below != 0).then(|| NodeRef::from_word(below));
        let (levels, most_bytes) = (levels as usize, most_bytes as usize);
        Ok(Self { epoch, for_ms, levels, most_bytes, below })
    }
}

/// Appends an inner node to a reply.
pub fn push_inner_node(list: &mut Vec<u8>, inner: &InnerNode) {
    let mut words = Vec::with_capacity((NODE_INFO_WORDS + 1) * WORD_BYTES);
    push_words(&mut words, &inner.info.to_words());
    push_words(&mut words, &[inner.children.len() as u64]);
    Items::push(list, &words);
    Items::push(list, &inner.low);
    match &inner.high {
        Some(high) => Items::push(list, high),
        None => Items::push_none(list),
    }
    for child in &inner.children {
        Items::push(list, &child.key);
        words.clear();
        push_words(&mut words, &child.to_words());
        Items::push(list, &words);
    }
}

/// The inner nodes of a reply; `None` if it has other bytes.
pub fn inner_nodes_of(list: &[u8]) -> Option<Vec<InnerNode>> {
    let (mut nodes, mut items) = (Vec::new(), Items::parse(list)?.iter());
    while let Some(head) = items.next() {
        let words = words_of::<{ NODE_INFO_WORDS + 1 }>(head?)?;
        let (children, info) = words.split_last()?;
        let info = NodeInfo::from_words(info.try_into().ok()?)?;
        let low = items.next()??.to_vec();
        let high = items.next()?.map(<[u8]>::to_vec);
        let child = |_| {
            let key = items.next()??.to_vec();
            let words = words_of::<CHILD_INFO_WORDS>(items.next()??)?;
            Some(ChildInfo::from_words(key, &words))
        };
        let children: Option<Vec<ChildInfo>> = (0..*children).map(child).collect();
        nodes.push(InnerNode { info, low, high, children: children? });
    }
    Some(nodes)
}

/// Appends a node to a list of the nodes of a level.
pub fn push_node_info(list: &mut Vec<u8>, info: &NodeInfo) {
    push_words(list, &info.to_words());
}

/// The nodes of such a list.
pub fn node_infos_of(list: &[u8]) -> impl ExactSizeIterator<Item = NodeInfo> + Clone {
    list.chunks_exact(NODE_INFO_WORDS * WORD_BYTES).map(|bytes| {
        let words = words_of::<NODE_INFO_WORDS>(bytes).unwrap_or_default();
        NodeInfo::from_words(&words).unwrap_or_default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use remora_testing::Random;

    fn at(random: &mut Random) -> NodeRef {
        NodeRef::from_word(random.bits())
    }

    fn drawn(random: &mut Random) -> InnerNode {
        let info = NodeInfo {
            at: at(random),
            level: random.below(9u8),
            is_deep: random.one_in(2),
            keys: random.bits(),
            accesses: random.bits(),
        };
        let children = (0..random.below(5u64)).map(|_| ChildInfo {
            key: random.bytes_up_to(9),
            at: at(random),
            keys: random.bits(),
            accesses: random.bits(),
        });
        let children = children.collect();
        let high = random.bytes_up_to(9);
        let high = random.one_in(2).then_some(high);
        InnerNode { info, low: random.bytes_up_to(9), high, children }
    }

    #[test]
    fn inner_nodes_come_back_and_no_bytes_end_the_reader() {
        let mut random = Random::new(3);
        for _ in 0..500 {
            let nodes: Vec<InnerNode> =
                (0..random.below(4u64)).map(|_| drawn(&mut random)).collect();
            let mut list = Vec::new();
            nodes.iter().for_each(|inner| push_inner_node(&mut list, inner));
            assert_eq!(inner_nodes_of(&list), Some(nodes.clone()));
            if !list.is_empty() {
                let at = random.below(list.len());
                list[at] = random.below(255u8);
                let _ = inner_nodes_of(&list);
                list.truncate(at);
                let _ = inner_nodes_of(&list);
            }
            let mut infos = Vec::new();
            nodes.iter().for_each(|inner| push_node_info(&mut infos, &inner.info));
            let back: Vec<NodeInfo> = node_infos_of(&infos).collect();
            assert_eq!(back, nodes.iter().map(|inner| inner.info).collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_is_beyond_the_limits_is_refused() {
        let good = OrderedHold {
            epoch: u64::MAX,
            for_ms: MAX_HOLD_MS,
            levels: MAX_HELD_LEVELS,
            most_bytes: MAX_HOLD_BYTES,
            below: Some(NodeRef { slot: 1, generation: 2 }),
        };
        let parsed = |hold: OrderedHold| {
            let mut bytes = Vec::new();
            hold.write(&mut bytes);
            OrderedHold::parse(&bytes)
        };
        assert_eq!(parsed(good), Ok(good));
        for bad in [
            OrderedHold { for_ms: MAX_HOLD_MS + 1, ..good },
            OrderedHold { levels: MAX_HELD_LEVELS + 1, ..good },
            OrderedHold { most_bytes: MAX_HOLD_BYTES + 1, ..good },
        ] {
            assert_eq!(parsed(bad), Err(Status::TooLarge));
        }
        assert_eq!(OrderedHold::parse(&[0; 39]), Err(Status::Malformed));
        assert_eq!(OrderedHold::parse(&[0; 48]), Err(Status::Malformed));
    }
}
