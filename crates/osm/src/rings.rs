//! Areas of relations: rings of ways, and which hole is in which of them
//! (<https://wiki.openstreetmap.org/wiki/Relation:multipolygon>).

use crate::element::Unusable;
use remora_geometry::geo_types::{Coord, LineString, MultiPolygon, Polygon};
use std::collections::{HashMap, HashSet};

/// A ring: its nodes, the first again at the end.
pub type Ring = Vec<i64>;

/// Joins ways at their ends to rings; `None` if something stays open. A ring
/// that comes back to one of its joints ends there.
pub fn join(ways: &[&[i64]]) -> Option<Vec<Ring>> {
    let mut rings = Vec::new();
    let mut ends = HashMap::<i64, Vec<usize>>::new();
    for (index, way) in ways.iter().enumerate() {
        let (&first, &last) = (way.first()?, way.last()?);
        if first == last {
            if way.len() < 4 {
                return None;
            }
            rings.push(way.to_vec());
        } else {
            ends.entry(first).or_default().push(index);
            ends.entry(last).or_default().push(index);
        }
    }
    let mut used: Vec<bool> = ways.iter().map(|way| way.first() == way.last()).collect();
    for begin in 0..ways.len() {
        if used[begin] {
            continue;
        }
        used[begin] = true;
        let mut ring = ways[begin].to_vec();
        // Where ways meet in the ring.
        let mut joints = vec![0];
        loop {
            let end = *ring.last()?;
            let here = ring.len() - 1;
            match joints.iter().position(|&at| at < here && ring[at] == end) {
                // It has come back to itself: what lies between is a ring.
                Some(joint) => {
                    let from = joints[joint];
                    joints.truncate(joint + 1);
                    if ring.len() - from < 4 {
                        return None;
                    }
                    rings.push(ring[from..].to_vec());
                    ring.truncate(from + 1);
                    if from == 0 {
                        break;
                    }
                }
                None => joints.push(here),
            }
            let others = ends.get_mut(&end)?;
            let next = loop {
                let next = others.pop()?;
                if !used[next] {
                    break next;
                }
            };
            used[next] = true;
            let way = ways[next];
            if way[0] == end {
                ring.extend(&way[1..]);
            } else {
                ring.extend(way[..way.len() - 1].iter().rev());
            }
        }
    }
    Some(rings)
}

/// A ring and where its nodes are.
pub struct Placed {
    /// Its nodes.
    pub nodes: Ring,
    /// Where they are.
    pub line: Vec<Coord<f64>>,
}

/// Puts each inner ring into the smallest outer one that it lies in.
pub fn nest(outer: Vec<Placed>, inner: Vec<Placed>) -> Result<MultiPolygon<f64>, Unusable> {
    let sets: Vec<HashSet<i64>> =
        outer.iter().map(|ring| ring.nodes.iter().copied().collect()).collect();
    let mut holes: Vec<Vec<LineString<f64>>> = outer.iter().map(|_| Vec::new()).collect();
    for hole in inner {
        let around = (0..outer.len()).filter(|&index| {
            // A node that both have lies on the ring, not inside.
            let free = hole.nodes.iter().position(|node| !sets[index].contains(node));
            free.is_none_or(|at| is_inside(hole.line[at], &outer[index].line))
        });
        let extent = |index: &usize| area(&outer[*index].line).abs();
        let smallest = around.min_by(|a, b| extent(a).total_cmp(&extent(b)));
        holes[smallest.ok_or(Unusable::LostHole)?].push(LineString(hole.line));
    }
    let polygons = outer.into_iter().zip(holes);
    Ok(MultiPolygon(
        polygons.map(|(ring, holes)| Polygon::new(LineString(ring.line), holes)).collect(),
    ))
}

/// Whether a ray to the right crosses the ring an odd number of times.
fn is_inside(at: Coord<f64>, ring: &[Coord<f64>]) -> bool {
    ring.windows(2).fold(false, |inside, edge| {
        let (from, to) = (edge[0], edge[1]);
        let crosses = (from.y > at.y) != (to.y > at.y)
            && at.x < from.x + (to.x - from.x) * (at.y - from.y) / (to.y - from.y);
        inside != crosses
    })
}

fn area(ring: &[Coord<f64>]) -> f64 {
    ring.windows(2).map(|edge| edge[0].x * edge[1].y - edge[1].x * edge[0].y).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ways_are_joined_whatever_their_direction() {
        let joined = |ways: &[&[i64]]| {
            join(ways).map(|rings| rings.iter().map(Vec::len).collect::<Vec<_>>())
        };
        assert_eq!(joined(&[&[1, 2, 3], &[5, 4, 3], &[5, 1]]), Some(vec![6]));
        assert_eq!(joined(&[&[1, 2, 3, 1], &[7, 8], &[8, 9, 7]]), Some(vec![4, 4]));
        // Two rings that touch at one node.
        let touching: [&[i64]; 4] = [&[1, 2, 3], &[3, 4, 1], &[3, 5, 6], &[6, 7, 3]];
        assert_eq!(joined(&touching), Some(vec![5, 5]));
        for open in [&[&[1, 2, 3][..]][..], &[&[1, 2], &[2, 1]], &[&[]], &[&[1, 1]]] {
            assert_eq!(join(open), None, "{open:?}");
        }
    }

    fn square(id: i64, x: f64, y: f64, edge: f64) -> Placed {
        let corners = [(x, y), (x + edge, y), (x + edge, y + edge), (x, y + edge), (x, y)];
        let nodes = vec![id, id + 1, id + 2, id + 3, id];
        Placed { nodes, line: corners.map(|(x, y)| Coord { x, y }).to_vec() }
    }

    #[test]
    fn holes_lie_in_the_smallest_ring_around_them() {
        let outer = vec![square(0, 0.0, 0.0, 10.0), square(10, 4.0, 4.0, 3.0)];
        let inner = vec![square(20, 5.0, 5.0, 1.0), square(30, 3.0, 3.0, 5.0)];
        let MultiPolygon(polygons) = nest(outer, inner).unwrap();
        assert_eq!(polygons[0].interiors()[0].0[0], Coord { x: 3.0, y: 3.0 });
        assert_eq!(polygons[1].interiors()[0].0[0], Coord { x: 5.0, y: 5.0 });
        let lost = nest(vec![square(0, 0.0, 0.0, 1.0)], vec![square(10, 2.0, 2.0, 1.0)]);
        assert_eq!(lost.unwrap_err(), Unusable::LostHole);
    }
}
