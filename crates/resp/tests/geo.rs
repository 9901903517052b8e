//! Requests about GEO keys by hand: errors that the oracle cannot show, and
//! replies in pieces.

use remora_layout::limits::MAX_SORTED_MEMBER_BYTES;
use remora_protocol::geo::{Member, Members, Position, Shape};
use remora_protocol::sorted::{Scored, SortedCommand};
use remora_resp::commands::geo::{FoundReply, stored};
use remora_resp::form::{GeoForm, Order, ReplyForm, Stored};
use remora_resp::wire::encode;
use remora_resp::{Args, CommandError, Made, Parsed, Request, RespVersion, parse, request};

/// Parses one array of words and hands the outcome on.
fn with<T>(words: &[&[u8]], look: impl FnOnce(Result<Request<'_>, CommandError>) -> T) -> T {
    let mut bytes = Vec::new();
    encode::request(&mut bytes, words);
    let mut args = Args::new();
    assert_eq!(parse(&bytes, &mut args), Ok(Parsed::Request { consumed: bytes.len() }));
    look(request(&args, &bytes, &Made::default(), 0))
}

fn split(line: &str) -> Vec<&[u8]> {
    line.split(' ').map(str::as_bytes).collect()
}

#[test]
fn errors_are_told() {
    let long = vec![b'm'; MAX_SORTED_MEMBER_BYTES + 1];
    for line in [
        "ZREM k @",
        "GEOPOS k a @",
        "ZADD k 1 a 2 @",
        "ZINCRBY k 1 @",
        "ZSCORE k @",
        "GEOADD k 1 2 @",
    ] {
        let words: Vec<&[u8]> =
            split(line).into_iter().map(|w| if w == b"@" { &long[..] } else { w }).collect();
        with(&words, |found| {
            let text = found.expect_err(line).to_string();
            assert_eq!(text, "ERR member is longer than 65535 bytes");
        });
    }
    // Errors in a search's arguments come once the key's kind is known.
    with(&split("GEOSEARCH k FROMLONLAT 1 2 BYRADIUS -1 km"), |found| {
        let Ok(Request::Object { request, form: ReplyForm::GeoRefused(error), .. }) = found else {
            panic!("{found:?}")
        };
        assert_eq!(error.to_string(), "ERR radius cannot be negative");
        let asked = SortedCommand::of(request);
        assert!(matches!(asked, SortedCommand::Scores { members } if members.bytes().is_empty()));
    });
}

#[test]
fn a_search_is_understood() {
    with(&split("geosearchstore to from frommember m bybox 2 3 km desc count 7 any"), |found| {
        let Ok(Request::Store { key: b"from", request, form, to: b"to" }) = found else {
            panic!("{found:?}")
        };
        let SortedCommand::Search { query } = SortedCommand::of(request) else {
            panic!("no search")
        };
        let search = query.search();
        assert_eq!(search.shape, Shape::Box { width: 2000.0, height: 3000.0 });
        assert_eq!(search.enough, 7);
        let ReplyForm::GeoFound(form) = form else { panic!("{form:?}") };
        assert_eq!((form.order, form.most), (Some(Order::Farthest), 7));
        assert_eq!((form.unit, form.stored), (1000.0, Some(Stored::Score)));
    });
}

fn form() -> GeoForm {
    GeoForm {
        order: Some(Order::Nearest),
        most: usize::MAX,
        distance: true,
        score: false,
        position: false,
        unit: 1000.0,
        stored: None,
    }
}

#[test]
fn a_long_reply_comes_in_pieces_and_in_order() {
    let score = Position::new(1.0, 2.0).unwrap().score();
    let mut found = Vec::new();
    for at in 0..2_000 {
        let member = format!("m{at}");
        let distance = (at * 7 % 2_000) as f64;
        Members::push(&mut found, &Member { score, distance, member: member.as_bytes() });
    }
    let mut reply = FoundReply::new(found.clone(), form());
    let (mut out, mut pieces) = (Vec::new(), 1);
    while !reply.write_piece(&mut out, RespVersion::Resp2) {
        pieces += 1;
    }
    assert_eq!(pieces, 4);
    let text = String::from_utf8(out).unwrap();
    assert!(text.starts_with("*2000\r\n*2\r\n$2\r\nm0\r\n$6\r\n0.0000\r\n"));
    assert!(text.ends_with("$6\r\n1.9990\r\n"));
    let most = 3;
    let kept = stored(&found, &GeoForm { most, stored: Some(Stored::Distance), ..form() });
    let scores: Vec<f64> = Scored::parse(&kept).unwrap().iter().map(|(score, _)| score).collect();
    assert_eq!(scores, [0.0, 0.001, 0.002]);
    let mut empty = FoundReply::new(Vec::new(), form());
    let mut out = Vec::new();
    assert!(empty.write_piece(&mut out, RespVersion::Resp3));
    assert_eq!(out, b"*0\r\n");
}
