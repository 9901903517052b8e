//! Files of rectangles: `--data` and `--windows`.

use crate::trace::read_bytes;
use remora_client_core::Rect;
use remora_command_line::usage;
use std::path::Path;

/// Bytes of a row: four i32.
const ROW_BYTES: usize = 16;
/// Names of the columns, in their order.
const COLUMNS: [&str; 4] = ["xmin", "ymin", "xmax", "ymax"];
/// Most rows: their numbers are 32 bits wide.
const MAX_ROWS: usize = u32::MAX as usize;

/// Reads quadruples of little-endian int32: xmin, ymin, xmax, ymax. A file whose name ends in `.xz`
/// is unpacked.
pub fn read_data(path: &Path) -> anyhow::Result<Vec<Rect>> {
    let bytes = read_bytes(path, "--data")?;
    parse_data(&bytes).map_err(|why| usage(format!("--data: {}: {why}", path.display())))
}

fn parse_data(bytes: &[u8]) -> Result<Vec<Rect>, String> {
    let (rows, rest) = bytes.as_chunks::<ROW_BYTES>();
    if !rest.is_empty() {
        return Err(format!(
            "{} bytes are no whole number of rows of {ROW_BYTES} (four little-endian int32 \
             xmin, ymin, xmax, ymax; a compressed file's name ends in .xz)",
            bytes.len()
        ));
    }
    if rows.is_empty() || rows.len() > MAX_ROWS {
        return Err("holds no rows, or too many".into());
    }
    let rects = rows.iter().enumerate().map(|(number, row)| {
        let (numbers, _) = row.as_chunks::<4>();
        let [xmin, ymin, xmax, ymax] =
            std::array::from_fn(|column| i32::from_le_bytes(numbers[column]));
        rect(xmin, ymin, xmax, ymax)
            .map_err(|why| format!("row {number} ({xmin},{ymin},{xmax},{ymax}): {why}"))
    });
    rects.collect()
}

/// Reads a CSV whose first four columns are xmin, ymin, xmax, ymax as int32,
/// after a header line that names them.
pub fn read_windows(path: &Path) -> anyhow::Result<Vec<Rect>> {
    let bytes = read_bytes(path, "--windows")?;
    parse_windows(&bytes).map_err(|why| usage(format!("--windows: {}: {why}", path.display())))
}

fn parse_windows(bytes: &[u8]) -> Result<Vec<Rect>, String> {
    let mut lines =
        csv::ReaderBuilder::new().flexible(true).trim(csv::Trim::All).from_reader(bytes);
    let header = lines.byte_headers().map_err(|error| error.to_string())?;
    let is_named = COLUMNS.iter().enumerate().all(|(at, name)| {
        header.get(at).is_some_and(|given| given.eq_ignore_ascii_case(name.as_bytes()))
    });
    if !is_named {
        return Err("line 1: the header has to begin with xmin,ymin,xmax,ymax".into());
    }
    let mut windows = Vec::new();
    let mut record = csv::ByteRecord::new();
    loop {
        match lines.read_byte_record(&mut record) {
            Ok(true) => {}
            Ok(false) => return Ok(windows),
            Err(error) => return Err(error.to_string()),
        }
        let line = record.position().map_or(0, csv::Position::line);
        let window = window_of(&record).map_err(|why| format!("line {line}: {why}"))?;
        windows.push(window);
    }
}

fn window_of(record: &csv::ByteRecord) -> Result<Rect, String> {
    let mut numbers = [0i32; 4];
    for (at, name) in COLUMNS.iter().enumerate() {
        let text = record.get(at).ok_or_else(|| format!("no {name}"))?;
        let text = String::from_utf8_lossy(text);
        let shown: String = text.chars().take(40).collect();
        numbers[at] = text.parse().map_err(|_| format!("{name}: \"{shown}\" is no int32"))?;
    }
    let [xmin, ymin, xmax, ymax] = numbers;
    rect(xmin, ymin, xmax, ymax)
}

fn rect(xmin: i32, ymin: i32, xmax: i32, ymax: i32) -> Result<Rect, String> {
    // Each i32 is exactly an f64: the comparison uses the file's exact numbers.
    Rect::new(xmin.into(), xmax.into(), ymin.into(), ymax.into()).map_err(|why| why.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(rows: &[[i32; 4]]) -> Vec<u8> {
        rows.as_flattened().iter().flat_map(|number| number.to_le_bytes()).collect()
    }

    #[test]
    fn rows_are_read_exactly() {
        let rows = [[i32::MIN, -1, i32::MAX, 0], [7, 7, 7, 7], [-5, 16_777_217, -5, 16_777_219]];
        let rects = parse_data(&bytes(&rows)).unwrap();
        for (rect, [xmin, ymin, xmax, ymax]) in rects.iter().zip(rows) {
            let numbers = [rect.min_x, rect.min_y, rect.max_x, rect.max_y];
            assert_eq!(
                numbers.map(|number| number as i64),
                [xmin, ymin, xmax, ymax].map(i64::from)
            );
        }
    }

    #[test]
    fn files_that_hold_no_rectangles_are_refused_with_the_row() {
        let error = |bytes: &[u8]| parse_data(bytes).unwrap_err();
        assert!(error(b"").contains("no rows"));
        for length in [1, 4, 15, 17, 33] {
            let why = error(&vec![0; length]);
            assert!(why.starts_with(&format!("{length} bytes")), "{why}");
        }
        let why = error(&bytes(&[[0, 0, 1, 1], [5, 0, 4, 1]]));
        assert!(why.starts_with("row 1 (5,0,4,1)") && why.contains("inverted"), "{why}");
        assert!(error(&bytes(&[[0, 1, 0, 0]])).starts_with("row 0"));
    }

    #[test]
    fn windows_are_the_first_four_columns() {
        let text = "xmin,ymin,xmax,ymax,name\r\n-1,2,3,4,\"a\nb\"\r\n\r\n 5 , 6, 5,6\n";
        let windows = parse_windows(text.as_bytes()).unwrap();
        assert_eq!(windows, [rect(-1, 2, 3, 4).unwrap(), rect(5, 6, 5, 6).unwrap()]);
        assert_eq!(parse_windows(b"\xef\xbb\xbfXMIN,ymin,xmax,ymax").unwrap(), []);
    }

    #[test]
    fn bad_windows_are_refused_with_their_line() {
        let error = |text: &str| parse_windows(text.as_bytes()).unwrap_err();
        for header in ["", "1,2,3,4\n", "xmin,ymin,xmax\n", "ymin,xmin,xmax,ymax\n1,2,3,4"] {
            assert!(error(header).starts_with("line 1"), "{header}");
        }
        for (row, why) in [
            ("1,2,3", "no ymax"),
            ("1,2,3,x", "\"x\" is no int32"),
            ("1,2,3,", "ymax: \"\" is no int32"),
            ("1,2,3,4.0", "\"4.0\" is no int32"),
            ("1,2,2147483648,4", "xmax"),
            ("3,2,1,4", "inverted"),
            ("1,2,3,\u{661}", "is no int32"),
        ] {
            let told = error(&format!("xmin,ymin,xmax,ymax\n0,0,1,1\n{row}\n"));
            assert!(told.starts_with("line 3: ") && told.contains(why), "{told}");
        }
        let long = format!("xmin,ymin,xmax,ymax\n{},2,3,4\n", "9".repeat(100_000));
        assert!(error(&long).len() < 100, "no more of a line is shown than helps");
        // Bytes that are no text, and a quote that never ends.
        assert!(parse_windows(b"xmin,ymin,xmax,ymax\n\xff,1,1,1\n").is_err());
        assert!(parse_windows(b"xmin,ymin,xmax,ymax\n\"1,1,1,1\n").is_err());
    }
}
