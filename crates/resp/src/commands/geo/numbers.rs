//! How numbers and positions are written, as Redis 7 writes them.

use crate::wire::{RespVersion, encode};
use remora_protocol::geo::Position;

/// The scores in a shard's answer; none for a member that is not there.
pub(super) fn scores(value: Option<&[u8]>) -> impl Iterator<Item = Option<f64>> {
    let (chunks, _) = value.unwrap_or_default().as_chunks();
    let score = |bytes: &[u8; 8]| Some(f64::from_le_bytes(*bytes)).filter(|score| !score.is_nan());
    chunks.iter().map(score)
}

/// A coordinate as Redis writes it: 17 digits behind the point, but no zeros
/// at the end.
fn coordinate(out: &mut Vec<u8>, version: RespVersion, number: f64) {
    let text = format!("{number:.17}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    let text = if text == "-0" { "0" } else { text };
    number_text(out, version, text);
}

pub(super) fn number_text(out: &mut Vec<u8>, version: RespVersion, text: &str) {
    match version {
        RespVersion::Resp2 => encode::bulk(out, text.as_bytes()),
        RespVersion::Resp3 => {
            out.push(b',');
            out.extend_from_slice(text.as_bytes());
            out.extend_from_slice(b"\r\n");
        }
    }
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

/// A score with 17 significant digits, as C's `%.17g` writes it.
pub(super) fn score_text(score: f64) -> String {
    let scientific = format!("{score:.16e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let trim = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    match exponent {
        -4..17 => trim(&format!("{score:.*}", (16 - exponent) as usize)),
        _ => {
            let sign = if exponent < 0 { '-' } else { '+' };
            format!("{}e{sign}{:02}", trim(digits), exponent.abs())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scores_are_written_as_c_writes_them() {
        for (score, text) in [
            (0.0, "0"),
            (3479099956230698.0, "3479099956230698"),
            (18014398509481984.0, "18014398509481984"),
            (314.3718348336028, "314.3718348336028"),
            (0.1, "0.10000000000000001"),
            (0.00012345, "0.00012344999999999999"),
            (0.000012345, "1.2345e-05"),
            (1e17, "1e+17"),
            (1e300, "1.0000000000000001e+300"),
        ] {
            assert_eq!(score_text(score), text);
        }
    }

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
