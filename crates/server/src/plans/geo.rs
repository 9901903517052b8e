//! Searches of GEO keys for plans. A shard searches such a key by a circle or a box on the globe: for the
//! nearest members the circle grows until it holds enough of them, and a window lies within a box.

use remora_arena::Journal;
use remora_engine::{LongRead, Now, Shard};
use remora_layout::hash::KeyHash;
use remora_layout::limits::MAX_NEAREST;
use remora_layout::rect::Rect;
use remora_plan::limits::MAX_WINDOW_OBJECTS;
use remora_plan::{Area, Bytes};
use remora_protocol::geo::{
    Centre, GeoCommand, GeoQuery, GeoSearch, Member, Members, Position, Shape,
};
use remora_protocol::message::Status;

/// The first circle, in metres.
const FIRST_RADIUS: f64 = 1_000.0;
/// By how much it grows.
const GROWTH: f64 = 4.0;
/// Half the way around the globe, and some more.
const WHOLE_GLOBE: f64 = 20_100_000.0;
/// Highest latitude of a position, degrees.
const HIGHEST: f64 = 85.05112878;

/// Members that were found, and how many come before those that follow, 0 for none.
pub type Found = (Vec<Box<[u8]>>, u64);

/// A search that is under way.
pub struct GeoLook {
    key: Bytes,
    hash: KeyHash,
    area: Area,
    /// Members that were given before, and how many are wanted.
    skip: usize,
    count: usize,
    /// Of the present circle; only for the nearest.
    radius: f64,
    read: Option<LongRead>,
    found: Vec<u8>,
    wait: u64,
}

impl GeoLook {
    /// A search of this key's members.
    pub fn new((key, hash): (Bytes, KeyHash), area: Area, (skip, count): (usize, usize)) -> Self {
        let radius = FIRST_RADIUS;
        Self { key, hash, area, skip, count, radius, read: None, found: Vec::new(), wait: 0 }
    }

    /// The sequence that its result waits for.
    pub const fn wait(&self) -> u64 {
        self.wait
    }

    /// Goes on for a turn of the shard. The result, once it is there.
    ///
    /// # Errors
    /// The shard refuses the search.
    pub fn turn<J: Journal>(
        &mut self,
        shard: &mut Shard<J>,
        now: Now,
    ) -> Result<Option<Found>, Status> {
        let Some(mut read) = self.read.take() else {
            let Some(search) = self.search() else { return Ok(Some((Vec::new(), 0))) };
            let mut query = Vec::new();
            search.write(&mut query);
            let query = GeoQuery::parse(&query).ok_or(Status::Malformed)?;
            let request = GeoCommand::Search { query }.request();
            self.found.clear();
            return match shard.begin_read((&self.key, self.hash), request, now) {
                Ok(read) => {
                    self.read = Some(read);
                    Ok(None)
                }
                Err(reply) => {
                    self.wait = self.wait.max(reply.wait);
                    match reply.status {
                        Status::NotFound => Ok(Some((Vec::new(), 0))),
                        status => Err(status),
                    }
                }
            };
        };
        let turn = match shard.read_turn(&mut read, &mut self.found, now) {
            Err(Status::NotFound | Status::NoTree) => return Ok(Some((Vec::new(), 0))),
            turn => turn?,
        };
        self.wait = self.wait.max(shard.wait_of(&read));
        if !turn.ended {
            self.read = Some(read);
            return Ok(None);
        }
        if turn.has_doubles {
            shard.tidy(&read, &mut self.found);
        }
        Ok(self.result())
    }

    /// The next search; none if the area is not on the map.
    fn search(&self) -> Option<GeoSearch<'static>> {
        let (centre, shape) = match self.area {
            Area::Nearest(x, y) => (Position::new(x, y)?, Shape::Circle { radius: self.radius }),
            Area::Window(window) => box_around(window)?,
        };
        Some(GeoSearch { centre: Centre::At(centre), shape, enough: 0 })
    }

    /// What was found, unless the circle has to grow.
    fn result(&mut self) -> Option<Found> {
        let members = Members::in_list(&self.found);
        if let Area::Window(window) = self.area {
            let lies_within =
                |member: &Member<'_>| window.intersects(&Position::of_score(member.score).point());
            let ids = members.filter(lies_within).map(|member| member.member.into());
            return Some((ids.take(MAX_WINDOW_OBJECTS + 1).collect(), 0));
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
        let goes_on = members.len() >= asked;
        let ids = members.iter().take(asked).skip(self.skip).map(|member| member.member.into());
        Some((ids.collect(), if goes_on { asked as u64 } else { 0 }))
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
