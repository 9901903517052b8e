//! One load: a generation from its first row to the removal of the one before.

use crate::convert::{NotWritten, Pass, Write, convert};
use crate::generation::{Generation, Keys, Lock, current, tell_error};
use crate::mapping::{Mapping, TableMapping};
use crate::row::{Cell, Position, Rows};
use crate::server::Server;
use crate::source::Source;
use crate::source::place::Place;
use crate::writer::{Counts, Refused, Writer};
use anyhow::{anyhow, bail};
use indicatif::{ProgressBar, ProgressStyle};
use remora_command_line::note;
use serde::Serialize;
use std::time::{Duration, Instant};

/// The bar says so many rows after another how far it is.
const TELL_EVERY: u64 = 1024;

/// What is to be loaded, and where to.
#[derive(Debug)]
pub struct Job<'a> {
    /// A file, a directory, or a URL of PostgreSQL.
    pub source: &'a str,
    /// What becomes of it.
    pub mapping: &'a Mapping,
    /// `HOST:PORT` of the server.
    pub server: &'a str,
    /// So long readers may stay in an old generation.
    pub grace: Duration,
    /// Whether a source without rows may take the place of a generation that has some.
    pub allow_empty: bool,
}

/// A load that is done.
#[derive(Clone, Debug, Serialize)]
pub struct Loaded {
    /// The name of the data set.
    pub name: String,
    /// The generation to which the root moved.
    pub generation: u64,
    /// Rows of all tables.
    pub rows: u64,
    /// What was written of them.
    #[serde(flatten)]
    pub counts: Counts,
    /// Keys of older generations that were removed.
    pub removed: u64,
    /// Seconds from the beginning to the move of the root.
    pub elapsed_s: f64,
}

impl Job<'_> {
    /// Loads a generation, moves the root to it, and removes older ones after the grace time.
    ///
    /// # Errors
    /// The source or the server is away, a row is bad, there are no rows where some were, the server
    /// refuses: the root stays where it was and says it in its fields `last_error` and `failed_at`, if the server takes them.
    pub fn run(&self) -> anyhow::Result<Loaded> {
        self.load().inspect_err(|error| {
            let keys = Keys::of(&self.mapping.name);
            let told = Server::connect(self.server)
                .and_then(|mut server| tell_error(&mut server, &keys, &format!("{error:#}")));
            // The caller says the error itself.
            drop(told);
        })
    }

    fn load(&self) -> anyhow::Result<Loaded> {
        let began = Instant::now();
        let mut source = Source::open(self.source, self.mapping)?;
        let mut control = Server::connect(self.server)?;
        let keys = Keys::of(&self.mapping.name);
        current(&mut control, &keys)?;
        let mut lock = Lock::take(&mut control, &keys)?;
        let loaded = self.with_lock(&mut source, &mut control, &keys, &mut lock, began);
        match (loaded, lock.release(&mut control)) {
            (Ok(loaded), released) => released.map(|()| loaded),
            (Err(error), _) => Err(error),
        }
    }

    fn with_lock(
        &self,
        source: &mut Source,
        control: &mut Server,
        keys: &Keys,
        lock: &mut Lock,
        began: Instant,
    ) -> anyhow::Result<Loaded> {
        let generation = Generation::begin(control, lock, keys, &self.mapping.root)?;
        let filled = self.fill(source, control, lock, &generation).and_then(|(rows, counts)| {
            if rows == 0 && !self.allow_empty {
                check_empty(control, &generation)?;
            }
            let elapsed_s = began.elapsed().as_secs_f64();
            let known = [
                ("rows", rows.to_string()),
                ("items", counts.items.to_string()),
                ("links", counts.links.to_string()),
                ("elements", counts.elements.to_string()),
                ("elapsed_s", format!("{elapsed_s:.3}")),
            ];
            generation.finish(control, &known)?;
            let (name, generation) = (self.mapping.name.clone(), generation.number());
            Ok(Loaded { name, generation, rows, counts, removed: 0, elapsed_s })
        });
        let mut loaded = match filled {
            Ok(loaded) => loaded,
            Err(error) => {
                if let Err(why) = generation.abandon(control, lock) {
                    note(&format!("generation {} stays for now: {why:#}", generation.number()));
                }
                return Err(error);
            }
        };
        if generation.before() > 0 {
            note(&format!(
                "{}: generation {} is the present one; the one before goes in {} s",
                keys.root(),
                generation.number(),
                self.grace.as_secs_f64()
            ));
            let removed = lock
                .wait(control, self.grace)
                .and_then(|()| generation.remove_older(control, lock));
            match removed {
                Ok(removed) => loaded.removed = removed,
                // The load itself is done.
                Err(why) => note(&format!("older generations stay until the next load: {why:#}")),
            }
        }
        Ok(loaded)
    }

    /// Writes all of a generation, until it is acknowledged. Returns the number of rows, and what was written.
    fn fill(
        &self,
        source: &mut Source,
        control: &mut Server,
        lock: &mut Lock,
        generation: &Generation<'_>,
    ) -> anyhow::Result<(u64, Counts)> {
        let mut data = Server::connect(self.server)?;
        let places = places(source, self.mapping);
        let mut filling = Filling {
            writer: Writer::new(&mut data),
            control,
            lock,
            prefix: generation.prefix().into_bytes(),
            source: self.source,
            mapping: self.mapping,
            places: &places,
            pass: Pass::Fields,
            table: 0,
            rows: 0,
            bar: ProgressBar::hidden(),
        };
        let rows = filling.write_all(source);
        if rows.is_err() {
            // What is under way is answered before it is removed.
            filling.writer.drain();
        }
        Ok((rows?, filling.writer.counts()))
    }
}

/// Refuses a generation without rows in place of one that has some: a source that was cut off looks like that.
fn check_empty(control: &mut Server, generation: &Generation<'_>) -> anyhow::Result<()> {
    let before = generation.before();
    if before == 0 {
        return Ok(());
    }
    // Without a count, which an eviction may have taken, there may have been rows.
    let rows = match generation.rows_before(control)? {
        Some(0) => return Ok(()),
        Some(rows) => format!("{rows} rows"),
        None => "an unknown number of rows".to_owned(),
    };
    bail!(
        "the source has no rows, and generation {before} has {rows}; --allow-empty loads it nevertheless"
    )
}

/// Where the rows of each table are.
pub fn places(source: &Source, mapping: &Mapping) -> Vec<Place> {
    mapping.tables.iter().map(|table| source.place(table)).collect()
}

/// A bar that shows how much of a file is read, or how many rows; where standard error is a terminal.
pub fn progress_bar(source: &str, name: &str) -> ProgressBar {
    let bar = if Source::is_database(source) {
        ProgressBar::new_spinner()
    } else {
        let bar = ProgressBar::new(0);
        let style =
            ProgressStyle::with_template("{prefix} {wide_bar} {bytes}/{total_bytes} {msg} {eta}");
        style.map(|style| bar.clone().with_style(style)).unwrap_or(bar)
    };
    bar.with_prefix(name.to_owned())
}

/// A generation that is being filled.
struct Filling<'a> {
    writer: Writer<'a>,
    control: &'a mut Server,
    lock: &'a mut Lock,
    prefix: Vec<u8>,
    source: &'a str,
    mapping: &'a Mapping,
    places: &'a [Place],
    pass: Pass,
    /// The number of the table that is read, and its rows so far.
    table: usize,
    rows: u64,
    bar: ProgressBar,
}

impl Filling<'_> {
    /// Writes all passes, until they are acknowledged; returns the number of rows.
    fn write_all(&mut self, source: &mut Source) -> anyhow::Result<u64> {
        let rows = self.read_all(source)?;
        if self.mapping.has_links() {
            self.pass = Pass::Links;
            let again = self.read_all(source)?;
            if again != rows {
                bail!("the source changed while it was read: {rows} rows, then {again}");
            }
        }
        let settled = self.writer.settle();
        settled.map_err(|error| self.told(error))?;
        Ok(rows)
    }

    /// Reads all tables; returns the number of rows.
    fn read_all(&mut self, source: &mut Source) -> anyhow::Result<u64> {
        let mut rows = 0;
        for (at, table) in self.mapping.tables.iter().enumerate() {
            (self.table, self.rows) = (at, 0);
            let bar = progress_bar(self.source, &self.places[at].name);
            self.bar = bar.clone();
            let read = source.read(table, &bar, self);
            bar.finish_and_clear();
            read?;
            rows += self.rows;
        }
        Ok(rows)
    }

    fn table(&self) -> &TableMapping {
        &self.mapping.tables[self.table]
    }

    fn place(&self, number: u64, at: Position) -> String {
        self.places[self.table].tell(self.table(), number, at)
    }

    /// A refusal with the row that it is for, which lies behind the present one.
    fn told(&self, error: anyhow::Error) -> anyhow::Error {
        match error.downcast::<Refused>() {
            Ok(refused) => {
                let (table, number) = refused.origin;
                let table_mapping = &self.mapping.tables[table];
                anyhow!(
                    "{}: {refused}",
                    self.places[table].tell(table_mapping, number, Position::Row)
                )
            }
            Err(error) => error,
        }
    }
}

impl Rows for Filling<'_> {
    fn row(&mut self, number: u64, cells: &[Cell<'_>]) -> anyhow::Result<()> {
        self.rows += 1;
        if self.rows.is_multiple_of(TELL_EVERY) {
            self.bar.set_message(format!("{} rows", self.rows));
        }
        self.lock.renew(self.control)?;
        let table = &self.mapping.tables[self.table];
        let (writer, origin) = (&mut self.writer, (self.table, number));
        let mut take = |write: Write<'_>| writer.write(origin, &write);
        match convert(table, &self.prefix, self.pass, cells, &mut take) {
            Ok(()) => Ok(()),
            Err(NotWritten::Bad(at, why)) => bail!("{}: {why}", self.place(number, at)),
            Err(NotWritten::Failed(error)) => Err(self.told(error)),
        }
    }

    fn bad(&mut self, number: u64, at: Position, why: String) -> anyhow::Result<()> {
        bail!("{}: {why}", self.place(number, at))
    }

    fn idle(&mut self) -> anyhow::Result<()> {
        self.lock.renew(self.control)
    }
}

#[cfg(test)]
mod tests;
