//! Objects of trees with what they carry: putting and getting them.

use super::Place;
use crate::error::Error;
use crate::session::Session;
use remora_engine::command::{HAS_DATA, HAS_GEOMETRY, TreeCommand};
use remora_geometry::Shape;
use remora_layout::object::Carried;
use remora_layout::rect::Rect;
use zerocopy::FromBytes;

impl Session {
    /// Adds an object with a geometry, or gives the one with this id another
    /// one, at once for every reader. As [`Session::put_place`] else.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn put_shape(
        &mut self,
        name: &[u8],
        id: u64,
        shape: &Shape,
        data: Option<&[u8]>,
    ) -> Result<bool, Error> {
        let (rect, wkb) = (shape.bounds(), shape.to_wkb());
        let put = TreeCommand::Put { id, rect, data, geometry: Some(&wkb) };
        Ok(self.ask_tree(name, put)?.number == 1)
    }

    /// An object; `None` if it is not there.
    ///
    /// # Errors
    /// See [`Error`].
    pub fn place(&mut self, name: &[u8], id: u64) -> Result<Option<Place<'_>>, Error> {
        let answer = self.ask_tree(name, TreeCommand::Get { id })?;
        let Some((from, to)) = answer.value else { return Ok(None) };
        let has = |flag: u8| answer.number & i64::from(flag) != 0;
        let carried = Rect::read_from_prefix(&self.reply[from..to]).ok().and_then(|(_, rest)| {
            let data_alone = Some(Carried { geometry: &[], data: rest });
            if has(HAS_GEOMETRY) { Carried::parse(rest) } else { data_alone }
        });
        if carried.is_none() {
            return Err(self.end(Error::Protocol("an object that cannot be")));
        }
        let value = &self.reply[from..to];
        let (rect, rest) = Rect::read_from_prefix(value).expect("it was there");
        let Carried { geometry, data } = match has(HAS_GEOMETRY) {
            true => Carried::parse(rest).expect("it was one"),
            false => Carried { geometry: &[], data: rest },
        };
        let data = has(HAS_DATA).then_some(data);
        Ok(Some(Place { rect, data, geometry: has(HAS_GEOMETRY).then_some(geometry) }))
    }
}
