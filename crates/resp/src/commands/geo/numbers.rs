//! How positions and distances are written, as Redis 7 writes them.

use crate::numbers::write_text;
use crate::wire::{RespVersion, encode};
use remora_protocol::geo::Position;

/// A coordinate as Redis writes it: 17 digits behind the point, but no zeros
/// at the end.
fn coordinate(out: &mut Vec<u8>, version: RespVersion, number: f64) {
    let text = format!("{number:.17}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    let text = if text == "-0" { "0" } else { text };
    write_text(out, version, text);
}

pub(super) fn position(out: &mut Vec<u8>, version: RespVersion, score: f64) {
    let Position { longitude, latitude } = Position::of_score(score);
    encode::array(out, 2);
    coordinate(out, version, longitude);
    coordinate(out, version, latitude);
}

pub(super) fn distance(out: &mut Vec<u8>, metres: f64, unit: f64) {
    encode::bulk(out, format!("{:.4}", metres / unit).as_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coordinates_have_no_zeros_at_the_end() {
        for (number, text) in [
            (13.361389338970184, "13.36138933897018433"),
            (-0.0, "0"),
            (180.0, "180"),
            (2.5, "2.5"),
            (100.0, "100"),
        ] {
            let mut out = Vec::new();
            coordinate(&mut out, RespVersion::Resp3, number);
            assert_eq!(String::from_utf8(out).unwrap(), format!(",{text}\r\n"));
        }
    }
}
