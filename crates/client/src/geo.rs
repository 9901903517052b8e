//! Keys that hold members with positions on the globe, as Redis's GEO commands do.

use crate::error::Error;
use crate::session::Session;
use remora_client_core as core;
use remora_protocol::geo::{self, Centre, GeoQuery, GeoSearch, Member, Members};
use remora_protocol::message::Status;
use remora_protocol::sorted::{Scored, SortedCommand, When};
use remora_protocol::{Command, Items, Request};

/// A position, in degrees.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Position {
    longitude: f64,
    latitude: f64,
}

impl Position {
    /// A position: degrees east of Greenwich, -180 to 180, and north of the equator,
    /// -85.05112878 to 85.05112878. `None` for other numbers.
    ///
    /// ```
    /// use remora_client::Position;
    ///
    /// assert!(Position::new(2.35, 48.86).is_some());
    /// assert!(Position::new(2.35, 90.0).is_none());
    /// ```
    pub fn new(longitude: f64, latitude: f64) -> Option<Self> {
        geo::Position::new(longitude, latitude).map(Self::of)
    }

    fn of(position: geo::Position) -> Self {
        Self { longitude: position.longitude, latitude: position.latitude }
    }

    fn to_protocol(self) -> geo::Position {
        geo::Position { longitude: self.longitude, latitude: self.latitude }
    }

    /// Degrees east of Greenwich.
    ///
    /// ```
    /// # use remora_client::Position;
    /// let paris = Position::new(2.35, 48.86).expect("on the globe");
    /// assert_eq!(paris.longitude(), 2.35);
    /// ```
    pub fn longitude(self) -> f64 {
        self.longitude
    }

    /// Degrees north of the equator.
    ///
    /// ```
    /// # use remora_client::Position;
    /// let paris = Position::new(2.35, 48.86).expect("on the globe");
    /// assert_eq!(paris.latitude(), 48.86);
    /// ```
    pub fn latitude(self) -> f64 {
        self.latitude
    }

    /// Metres to another position, on a sphere.
    ///
    /// ```
    /// # use remora_client::Position;
    /// let paris = Position::new(2.35, 48.86).expect("on the globe");
    /// let london = Position::new(-0.13, 51.51).expect("on the globe");
    /// assert!((343_000.0..345_000.0).contains(&paris.distance_m(london)));
    /// ```
    pub fn distance_m(self, other: Self) -> f64 {
        self.to_protocol().distance(other.to_protocol())
    }
}

/// The centre of a search.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Around<'a> {
    /// At this position.
    Position(Position),
    /// At the position of this member.
    Member(&'a [u8]),
}

/// The area that a search around a centre covers, in metres.
#[derive(Clone, Copy, PartialEq, Debug)]
#[non_exhaustive]
pub enum Area {
    /// All within a radius.
    Circle {
        /// The radius.
        radius_m: f64,
    },
    /// All within half a height north or south, and half a width east or west.
    Rectangle {
        /// From west to east.
        width_m: f64,
        /// From south to north.
        height_m: f64,
    },
}

/// A member that a search has found.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub struct GeoMember {
    /// Its name.
    pub name: Vec<u8>,
    /// Where it is: the centre of a cell of about half a metre.
    pub position: Position,
    /// How far it is from the search's centre, in metres.
    pub distance_m: f64,
}

/// A handle for a key whose members have positions on the globe: [`Session::geo`]. It asks the
/// server for all of its operations.
pub struct GeoKey<'s> {
    core: &'s mut core::Session,
    key: &'s [u8],
}

impl Session {
    /// A handle for a key whose members have, or will have, positions on the globe. This sends
    /// nothing.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// use remora_client::Position;
    ///
    /// let paris = Position::new(2.35, 48.86).expect("on the globe");
    /// session.geo(b"cities").add(&[(b"Paris", paris)])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn geo<'s>(&'s mut self, key: &'s [u8]) -> GeoKey<'s> {
        GeoKey { core: &mut self.core, key }
    }
}

/// Members without positions, in the encoding of requests.
fn named(names: &[&[u8]]) -> Vec<u8> {
    let mut list = Vec::new();
    names.iter().for_each(|name| Items::push(&mut list, name));
    list
}

fn listed(list: &[u8]) -> Result<Items<'_>, Error> {
    Ok(Items::parse(list).ok_or(core::Error::Refused(Status::Malformed))?)
}

impl GeoKey<'_> {
    fn ask(&mut self, request: Request<'_>) -> Result<remora_protocol::Reply<'_>, Error> {
        Ok(self.core.ask(&Command::Of { key: self.key, request })?)
    }

    /// Adds members, or moves those that are there. Gives how many are new.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// # let paris = remora_client::Position::new(2.35, 48.86).expect("on the globe");
    /// let new = session.geo(b"cities").add(&[(b"Paris", paris)])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn add(&mut self, members: &[(&[u8], Position)]) -> Result<u64, Error> {
        if members.is_empty() {
            return Ok(0);
        }
        let mut list = Vec::new();
        for (member, position) in members {
            Scored::push(&mut list, position.to_protocol().score(), member);
        }
        let members = Scored::parse(&list).ok_or(Error::KeyTooLong)?;
        let when = When::default();
        let command = SortedCommand::Add { when, counts_changed: false, members };
        Ok(self.ask(command.request())?.number as u64)
    }

    /// Removes members. Gives how many were there.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// session.geo(b"cities").remove(&[b"Paris"])?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn remove(&mut self, names: &[&[u8]]) -> Result<u64, Error> {
        if names.is_empty() {
            return Ok(0);
        }
        let list = named(names);
        let members = listed(&list)?;
        Ok(self.ask(SortedCommand::Remove { members }.request())?.number as u64)
    }

    /// Where members are, in the order of their names; `None` for one that is not there.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let found = session.geo(b"cities").positions(&[b"Paris", b"Atlantis"])?;
    /// assert_eq!(found.len(), 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn positions(&mut self, names: &[&[u8]]) -> Result<Vec<Option<Position>>, Error> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let list = named(names);
        let members = listed(&list)?;
        let reply = self.ask(SortedCommand::Scores { members }.request())?;
        let (scores, _) = reply.value.unwrap_or_default().as_chunks::<8>();
        let position = |score: &[u8; 8]| {
            let score = f64::from_le_bytes(*score);
            (!score.is_nan()).then(|| Position::of(geo::Position::of_score(score)))
        };
        let mut found: Vec<_> = scores.iter().map(position).collect();
        found.resize(names.len(), None);
        Ok(found)
    }

    /// Metres between two members; `None` if one of them is not there.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// let metres = session.geo(b"cities").distance_m(b"Paris", b"London")?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn distance_m(&mut self, from: &[u8], to: &[u8]) -> Result<Option<f64>, Error> {
        let found = self.positions(&[from, to])?;
        Ok(found[0].zip(found[1]).map(|(from, to)| from.distance_m(to)))
    }

    /// Number of members; 0 without the key.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// println!("{} cities", session.geo(b"cities").member_count()?);
    /// # Ok(())
    /// # }
    /// ```
    pub fn member_count(&mut self) -> Result<u64, Error> {
        Ok(self.ask(SortedCommand::Length.request())?.number as u64)
    }

    /// The members in an area, the nearest first. Empty without the key, and if the centre is
    /// a member that is not there.
    ///
    /// # Errors
    /// See [`Error`].
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// use remora_client::{Area, Around};
    ///
    /// let near = Area::Circle { radius_m: 500_000.0 };
    /// for city in session.geo(b"cities").search(Around::Member(b"Paris"), near)? {
    ///     println!("{} at {} m", city.name.escape_ascii(), city.distance_m);
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn search(&mut self, around: Around<'_>, area: Area) -> Result<Vec<GeoMember>, Error> {
        let centre = match around {
            Around::Position(position) => Centre::At(position.to_protocol()),
            Around::Member(name) => Centre::Member(name),
        };
        let shape = match area {
            Area::Circle { radius_m } => geo::Shape::Circle { radius: radius_m },
            Area::Rectangle { width_m, height_m } => {
                geo::Shape::Box { width: width_m, height: height_m }
            }
        };
        let mut query = Vec::new();
        GeoSearch { centre, shape, enough: 0 }.write(&mut query);
        let malformed = core::Error::Refused(Status::Malformed);
        let query = GeoQuery::parse(&query).ok_or(malformed)?;
        let mut list = Vec::new();
        let request = SortedCommand::Search { query }.request();
        self.core.ask_long(self.key, request, &mut |part| list.extend_from_slice(part))?;
        let member = |place: Member<'_>| GeoMember {
            name: place.member.to_vec(),
            position: Position::of(geo::Position::of_score(place.score)),
            distance_m: place.distance,
        };
        let mut found: Vec<GeoMember> = Members::in_list(&list).map(member).collect();
        found.sort_by(|a, b| a.distance_m.total_cmp(&b.distance_m).then(a.name.cmp(&b.name)));
        found.dedup_by(|a, b| a.name == b.name);
        Ok(found)
    }
}
