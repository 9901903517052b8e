//! Graphs: files of edges, and the search in memory that the search over links is checked against.

use crate::trace::read_bytes;
use remora_command_line::usage;
use std::fmt;
use std::path::Path;

/// Largest number of a vertex: a search keeps a bit for each number up to it.
const MAX_ID: u32 = 1 << 30;

/// A graph: vertices by their numbers in the file, and the edges that leave each.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Graph {
    /// The vertices, ascending.
    ids: Vec<u32>,
    /// The edges of the vertex at position `p` are `to[first[p]..first[p + 1]]`.
    first: Vec<usize>,
    /// Positions of vertices.
    to: Vec<u32>,
}

/// How many vertices a breadth-first search reaches at each distance, the source's own first.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Levels(pub Vec<u64>);

impl Levels {
    /// All vertices that were reached.
    pub fn reached(&self) -> u64 {
        self.0.iter().sum()
    }
}

/// `reached,levels`, the levels joined by `|`.
impl fmt::Display for Levels {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{},", self.reached())?;
        for (at, level) in self.0.iter().enumerate() {
            let bar = if at == 0 { "" } else { "|" };
            write!(out, "{bar}{level}")?;
        }
        Ok(())
    }
}

impl Graph {
    /// Reads a file of lines `from to`, plain or `.xz`. Empty lines and those that begin with `#`
    /// are passed over; an edge that comes twice counts once.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let bytes = read_bytes(path, "--graph")?;
        Self::parse(&bytes).map_err(|why| usage(format!("--graph: {}: {why}", path.display())))
    }

    /// The same of a file's bytes.
    ///
    /// # Errors
    /// What is wrong with which line.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        let mut edges = Vec::new();
        for (number, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
            let line = line.trim_ascii();
            if line.is_empty() || line[0] == b'#' {
                continue;
            }
            let edge = edge(line)
                .ok_or_else(|| format!("line {} is no \"from to\" up to {MAX_ID}", number + 1))?;
            edges.push(edge);
        }
        if edges.is_empty() {
            return Err("holds no edges".into());
        }
        Ok(Self::of(edges))
    }

    fn of(mut edges: Vec<(u32, u32)>) -> Self {
        edges.sort_unstable();
        edges.dedup();
        let mut ids: Vec<u32> = edges.iter().flat_map(|(from, to)| [*from, *to]).collect();
        ids.sort_unstable();
        ids.dedup();
        let mut graph = Self { first: Vec::with_capacity(ids.len() + 1), ids, to: Vec::new() };
        let mut rest = edges.iter().peekable();
        for at in 0..graph.ids.len() {
            graph.first.push(graph.to.len());
            while let Some((_, to)) = rest.next_if(|(from, _)| *from == graph.ids[at]) {
                let to = graph.position(*to).expect("every end of an edge is a vertex");
                graph.to.push(to as u32);
            }
        }
        graph.first.push(graph.to.len());
        graph
    }

    /// The vertices, ascending.
    pub fn ids(&self) -> &[u32] {
        &self.ids
    }

    /// Number of edges.
    pub fn edges(&self) -> usize {
        self.to.len()
    }

    /// Where a vertex is among the vertices.
    pub fn position(&self, id: u32) -> Option<usize> {
        self.ids.binary_search(&id).ok()
    }

    /// The vertices to which edges lead from the vertex at a position, ascending.
    pub fn follows(&self, position: usize) -> impl ExactSizeIterator<Item = u32> + Clone + '_ {
        let to = &self.to[self.first[position]..self.first[position + 1]];
        to.iter().map(|to| self.ids[*to as usize])
    }

    /// Breadth-first search in memory.
    pub fn search(&self, source: usize) -> Levels {
        let mut is_reached = vec![false; self.ids.len()];
        is_reached[source] = true;
        let (mut level, mut levels) = (vec![source as u32], Levels::default());
        while !level.is_empty() {
            levels.0.push(level.len() as u64);
            let mut next = Vec::new();
            for at in level {
                for to in &self.to[self.first[at as usize]..self.first[at as usize + 1]] {
                    if !std::mem::replace(&mut is_reached[*to as usize], true) {
                        next.push(*to);
                    }
                }
            }
            level = next;
        }
        levels
    }
}

fn edge(line: &[u8]) -> Option<(u32, u32)> {
    let text = std::str::from_utf8(line).ok()?;
    let mut words = text.split_ascii_whitespace().map(str::parse);
    match (words.next()?, words.next()?, words.next()) {
        (Ok(from), Ok(to), None) if from <= MAX_ID && to <= MAX_ID => Some((from, to)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_counts_each_vertex_at_its_shortest_distance() {
        let graph = Graph::parse(b"# one line\n5 7\n5 9\n7 9\n9 5\n\n9 11\r\n30 5\n5 7\n").unwrap();
        assert_eq!((graph.ids(), graph.edges()), (&[5, 7, 9, 11, 30][..], 6));
        assert!(graph.follows(0).eq([7, 9]) && graph.follows(3).len() == 0);
        let from = |id| graph.search(graph.position(id).unwrap());
        assert_eq!(from(5), Levels(vec![1, 2, 1]));
        assert_eq!(from(30).to_string(), "5,1|1|2|1");
        assert_eq!(from(11).to_string(), "1,1");
        assert_eq!(graph.position(6), None);
    }

    #[test]
    fn what_is_no_edge_is_refused_with_its_line() {
        for text in ["1", "1 2 3", "1 x", "-1 2", "1 2000000000", "1,2"] {
            let why = Graph::parse(format!("1 2\n{text}\n").as_bytes()).unwrap_err();
            assert!(why.contains("line 2 "), "{text}: {why}");
        }
        assert!(Graph::parse(b"# nothing\n").is_err());
    }
}
