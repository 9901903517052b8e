//! Replies about GEO keys, in the forms of Redis 7, from the bytes that shards
//! answer with.

use crate::request::{GeoError, GeoForm, GeoRender, Order, Stored};
use crate::wire::{Protocol, encode};
use remora_protocol::geo::Position;
use remora_protocol::geo::{Place, Places};
use remora_protocol::message::Status;
use std::cmp::Ordering;

/// Members that are written in one piece.
const PIECE_MEMBERS: usize = 512;

/// The scores in a shard's answer; none for a member that is not there.
fn scores(value: Option<&[u8]>) -> impl Iterator<Item = Option<f64>> {
    let (chunks, _) = value.unwrap_or_default().as_chunks();
    let score = |bytes: &[u8; 8]| Some(f64::from_le_bytes(*bytes)).filter(|score| !score.is_nan());
    chunks.iter().map(score)
}

/// A coordinate as Redis writes it: 17 digits behind the point, but no zeros
/// at the end.
fn coordinate(out: &mut Vec<u8>, protocol: Protocol, number: f64) {
    let text = format!("{number:.17}");
    let text = text.trim_end_matches('0').trim_end_matches('.');
    let text = if text == "-0" { "0" } else { text };
    number_text(out, protocol, text);
}

fn number_text(out: &mut Vec<u8>, protocol: Protocol, text: &str) {
    match protocol {
        Protocol::Resp2 => encode::bulk(out, text.as_bytes()),
        Protocol::Resp3 => {
            out.push(b',');
            out.extend_from_slice(text.as_bytes());
            out.extend_from_slice(b"\r\n");
        }
    }
}

fn position(out: &mut Vec<u8>, protocol: Protocol, score: f64) {
    let Position { longitude, latitude } = Position::of_score(score);
    encode::array(out, 2);
    coordinate(out, protocol, longitude);
    coordinate(out, protocol, latitude);
}

fn distance(out: &mut Vec<u8>, metres: f64, unit: f64) {
    encode::bulk(out, format!("{:.4}", metres / unit).as_bytes());
}

/// A score with 17 significant digits, as C's `%.17g` writes it.
fn score_text(score: f64) -> String {
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

/// Appends a reply that is not one of members found. A status that is an error
/// for any command has been told before.
pub fn write(
    out: &mut Vec<u8>,
    protocol: Protocol,
    render: GeoRender,
    (status, number, value): (Status, i64, Option<&[u8]>),
) {
    match render {
        GeoRender::Positions => {
            encode::array(out, scores(value).count());
            for score in scores(value) {
                match score {
                    Some(score) => position(out, protocol, score),
                    None => encode::null_array(out, protocol),
                }
            }
        }
        GeoRender::Hashes => {
            encode::array(out, scores(value).count());
            for score in scores(value) {
                let hash = score.map(|score| Position::of_score(score).geohash());
                encode::bulk_or_null(out, protocol, hash.as_ref().map(|hash| &hash[..]));
            }
        }
        GeoRender::Distance(unit) => {
            let mut both = scores(value).map(|score| score.map(Position::of_score));
            match (both.next().flatten(), both.next().flatten()) {
                (Some(from), Some(to)) => distance(out, from.distance(to), unit),
                _ => encode::null(out, protocol),
            }
        }
        GeoRender::Score => match scores(value).next().flatten() {
            Some(score) => number_text(out, protocol, &score_text(score)),
            None => encode::null(out, protocol),
        },
        // `number` is 1 if there is such a key.
        GeoRender::Refused(_) if number == 1 && scores(value).any(|score| score.is_none()) => {
            encode::error(out, &GeoError::NoMember.to_string());
        }
        GeoRender::Refused(error) => encode::error(out, &error.to_string()),
        GeoRender::Found(_) if status == Status::NotDone => {
            encode::error(out, &GeoError::NoMember.to_string());
        }
        GeoRender::Found(_) => encode::integer(out, number),
    }
}

/// Appends a reply in one piece that tells of these members (as [`Places`]
/// encodes them). It must be so small that nobody waits for it.
pub fn found(out: &mut Vec<u8>, protocol: Protocol, found: &[u8], form: &GeoForm) {
    if !form.is_bare() {
        let mut reply = FoundReply::new(found.to_vec(), *form);
        while !reply.write_piece(out, protocol) {}
        return;
    }
    let members = || Places::in_list(found);
    encode::array(out, members().count());
    members().for_each(|place| encode::bulk(out, place.member));
}

/// Members found, in the order and number that were asked for, written piece
/// by piece.
#[derive(Debug)]
pub struct FoundReply {
    found: Vec<u8>,
    /// Where each begins.
    places: Vec<usize>,
    form: GeoForm,
    written: usize,
    is_open: bool,
}

impl FoundReply {
    /// The reply that tells of these members (as [`Places`] encodes them).
    pub fn new(found: Vec<u8>, form: GeoForm) -> Self {
        let places = in_order(&found, &form);
        Self { found, places, form, written: 0, is_open: false }
    }

    /// Bytes of the members.
    pub fn bytes(&self) -> usize {
        self.found.len()
    }

    /// Appends the next piece. Whether it was the last one.
    pub fn write_piece(&mut self, out: &mut Vec<u8>, protocol: Protocol) -> bool {
        if !self.is_open {
            encode::array(out, self.places.len());
            self.is_open = true;
        }
        let piece = &self.places[self.written..];
        let piece = &piece[..piece.len().min(PIECE_MEMBERS)];
        let GeoForm { unit, .. } = self.form;
        let more = [self.form.distance, self.form.score, self.form.position];
        let more = more.into_iter().filter(|&is_told| is_told).count();
        for place in piece.iter().filter_map(|&at| place_at(&self.found, at)) {
            if more > 0 {
                encode::array(out, 1 + more);
            }
            encode::bulk(out, place.member);
            if self.form.distance {
                distance(out, place.distance, unit);
            }
            if self.form.score {
                encode::integer(out, place.score as i64);
            }
            if self.form.position {
                position(out, protocol, place.score);
            }
        }
        self.written += piece.len();
        self.written == self.places.len()
    }
}

fn place_at(found: &[u8], at: usize) -> Option<Place<'_>> {
    Places::first(found.get(at..)?)
}

/// Where the members begin that are told, in their order.
fn in_order(found: &[u8], form: &GeoForm) -> Vec<usize> {
    let mut at = 0;
    let mut places = Vec::new();
    while let Some(place) = place_at(found, at) {
        places.push((place.distance, at));
        at += Places::bytes_of(&place);
    }
    let order = |a: &(f64, usize), b: &(f64, usize)| match form.order {
        Some(Order::Nearest) => a.0.total_cmp(&b.0),
        Some(Order::Farthest) => b.0.total_cmp(&a.0),
        None => Ordering::Equal,
    };
    if form.order.is_some() {
        places.sort_by(order);
    }
    places.truncate(form.most);
    places.into_iter().map(|(_, at)| at).collect()
}

/// What another key is to hold of the members found (both as [`Places`]
/// encodes them).
pub fn stored(found: &[u8], form: &GeoForm) -> Vec<u8> {
    let mut list = Vec::new();
    for at in in_order(found, form) {
        let Some(place) = place_at(found, at) else { continue };
        let score = match form.stored {
            Some(Stored::Distance) => place.distance / form.unit,
            _ => place.score,
        };
        Places::push(&mut list, &Place { score, distance: 0.0, ..place });
    }
    list
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
            coordinate(&mut out, Protocol::Resp3, number);
            assert_eq!(String::from_utf8(out).unwrap(), format!(",{text}\r\n"));
        }
    }
}
