//! The order in which the paper inserts real data (Catfish 5.4, W6): in
//! sub-regions of about 20,000 objects, these in random order; inside one, rows
//! from north to south, each from west to east.

use rand::SeedableRng;
use rand::rngs::ChaCha8Rng;
use rand::seq::SliceRandom;
use remora_client_core::Rect;

/// Objects of a sub-region, about.
const REGION_OBJECTS: usize = 20_000;

/// The numbers of the rectangles in that order. Sub-regions are tiles of equal
/// numbers of objects, by their middles; a row has as many objects as there
/// are rows.
pub fn by_regions(rects: &[Rect], seed: u64) -> Vec<u32> {
    let middles: Vec<(f64, f64)> = rects.iter().map(Rect::centre).collect();
    let x = |number: u32| middles[number as usize].0;
    let y = |number: u32| middles[number as usize].1;
    let mut numbers: Vec<u32> = (0..rects.len() as u32).collect();
    let regions = rects.len().div_ceil(REGION_OBJECTS).max(1);
    let columns = (regions as f64).sqrt().ceil() as usize;
    let rows = regions.div_ceil(columns);
    // A number breaks ties, so that the order is one whatever the sort does.
    numbers.sort_unstable_by(|a, b| x(*a).total_cmp(&x(*b)).then(a.cmp(b)));
    let mut tiles: Vec<&mut [u32]> = Vec::with_capacity(columns * rows);
    for column in pieces(&mut numbers, columns) {
        column.sort_unstable_by(|a, b| y(*b).total_cmp(&y(*a)).then(a.cmp(b)));
        tiles.extend(pieces(column, rows));
    }
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    tiles.shuffle(&mut rng);
    let mut ordered = Vec::with_capacity(rects.len());
    for tile in tiles {
        let row = (tile.len() as f64).sqrt().ceil() as usize;
        for row in tile.chunks_mut(row.max(1)) {
            row.sort_unstable_by(|a, b| x(*a).total_cmp(&x(*b)).then(a.cmp(b)));
            ordered.extend_from_slice(row);
        }
    }
    ordered
}

/// This many pieces of nearly equal length.
fn pieces(mut rest: &mut [u32], count: usize) -> Vec<&mut [u32]> {
    let mut pieces = Vec::with_capacity(count);
    for left in (1..=count).rev() {
        let (piece, behind) = rest.split_at_mut(rest.len() / left);
        pieces.push(piece);
        rest = behind;
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::super::workload::objects;
    use super::*;

    fn rects(count: u64) -> Vec<Rect> {
        objects(4, count).map(|(_, rect)| rect).collect()
    }

    #[test]
    fn every_object_comes_once_and_a_seed_decides() {
        for count in [0, 1, 2, 19_999, 20_001, 130_000] {
            let rects = rects(count);
            let order = by_regions(&rects, 1);
            let mut sorted = order.clone();
            sorted.sort_unstable();
            assert!(sorted.into_iter().eq(0..count as u32));
            assert_eq!(order, by_regions(&rects, 1));
            assert!(count < 100_000 || order != by_regions(&rects, 2));
        }
    }

    #[test]
    fn one_region_goes_in_rows_from_north_to_south() {
        // A grid of 10 x 10 points, given from south to north.
        let grid: Vec<Rect> =
            (0..100).map(|n| Rect::point(f64::from(n % 10), f64::from(n / 10)).unwrap()).collect();
        let wanted = (0..100u32).map(|n| (9 - n / 10) * 10 + n % 10);
        assert!(by_regions(&grid, 1).into_iter().eq(wanted));
    }

    #[test]
    fn a_region_is_a_tile_of_about_twenty_thousand() {
        let rects = rects(180_000);
        let order = by_regions(&rects, 1);
        // Nine tiles of a third by a third of the square.
        for region in order.chunks(20_000) {
            let all = region.iter().map(|number| rects[*number as usize]);
            let around = all.reduce(|all, rect| all.union(&rect)).unwrap();
            assert!(around.max_x - around.min_x < 0.36, "{around:?}");
            assert!(around.max_y - around.min_y < 0.36, "{around:?}");
        }
    }
}
