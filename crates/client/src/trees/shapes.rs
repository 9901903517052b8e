//! Objects of trees with what they carry: putting and getting them.

use super::Place;
use crate::error::Error;
use crate::session::Session;
use remora_geometry::{Shape, Wkb};
use remora_layout::object::Carried;
use remora_layout::rect::Rect;
use remora_protocol::message::Status;
use remora_protocol::tree::{Fields, HAS_DATA, HAS_GEOMETRY, ObjectId, PutObject, TreeCommand};
use zerocopy::FromBytes;

impl Session {
    /// Adds an object, or changes the one with this id, at once for every reader.
    /// What is not said stays as it is, but for the geometry: without one the
    /// object is its rectangle. True if the object is new.
    ///
    /// ```no_run
    /// # fn example(session: &mut remora_client::Session) -> Result<(), remora_client::Error> {
    /// # let now_ms = 0;
    /// use remora_client::{Expiry, Fields, PutObject, Rect};
    ///
    /// let here = Rect { min_x: 8.5, max_x: 8.5, min_y: 47.3, max_y: 47.3 };
    /// let fields = Fields::encode([(&b"state"[..], &b"free"[..])]).expect("within the limits");
    /// session.put_object(b"couriers", &PutObject {
    ///     fields: Fields::parse(&fields),
    ///     // Gone if it is not heard of for a minute.
    ///     expiry: Expiry::At(now_ms + 60_000),
    ///     ..PutObject::new("bike:4711", here)
    /// })?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// See [`Error`].
    pub fn put_object(&mut self, name: &[u8], object: &PutObject<'_>) -> Result<bool, Error> {
        Ok(self.ask_tree(name, TreeCommand::Put(*object))?.number == 1)
    }

    /// Adds an object with a geometry, or gives the one with this id another
    /// one, at once for every reader. As [`Session::put_place`] else.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn put_shape<'a>(
        &mut self,
        name: &[u8],
        id: impl Into<ObjectId<'a>>,
        shape: &Shape,
        data: Option<&[u8]>,
    ) -> Result<bool, Error> {
        let (rect, wkb) = (shape.bounds(), shape.to_wkb());
        let put =
            PutObject { data, geometry: Some(Wkb::known(&wkb, rect)), ..PutObject::new(id, rect) };
        self.put_object(name, &put)
    }

    /// Sets fields of an object; the others stay. How many are new; `None` if the
    /// object is not there.
    ///
    /// # Errors
    /// See [`Error`]: it would have too many fields, or too long ones.
    pub fn set_fields<'a>(
        &mut self,
        name: &[u8],
        id: impl Into<ObjectId<'a>>,
        fields: Fields<'_>,
    ) -> Result<Option<u64>, Error> {
        let answer = self.ask_tree(name, TreeCommand::SetFields { id: id.into(), fields })?;
        Ok((answer.status == Status::Ok).then_some(answer.number as u64))
    }

    /// An object; `None` if it is not there.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn place<'a>(
        &mut self,
        name: &[u8],
        id: impl Into<ObjectId<'a>>,
    ) -> Result<Option<Place<'_>>, Error> {
        let answer = self.ask_tree(name, TreeCommand::Get { id: id.into() })?;
        let Some((from, to)) = answer.value else { return Ok(None) };
        if place_in(&self.reply[from..to], answer.number).is_none() {
            return Err(self.end(Error::Protocol("an object that cannot be")));
        }
        Ok(place_in(&self.reply[from..to], answer.number))
    }
}

/// The object that a server's reply tells.
fn place_in(value: &[u8], flags: i64) -> Option<Place<'_>> {
    let has = |flag: u8| flags & i64::from(flag) != 0;
    let (rect, rest) = Rect::read_from_prefix(value).ok()?;
    let (&at_ms, rest) = rest.split_first_chunk()?;
    let carried = Carried::parse(rest)?;
    Some(Place {
        rect,
        data: has(HAS_DATA).then_some(carried.data),
        geometry: has(HAS_GEOMETRY).then_some(carried.geometry),
        fields: Fields::parse(carried.fields)?,
        expires_at_ms: Some(u64::from_le_bytes(at_ms)).filter(|at_ms| *at_ms != 0),
    })
}
