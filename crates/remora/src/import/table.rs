//! Tables: CSV, and columns parted by tabs.

use super::intake::{Intake, Row, Sink};
use crate::refusals::Refusal;
use csv::ByteRecord;
use remora_client_core::Rect;
use remora_command_line::usage;
use remora_geometry::Shape;
use std::io::Read;

/// Names that a column may have, for each edge of a box.
const BOX: [&[&str]; 4] =
    [&["min_x", "xmin"], &["max_x", "xmax"], &["min_y", "ymin"], &["max_y", "ymax"]];
/// The same for points.
const POINT: [&[&str]; 2] = [&["x", "lon", "lng", "longitude"], &["y", "lat", "latitude"]];

/// The user's statements about the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Wanted<'a> {
    /// Column of ids.
    pub id: Option<&'a str>,
    /// Column of the objects' bytes.
    pub data: Option<&'a str>,
    /// Only the bounding boxes of geometries are kept.
    pub boxes: bool,
    /// Tabs part the columns, and quotes are plain characters.
    pub is_tabbed: bool,
}

/// The positions of a table's columns.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Columns {
    id: Option<usize>,
    /// Columns of min x, max x, min y, max y; a table of geometries needs none.
    edges: Option<[usize; 4]>,
    /// Column of geometries, as WKT.
    wkt: Option<usize>,
    data: Option<usize>,
}

impl Columns {
    fn find(header: &ByteRecord, wanted: Wanted<'_>) -> anyhow::Result<Self> {
        let names: Vec<String> = header
            .iter()
            .map(|name| String::from_utf8_lossy(name).trim().to_ascii_lowercase())
            .collect();
        let find = |known: &[&str]| names.iter().position(|name| known.contains(&name.as_str()));
        let column = |flag: &str, named: Option<&str>, plain: &str| {
            let Some(name) = named else { return Ok(find(&[plain])) };
            match find(&[&name.trim().to_ascii_lowercase()]) {
                Some(column) => Ok(Some(column)),
                None => Err(usage(format!("{flag}: no column {name}, but {}", names.join(", ")))),
            }
        };
        let wkt = find(&["wkt"]);
        let edges = match (BOX.map(find), POINT.map(find)) {
            ([Some(min_x), Some(max_x), Some(min_y), Some(max_y)], _) => {
                Some([min_x, max_x, min_y, max_y])
            }
            (_, [Some(x), Some(y)]) => Some([x, x, y, y]),
            _ if wkt.is_some() => None,
            _ => {
                let names: String = names.join(", ").chars().take(200).collect();
                return Err(usage(format!(
                    "line 1 has to name the columns min_x, min_y, max_x and max_y, or x and y (lon \
                     and lat), or wkt, but has {names}"
                )));
            }
        };
        Ok(Self {
            id: column("--id-column", wanted.id, "id")?,
            data: column("--data-column", wanted.data, "data")?,
            edges,
            wkt,
        })
    }

    fn row<'a>(
        &self,
        record: &'a ByteRecord,
        boxes: bool,
        wkb: &'a mut Vec<u8>,
    ) -> Result<Row<'a>, Refusal> {
        let id = match self.id {
            None => None,
            Some(column) => Some(text(record, column)?.into()),
        };
        let rect = match self.shape(record)? {
            Some(shape) if !boxes && !shape.is_point() => {
                let rect = shape.bounds();
                *wkb = shape.to_wkb();
                return Ok(Row { id, rect, geometry: Some(wkb), data: self.data(record) });
            }
            Some(shape) => shape.bounds(),
            None => {
                let columns = self.edges.ok_or(Refusal::new("it has no geometry", ""))?;
                self.rect(record, columns)?
            }
        };
        Ok(Row { id, rect, geometry: None, data: self.data(record) })
    }

    fn data<'a>(&self, record: &'a ByteRecord) -> Option<&'a [u8]> {
        let data = self.data.and_then(|column| record.get(column));
        data.filter(|data| !data.is_empty())
    }

    /// A geometry, if this row has one.
    fn shape(&self, record: &ByteRecord) -> Result<Option<Shape>, Refusal> {
        let Some(column) = self.wkt else { return Ok(None) };
        let text = text(record, column)?;
        if text.is_empty() {
            return Ok(None);
        }
        Shape::from_wkt(text).map(Some).map_err(|why| Refusal::of_shape(&why, "its wkt"))
    }

    fn rect(&self, record: &ByteRecord, columns: [usize; 4]) -> Result<Rect, Refusal> {
        let mut edges = [0.0f64; 4];
        for (edge, column) in edges.iter_mut().zip(columns) {
            let text = text(record, column)?;
            *edge = text
                .parse()
                .map_err(|_| Refusal::new("a coordinate is not a number", format!("\"{text}\"")))?;
        }
        let [min_x, max_x, min_y, max_y] = edges;
        Ok(Rect::new(min_x, max_x, min_y, max_y)?)
    }
}

fn text(record: &ByteRecord, column: usize) -> Result<&str, Refusal> {
    let bytes = record
        .get(column)
        .ok_or_else(|| Refusal::new("columns are missing", format!("{} columns", record.len())))?;
    let text = std::str::from_utf8(bytes).map_err(|_| Refusal::new("a number is no text", ""))?;
    Ok(text.trim())
}

/// Reads a table.
pub fn read<S: Sink>(
    input: impl Read,
    wanted: Wanted<'_>,
    intake: &mut Intake<'_, S>,
) -> anyhow::Result<()> {
    let mut rows = csv::ReaderBuilder::new()
        .flexible(true)
        .delimiter(if wanted.is_tabbed { b'\t' } else { b',' })
        .quoting(!wanted.is_tabbed)
        .from_reader(input);
    let columns = Columns::find(rows.byte_headers()?, wanted)?;
    let (mut record, mut wkb) = (ByteRecord::new(), Vec::new());
    while rows.read_byte_record(&mut record)? {
        let line = record.position().map_or(0, csv::Position::line);
        intake.take(line, columns.row(&record, wanted.boxes, &mut wkb))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::intake::tests::{Kept, refused, taken};
    use super::*;

    fn of(text: &[u8], wanted: Wanted<'_>) -> (Kept, super::super::intake::Summary) {
        let (kept, summary, result) = taken(|intake| read(text, wanted, intake));
        result.unwrap();
        (kept, summary)
    }

    #[test]
    fn boxes_and_points_in_any_order_of_columns() {
        let boxes =
            "name,ID,max_y,min_x,min_y,max_x,data\na,3,4,1,2,3e0,\"x,\"\"y\nz\"\nb,4,1,1,1,1,\n";
        let (kept, summary) = of(boxes.as_bytes(), Wanted::default());
        assert_eq!(summary.refused(), 0);
        assert_eq!(kept[&3], (Rect::new(1.0, 3.0, 2.0, 4.0).unwrap(), Some(b"x,\"y\nz".to_vec())));
        assert_eq!(kept[&4], (Rect::point(1.0, 1.0).unwrap(), None));
        for header in ["x,y", "lon,lat", "Longitude , LATITUDE", "\u{feff}x,y"] {
            let (kept, _) = of(format!("{header}\r\n -1.5 ,2\r\n").as_bytes(), Wanted::default());
            assert_eq!(kept[&0], (Rect::point(-1.5, 2.0).unwrap(), None), "{header}");
        }
        let wanted =
            Wanted { id: Some("number"), data: Some("name"), is_tabbed: true, boxes: false };
        let (kept, _) = of(b"number\tlat\tlon\tname\n9\t1\t2\t\"Ober\n", wanted);
        assert_eq!(kept[&9], (Rect::point(2.0, 1.0).unwrap(), Some(b"\"Ober".to_vec())));
    }

    #[test]
    fn bad_rows_take_no_other_with_them() {
        let mut text = b"id,min_x,min_y,max_x,max_y\n".to_vec();
        for row in [
            "1,0,0,1,1",
            "2,0,0,1",
            "3,a,0,1,1",
            "4,NaN,0,1,1",
            "5,0,0,inf,1",
            "6,2,0,1,1",
            "-7,0,0,1,1",
            "18446744073709551616,0,0,1,1",
            ",0,0,1,1",
            "8,0,0,1,1e999",
            "",
            "18446744073709551615,0,0,1,1,more,and more",
        ] {
            text.extend_from_slice(row.as_bytes());
            text.push(b'\n');
        }
        text.extend_from_slice(b"10,\xff,0,1,1\n\"11\",0,0,1,1\n12,0,0,1,\"1");
        let (kept, summary) = of(&text, Wanted::default());
        assert!(kept.keys().eq(&[1, 11, 12]), "others have ids that are no integers");
        assert_eq!(refused(&summary, "missing"), (1, 3, "4 columns".into()));
        assert_eq!(refused(&summary, "not a number"), (2, 4, "\"a\"".into()));
        assert_eq!(refused(&summary, "infinite"), (2, 6, String::new()));
        assert_eq!(refused(&summary, "minimum").1, 7);
        assert_eq!(refused(&summary, "id is empty"), (1, 10, String::new()));
        assert_eq!(refused(&summary, "no text").1, 14);
        assert_eq!(summary.refused(), 8);
    }

    #[test]
    fn a_header_that_does_not_fit_is_a_usage_error() {
        let error = |text: &str, wanted| {
            let (_, _, result) = taken(|intake| read(text.as_bytes(), wanted, intake));
            result.unwrap_err().to_string()
        };
        for text in ["", "1,2,3\n", "id,min_x,min_y,max_x\n", "x,z\n"] {
            assert!(error(text, Wanted::default()).contains("line 1"), "{text}");
        }
        let wanted = Wanted { id: Some("key"), ..Wanted::default() };
        assert!(error("id,x,y\n", wanted).contains("--id-column: no column key"));
    }
}
