//! Searches of sorted sets for positions, for plans. Such a set is searched by a circle or a box on the globe: for the
//! nearest members the circle grows until it holds enough of them, and a window lies within a box.

use crate::types::sought::{Area, Met, Seek, Sought};
use remora_layout::limits::MAX_NEAREST;
use remora_layout::rect::Rect;
use remora_protocol::Request;
use remora_protocol::geo::{Centre, GeoQuery, GeoSearch, Member, Members, Position, Shape};
use remora_protocol::sorted::SortedCommand;

/// The first circle, in metres.
const FIRST_RADIUS: f64 = 1_000.0;
/// By how much it grows.
const GROWTH: f64 = 4.0;
/// Half the way around the globe, and some more.
const WHOLE_GLOBE: f64 = 20_100_000.0;
/// Highest latitude of a position, degrees.
const HIGHEST: f64 = 85.05112878;

struct SeekMembers {
    area: Area,
    /// Members that were given before, and how many are wanted.
    skip: usize,
    count: usize,
    /// Of the present circle; only for the nearest.
    radius: f64,
    query: Vec<u8>,
}

/// The search for members.
pub(super) fn seek(sought: &Sought<'_>) -> Option<Box<dyn Seek>> {
    let Sought::Objects { area, skip, count } = *sought else { return None };
    Some(Box::new(SeekMembers { area, skip, count, radius: FIRST_RADIUS, query: Vec::new() }))
}

impl SeekMembers {
    /// The next search; none if the area is not on the map.
    fn search(&self) -> Option<GeoSearch<'static>> {
        let (centre, shape) = match self.area {
            Area::Nearest(x, y) => (Position::new(x, y)?, Shape::Circle { radius: self.radius }),
            Area::Window(window) => box_around(window)?,
        };
        Some(GeoSearch { centre: Centre::At(centre), shape, enough: 0 })
    }
}

impl Seek for SeekMembers {
    fn request(&mut self) -> Option<Request<'_>> {
        let search = self.search()?;
        self.query.clear();
        search.write(&mut self.query);
        Some(SortedCommand::Search { query: GeoQuery::parse(&self.query)? }.request())
    }

    fn take(&mut self, found: &[u8]) -> Option<Met> {
        let members = Members::in_list(found);
        if let Area::Window(window) = self.area {
            let lies_within =
                |member: &Member<'_>| window.intersects(&Position::of_score(member.score).point());
            let ids = members.filter(lies_within).map(|member| member.member.into());
            return Some(Met::Objects { ids: ids.take(self.count).collect(), next: 0 });
        }
        let mut members: Vec<_> = members.collect();
        let asked = self.skip.saturating_add(self.count).min(MAX_NEAREST);
        if members.len() < asked && self.radius < WHOLE_GLOBE {
            self.radius *= GROWTH;
            return None;
        }
        members.sort_by(|one, other| {
            let by_distance = one.distance.total_cmp(&other.distance);
            by_distance.then_with(|| one.member.cmp(other.member))
        });
        let next = if members.len() >= asked { asked as u64 } else { 0 };
        let ids = members.iter().take(asked).skip(self.skip).map(|member| member.member.into());
        Some(Met::Objects { ids: ids.collect(), next })
    }
}

/// A box on the globe that holds all positions of a window; none if there are no such positions.
fn box_around(window: Rect) -> Option<(Position, Shape)> {
    let Rect { min_x, max_x, min_y, max_y } = window;
    let (west, east) = (min_x.max(-180.0), max_x.min(180.0));
    let (south, north) = (min_y.max(-HIGHEST), max_y.min(HIGHEST));
    if west > east || south > north {
        return None;
    }
    let centre = Position::new(f64::midpoint(west, east), f64::midpoint(south, north))?;
    let at = |longitude, latitude| Position::new(longitude, latitude);
    // The widest parallel is the one next to the equator.
    let widest = 0.0_f64.clamp(south, north);
    let half_width = at(centre.longitude, widest)?.distance(at(east, widest)?);
    let half_height = centre.distance(at(centre.longitude, north)?);
    // A little more, as positions are rounded.
    let side = |half: f64| 2.0 * half * 1.001 + 10.0;
    Some((centre, Shape::Box { width: side(half_width), height: side(half_height) }))
}
