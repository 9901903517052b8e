//! The intake takes in the objects of a file, or refuses and counts them.

use crate::refusals::{Refusal, Refusals};
use remora_client_core::{ObjectId, Rect};
use remora_command_line::PutCounts;
use serde::Serialize;
use std::io::Write;
use std::time::{Duration, Instant};

/// Longest bytes of an object.
pub const MAX_DATA_BYTES: usize = remora_layout::limits::MAX_OBJECT_BYTES;
/// Time between two words about progress.
const TELL_EVERY: Duration = Duration::from_millis(100);

/// The destination of objects.
pub trait Sink {
    /// Sends one object. An error may be that of one sent before.
    fn put(&mut self, id: ObjectId<'_>, row: &Row<'_>) -> anyhow::Result<()>;

    /// Waits until all that was sent is in.
    fn settle(&mut self) -> anyhow::Result<()>;

    /// The counts of objects taken in.
    fn counts(&self) -> PutCounts;
}

/// One object of a file.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Row<'a> {
    /// Its id, if the file says one.
    pub id: Option<ObjectId<'a>>,
    /// Its bounding box.
    pub rect: Rect,
    /// Its geometry in WKB, whose bounding box is the rectangle. An object that is its bounding
    /// box, or a point, needs none.
    pub geometry: Option<&'a [u8]>,
    /// Its bytes.
    pub data: Option<&'a [u8]>,
}

/// Takes objects in, one after the other.
pub struct Intake<'a, S> {
    sink: &'a mut S,
    progress: Box<dyn FnMut(u64) + 'a>,
    told: Instant,
    /// Objects seen, refused ones too.
    seen: u64,
    /// Whether the file has ids: its first object decides.
    has_ids: Option<bool>,
    refusals: Refusals,
}

impl<'a, S: Sink> Intake<'a, S> {
    /// Takes in for `sink`; calls `progress` now and then with the number of objects seen.
    pub fn new(sink: &'a mut S, progress: impl FnMut(u64) + 'a) -> Self {
        Self {
            sink,
            progress: Box::new(progress),
            told: Instant::now(),
            seen: 0,
            has_ids: None,
            refusals: Refusals::default(),
        }
    }

    /// Takes one object, at position `at` in the file. Only the server's errors are errors.
    pub fn take(&mut self, at: u64, row: Result<Row<'_>, Refusal>) -> anyhow::Result<()> {
        let number = self.seen;
        self.seen += 1;
        if self.told.elapsed() > TELL_EVERY {
            self.told = Instant::now();
            (self.progress)(self.seen);
        }
        match row.and_then(|row| self.with_id(number, row)) {
            Ok((id, row)) => self.sink.put(id, &row),
            Err(refusal) => {
                self.refusals.add(at, refusal);
                Ok(())
            }
        }
    }

    fn with_id<'r>(
        &mut self,
        number: u64,
        row: Row<'r>,
    ) -> Result<(ObjectId<'r>, Row<'r>), Refusal> {
        if let Some(data) = row.data.filter(|data| data.len() > MAX_DATA_BYTES) {
            return Err(Refusal::new(
                "its bytes are too long",
                format!("{} bytes, at most {MAX_DATA_BYTES}", data.len()),
            ));
        }
        if let Some(id) = row.id.filter(|id| !id.is_valid()) {
            return Err(Refusal::new("its id is empty or too long", id.to_string()));
        }
        match (*self.has_ids.get_or_insert(row.id.is_some()), row.id) {
            (true, Some(id)) => Ok((id, row)),
            (true, None) => Err(Refusal::new("it has no id, though the first object has one", "")),
            (false, None) => Ok((number.into(), row)),
            (false, Some(id)) => Err(Refusal::new(
                "it has an id, though the first object has none",
                format!("id {id}"),
            )),
        }
    }

    /// Waits until all that was taken in is in.
    pub fn settle(&mut self) -> anyhow::Result<()> {
        self.sink.settle()
    }

    /// The end of the file.
    pub fn finish(self, took: Duration) -> Summary {
        let Self { sink, refusals, has_ids, .. } = self;
        let PutCounts { added, replaced } = sink.counts();
        let numbered = has_ids == Some(false);
        Summary {
            added,
            replaced,
            refused: refusals.count(),
            numbered,
            reasons: refusals,
            elapsed_s: took.as_secs_f64(),
        }
    }
}

/// The result of an import. The fields' names are those of `--json`.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Summary {
    added: u64,
    replaced: u64,
    refused: u64,
    /// Objects were numbered in their order, as the file has no ids.
    numbered: bool,
    reasons: Refusals,
    elapsed_s: f64,
}

impl Summary {
    /// Objects that were refused.
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// Prints it, as one JSON object or as lines for people.
    pub fn print(&self, tree: &str, as_json: bool, out: &mut impl Write) -> anyhow::Result<()> {
        if as_json {
            serde_json::to_writer(&mut *out, self)?;
            writeln!(out)?;
            return Ok(());
        }
        writeln!(
            out,
            "{tree}: {} added, {} replaced, {} refused in {:.2} s",
            self.added, self.replaced, self.refused, self.elapsed_s
        )?;
        if self.numbered {
            writeln!(out, "the file has no ids: objects are numbered from 0 in its order")?;
        }
        self.reasons.print(out)?;
        Ok(())
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use remora_client_core::BadRect;
    use std::collections::BTreeMap;

    /// Objects by their ids.
    pub type Kept = BTreeMap<u64, (Rect, Option<Vec<u8>>)>;

    /// A sink that keeps all, and has it in when it is settled.
    #[derive(Default)]
    pub struct Keeper {
        pub kept: Kept,
        /// Geometries of those that have one.
        pub shapes: BTreeMap<u64, Vec<u8>>,
        /// Ids that are no integers.
        pub names: Vec<Vec<u8>>,
        sent: PutCounts,
        counts: PutCounts,
    }

    impl Sink for Keeper {
        fn put(&mut self, id: ObjectId<'_>, row: &Row<'_>) -> anyhow::Result<()> {
            let id = match id {
                ObjectId::Number(number) => number,
                ObjectId::Name(name) => {
                    self.names.push(name.to_vec());
                    self.sent.added += 1;
                    return Ok(());
                }
            };
            self.shapes.remove(&id);
            self.shapes.extend(row.geometry.map(|geometry| (id, geometry.to_vec())));
            match self.kept.insert(id, (row.rect, row.data.map(<[u8]>::to_vec))) {
                None => self.sent.added += 1,
                Some(_) => self.sent.replaced += 1,
            }
            Ok(())
        }

        fn settle(&mut self) -> anyhow::Result<()> {
            self.counts = self.sent;
            Ok(())
        }

        fn counts(&self) -> PutCounts {
            self.counts
        }
    }

    /// Runs `read` over an intake of its own.
    pub fn taken(
        read: impl FnOnce(&mut Intake<'_, Keeper>) -> anyhow::Result<()>,
    ) -> (Kept, Summary, anyhow::Result<()>) {
        let (keeper, summary, result) = taken_with_shapes(read);
        (keeper.kept, summary, result)
    }

    /// The same with the geometries.
    pub fn taken_with_shapes(
        read: impl FnOnce(&mut Intake<'_, Keeper>) -> anyhow::Result<()>,
    ) -> (Keeper, Summary, anyhow::Result<()>) {
        let mut keeper = Keeper::default();
        let mut intake = Intake::new(&mut keeper, |_| {});
        let result = read(&mut intake);
        intake.settle().unwrap();
        let summary = intake.finish(Duration::ZERO);
        (keeper, summary, result)
    }

    /// Count, first place and detail of a reason that contains `part`.
    pub fn refused(summary: &Summary, part: &str) -> (u64, u64, String) {
        let reasons = serde_json::to_value(&summary.reasons).unwrap();
        let reasons = reasons.as_array().unwrap();
        let found = reasons.iter().find(|it| it["reason"].as_str().unwrap().contains(part));
        let found = found.unwrap_or_else(|| panic!("{part}: {summary:?}"));
        let number = |name: &str| found[name].as_u64().unwrap();
        (number("count"), number("first_at"), found["detail"].as_str().unwrap().to_owned())
    }

    fn point(id: Option<u64>) -> Result<Row<'static>, Refusal> {
        let id = id.map(ObjectId::Number);
        Ok(Row { id, rect: Rect::point(1.0, 2.0).unwrap(), geometry: None, data: None })
    }

    #[test]
    fn refusals_are_counted_by_reason_and_the_rest_is_in() {
        let (kept, summary, result) = taken(|intake| {
            intake.take(2, point(Some(7)))?;
            intake.take(3, Err(BadRect::Inverted.into()))?;
            intake.take(4, point(None))?;
            intake.take(5, Err(BadRect::Inverted.into()))?;
            intake.take(6, point(Some(7)))?;
            let long = vec![0; MAX_DATA_BYTES + 1];
            let rect = Rect::default();
            intake
                .take(7, Ok(Row { id: Some(8.into()), rect, geometry: None, data: Some(&long) }))?;
            intake.take(
                8,
                Ok(Row { id: Some(8.into()), rect, geometry: None, data: Some(&long[1..]) }),
            )
        });
        result.unwrap();
        assert!(kept.keys().eq(&[7, 8]));
        assert_eq!((summary.added, summary.replaced, summary.refused()), (2, 1, 4));
        assert_eq!(refused(&summary, "minimum"), (2, 3, String::new()));
        assert_eq!(refused(&summary, "no id").1, 4);
        assert!(refused(&summary, "too long").2.contains("16385 bytes"));
        let mut out = Vec::new();
        summary.print("towns", false, &mut out).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(text.contains("towns: 2 added, 1 replaced, 4 refused"), "{text}");
        assert!(text.contains("refused 2: a minimum is greater than its maximum (first at 3)"));
    }

    #[test]
    fn without_ids_objects_are_numbered_by_their_place() {
        let (kept, summary, result) = taken(|intake| {
            intake.take(1, Err(BadRect::Infinite.into()))?;
            intake.take(2, point(None))?;
            intake.take(3, point(Some(1)))?;
            intake.take(4, point(None))
        });
        result.unwrap();
        assert!(kept.keys().eq(&[1, 3]), "a refused object has its number too");
        assert!(summary.numbered);
        assert_eq!(refused(&summary, "has an id"), (1, 3, "id 1".into()));
        let mut out = Vec::new();
        summary.print("towns", true, &mut out).unwrap();
        let json: serde_json::Value = serde_json::from_slice(&out).unwrap();
        assert_eq!((&json["added"], &json["refused"]), (&2.into(), &2.into()));
        assert_eq!(json["reasons"][0]["first_at"], 1);
    }

    #[test]
    fn a_server_that_fails_ends_the_import() {
        struct Broken;
        impl Sink for Broken {
            fn put(&mut self, _: ObjectId<'_>, _: &Row<'_>) -> anyhow::Result<()> {
                anyhow::bail!("memory is full")
            }
            fn settle(&mut self) -> anyhow::Result<()> {
                Ok(())
            }
            fn counts(&self) -> PutCounts {
                PutCounts { added: 5, replaced: 0 }
            }
        }
        let mut broken = Broken;
        let mut intake = Intake::new(&mut broken, |_| {});
        assert_eq!(intake.take(17, point(None)).unwrap_err().to_string(), "memory is full");
        assert_eq!(intake.finish(Duration::ZERO).added, 5, "the server's count");
    }
}
