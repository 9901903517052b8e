//! The populated places of GeoNames that the project ships, as records:
//! `place:<geonameid>` has `name|country|latitude|longitude|population`.

use anyhow::{Context, ensure};
use remora_bench::Records;
use remora_client_core::Rect;
use std::io::Read;
use std::ops::Range;

/// The shipped table; see `data/README.md` for its source and licence.
const PACKED: &[u8] = include_bytes!("../../../../data/places.tsv.xz");
/// The table unpacked has about 8 MB; more is not ours.
const MAX_TABLE_BYTES: u64 = 256 << 20;
/// The prefix of a key; the place's id follows.
const KEY_PREFIX: &str = "place:";
/// Columns of a value, in this order.
const VALUE_COLUMNS: [&str; 5] = ["name", "country", "latitude", "longitude", "population"];
/// The place that is shown at the end of the demo: Paris.
pub const EXAMPLE_KEY: &str = "place:2988507";
const NAME: usize = 0;
const LATITUDE: usize = 2;
const LONGITUDE: usize = 3;

/// All places, the most populous first: a place's index is its rank.
#[derive(Debug)]
pub struct Places {
    /// Keys and values, one after the other.
    text: Vec<u8>,
    entries: Vec<Entry>,
}

/// One place.
#[derive(Clone, PartialEq, Debug)]
pub struct Place<'p> {
    /// GeoNames' id.
    pub id: u64,
    /// Its name.
    pub name: &'p str,
    /// Degrees of longitude, east positive.
    pub x: f64,
    /// Degrees of latitude, north positive.
    pub y: f64,
    /// Inhabitants.
    pub population: u64,
}

#[derive(Debug)]
struct Entry {
    key: Range<usize>,
    value: Range<usize>,
    population: u64,
}

impl Places {
    /// Unpacks the shipped table.
    pub fn load() -> anyhow::Result<Self> {
        let mut table = String::new();
        liblzma::read::XzDecoder::new(PACKED)
            .take(MAX_TABLE_BYTES)
            .read_to_string(&mut table)
            .context("unpacking the places")?;
        Self::from_table(&table)
    }

    /// Reads a table with the column names in its first line.
    fn from_table(table: &str) -> anyhow::Result<Self> {
        let mut lines = table.lines();
        let header: Vec<&str> = lines.next().context("an empty table")?.split('\t').collect();
        let column = |name: &str| {
            header.iter().position(|column| *column == name).with_context(|| {
                format!("the table of places has no column \"{name}\", but {header:?}")
            })
        };
        let id = column("geonameid")?;
        let population = column("population")?;
        let columns =
            VALUE_COLUMNS.into_iter().map(column).collect::<anyhow::Result<Vec<usize>>>()?;
        let mut places =
            Self { text: Vec::with_capacity(table.len()), entries: Vec::with_capacity(1 << 17) };
        for (number, line) in lines.enumerate() {
            let fields: Vec<&str> = line.split('\t').collect();
            ensure!(fields.len() == header.len(), "place {number}: {} columns", fields.len());
            let from = places.text.len();
            places.text.extend_from_slice(KEY_PREFIX.as_bytes());
            places.text.extend_from_slice(fields[id].as_bytes());
            let middle = places.text.len();
            for (position, column) in columns.iter().enumerate() {
                if position > 0 {
                    places.text.push(b'|');
                }
                places.text.extend_from_slice(fields[*column].as_bytes());
            }
            let population = fields[population]
                .parse()
                .with_context(|| format!("place {number}: population {}", fields[population]))?;
            let value = middle..places.text.len();
            places.entries.push(Entry { key: from..middle, value, population });
        }
        ensure!(!places.entries.is_empty(), "the table of places is empty");
        // Stable, so equal populations keep the table's order.
        places.entries.sort_by_key(|entry| std::cmp::Reverse(entry.population));
        Ok(places)
    }

    fn entry(&self, index: u32) -> &Entry {
        &self.entries[index as usize]
    }

    /// All places, the most populous first.
    pub fn all(&self) -> impl Iterator<Item = anyhow::Result<Place<'_>>> {
        (0..self.count() as u32).map(|index| {
            let column = |column| self.column(index, column);
            let (x, y) = (column(LONGITUDE)?.parse()?, column(LATITUDE)?.parse()?);
            let population = self.entry(index).population;
            Ok(Place { id: self.id(index)?, name: column(NAME)?, x, y, population })
        })
    }

    /// The places as points: their ids, and their degrees of longitude and
    /// latitude.
    pub fn points(&self) -> impl Iterator<Item = anyhow::Result<(u64, Rect)>> {
        self.all().map(|place| {
            let Place { id, x, y, .. } = place?;
            Ok((id, Rect::point(x, y)?))
        })
    }

    /// The name of the place with this id.
    pub fn name_of(&self, id: u64) -> anyhow::Result<String> {
        let mut all = 0..self.count() as u32;
        let index = all.find(|&index| self.id(index).is_ok_and(|known| known == id));
        Ok(self.column(index.context("no such place")?, NAME)?.into())
    }

    fn id(&self, index: u32) -> anyhow::Result<u64> {
        let key = std::str::from_utf8(self.key(index))?;
        Ok(key.strip_prefix(KEY_PREFIX).context("a key without its prefix")?.parse()?)
    }

    /// A column of a place's value, by its number in [`VALUE_COLUMNS`].
    fn column(&self, index: u32, column: usize) -> anyhow::Result<&str> {
        let value = std::str::from_utf8(&self.text[self.entry(index).value.clone()])?;
        value.split('|').nth(column).context("a value with too few columns")
    }

    /// Longest key and value, in bytes.
    pub fn longest(&self) -> (usize, usize) {
        let longest = |range: fn(&Entry) -> &Range<usize>| {
            self.entries.iter().map(|entry| range(entry).len()).max().unwrap_or(0)
        };
        (longest(|entry| &entry.key), longest(|entry| &entry.value))
    }
}

impl Records for Places {
    fn count(&self) -> usize {
        self.entries.len()
    }

    #[inline]
    fn key(&self, index: u32) -> &[u8] {
        &self.text[self.entry(index).key.clone()]
    }

    #[inline]
    fn value<'a>(&'a self, index: u32, _buffer: &'a mut Vec<u8>) -> &'a [u8] {
        &self.text[self.entry(index).value.clone()]
    }

    /// Every byte: the demo shows that the client reads the loaded data.
    #[inline]
    fn is_right(&self, index: u32, value: &[u8]) -> bool {
        value == &self.text[self.entry(index).value.clone()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shipped_places_are_whole() {
        let places = Places::load().unwrap();
        assert!(places.count() >= 50_000);
        let mut buffer = Vec::new();
        let paris = (0..places.count() as u32)
            .find(|index| places.key(*index) == b"place:2988507")
            .expect("Paris");
        let value = places.value(paris, &mut buffer).to_vec();
        assert!(value.starts_with(b"Paris|FR|48.85"), "{}", String::from_utf8_lossy(&value));
        assert!(places.is_right(paris, &value) && !places.is_right(paris + 1, &value));
        let (id, at) = places.points().nth(paris as usize).unwrap().unwrap();
        assert_eq!((id, places.name_of(id).unwrap().as_str()), (2_988_507, "Paris"));
        assert!(at.min_x == at.max_x && (2.3..2.4).contains(&at.min_x), "{at:?}");
        assert!(places.points().all(|point| point.is_ok()));
    }

    #[test]
    fn the_most_populous_come_first() {
        let table = "geonameid\tname\tcountry\tlatitude\tlongitude\tpopulation\tmore\n\
                     1\tA\tXX\t1.5\t2.5\t10\t-\n2\tB\tYY\t-1\t-2\t30\t-\n3\tC\tZZ\t0\t0\t10\t-\n";
        let places = Places::from_table(table).unwrap();
        let keys: Vec<&[u8]> = (0..3).map(|index| places.key(index)).collect();
        assert_eq!(keys, [&b"place:2"[..], b"place:1", b"place:3"]);
        assert_eq!(places.value(0, &mut Vec::new()), b"B|YY|-1|-2|30");
        assert_eq!(places.longest(), (7, 15));
    }

    #[test]
    fn a_strange_table_is_refused() {
        for table in [
            "",
            "geonameid\tname\n1\tA\n",
            "geonameid\tname\tcountry\tlatitude\t\
             longitude\tpopulation\n1\tA\tXX\t1\t2\n",
        ] {
            assert!(Places::from_table(table).is_err(), "{table:?}");
        }
    }
}
