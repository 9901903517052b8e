//! `$geoNear` without a `key` goes by the collection's only index of geometries: it is asked for first.

use super::catalog::senseless;
use crate::query::Wanted;
use crate::reply::{CommandError, ErrorCode};
use crate::running::{Begun, Context, Running, Step, ask, done};
use bson::RawDocument;
use bson::raw::RawBsonRef;
use remora_document::GeoNear;
use remora_frontend::OwnedReply;
use remora_protocol::collection::CollectionCommand;
use remora_protocol::message::Status;

/// Begins the command itself.
type Run = dyn FnOnce(Wanted, &mut Context<'_>) -> Result<Begun, CommandError> + Send;

/// A command that looks for the field with the geometries, and then goes on.
pub(super) struct FindKey {
    waits: Option<(GeoNear, Wanted, Box<Run>)>,
    runs: Option<Box<dyn Running>>,
}

/// What is wanted of a collection by distance, from the geometries in a field.
pub(super) fn by_distance(
    wanted: Wanted,
    geo_near: &GeoNear,
    key: &str,
) -> Result<Wanted, CommandError> {
    let located = geo_near.located(key)?;
    Ok(Wanted { filter: located.filter().to_owned(), geo_near: Some(located), ..wanted })
}

/// The field with the geometries.
fn key_of(told: &RawDocument) -> Result<String, CommandError> {
    let fail = |text: &'static str| Err(CommandError::new(ErrorCode::IndexNotFound, text));
    let geometries = |kind: &str| -> Vec<String> {
        let specs = told.get_array("indexes").into_iter().flatten().flatten();
        let keys = specs.filter_map(|spec| spec.as_document()?.get_document("key").ok());
        let fields = keys.flat_map(|key| key.iter().flatten());
        let of_kind = fields.filter(|(_, of)| *of == RawBsonRef::String(kind));
        let mut paths: Vec<String> = of_kind.map(|(path, _)| path.as_str().to_owned()).collect();
        paths.sort_unstable();
        paths.dedup();
        paths
    };
    // As in MongoDB, those in the plane come first.
    match (&geometries("2d")[..], &geometries("2dsphere")[..]) {
        ([], []) => fail("$geoNear requires a 2d or 2dsphere index, but none were found"),
        ([key], _) | ([], [key]) => Ok(key.clone()),
        ([], _) => fail(
            "There is more than one 2dsphere index; unsure which to use for $geoNear: give its field as 'key'",
        ),
        _ => fail(
            "There is more than one 2d index; unsure which to use for $geoNear: give its field as 'key'",
        ),
    }
}

impl FindKey {
    pub fn new((geo_near, wanted): (GeoNear, Wanted), run: Box<Run>) -> Self {
        Self { waits: Some((geo_near, wanted, run)), runs: None }
    }
}

impl Running for FindKey {
    fn next(
        &mut self,
        answer: Option<OwnedReply>,
        context: &mut Context<'_>,
    ) -> Result<Step, CommandError> {
        if let Some(runs) = &mut self.runs {
            return runs.next(answer, context);
        }
        let Some((_, wanted, _)) = &self.waits else { return Err(senseless()) };
        if answer.is_none() {
            return Ok(ask(&wanted.namespace, CollectionCommand::Describe));
        }
        let Some((geo_near, wanted, run)) = self.waits.take() else { return Err(senseless()) };
        let key = match answer {
            // Without a collection there is nothing to be found, whatever the field.
            Some(reply) if reply.status == Status::NotFound => String::from("_id"),
            answer => {
                let reply = done(answer)?;
                let told = RawDocument::from_bytes(reply.value.as_deref().unwrap_or_default());
                key_of(told.map_err(|_| senseless())?)?
            }
        };
        match run(by_distance(wanted, &geo_near, &key)?, context)? {
            Begun::Reply(body) => Ok(Step::Done(body)),
            Begun::Running(mut runs) => {
                let step = runs.next(None, context);
                self.runs = Some(runs);
                step
            }
        }
    }
}
