//! The players as the example knows them itself: every answer is compared with them.

use crate::board::Line;
use rand::RngExt;
use rand::rngs::ChaCha8Rng;

/// Points that a match brings, at most.
const MOST_POINTS: i32 = 50;

/// All players' points, by their numbers; `None` before the first match.
pub struct Players(Vec<Option<f64>>);

impl Players {
    /// So many that have not played.
    pub fn new(count: usize) -> Self {
        Self(vec![None; count])
    }

    /// A player's name on the board.
    pub fn name(player: usize) -> String {
        format!("player:{player}")
    }

    /// Any player.
    pub fn draw(&self, rng: &mut ChaCha8Rng) -> usize {
        rng.random_range(0..self.0.len())
    }

    /// A player wins or loses some points. Returns these, and what he has now.
    pub fn play(&mut self, player: usize, rng: &mut ChaCha8Rng) -> (f64, f64) {
        let won = f64::from(rng.random_range(-MOST_POINTS..=2 * MOST_POINTS));
        let points = self.0[player].unwrap_or(0.0) + won;
        self.0[player] = Some(points);
        (won, points)
    }

    /// The points of a player.
    pub fn points(&self, player: usize) -> Option<f64> {
        self.0[player]
    }

    /// All that have played, the best first: of players with the same points the one whose name comes
    /// last, as a sorted set read from its end gives them.
    fn order(&self) -> Vec<Line> {
        let has_played = |(player, points): (usize, &Option<f64>)| {
            points.map(|points| Line { player: Self::name(player), points })
        };
        let mut all: Vec<Line> = self.0.iter().enumerate().filter_map(has_played).collect();
        all.sort_by(|a, b| b.points.total_cmp(&a.points).then_with(|| b.player.cmp(&a.player)));
        all
    }

    /// The best players.
    pub fn top(&self, count: usize) -> Vec<Line> {
        let mut all = self.order();
        all.truncate(count);
        all
    }

    /// How many players are before this one.
    pub fn rank(&self, player: usize) -> Option<u64> {
        let name = Self::name(player);
        self.order().iter().position(|line| line.player == name).map(|at| at as u64)
    }

    /// How many players have at least so many points.
    pub fn count_from(&self, least: f64) -> u64 {
        self.0.iter().flatten().filter(|&&points| points >= least).count() as u64
    }
}
