//! Any bytes as a geometry, by each format, and as a predicate of a search:
//! what is accepted comes back the same, keeps the limits, and can be compared
//! with anything.
#![no_main]

use libfuzzer_sys::fuzz_target;
use remora_geometry::{Refine, Shape, Wkb};
use remora_layout::limits::MAX_GEOMETRY_BYTES;

fn check(shape: &Shape) {
    let wkb = shape.to_wkb();
    assert!(wkb.len() <= MAX_GEOMETRY_BYTES);
    assert_eq!(Wkb::parse(&wkb).map(|wkb| wkb.bounds()), Ok(shape.bounds()));
    assert_eq!(Shape::from_wkb(&wkb).as_ref(), Ok(shape));
    assert_eq!(Shape::from_geojson(&shape.to_geojson()).as_ref(), Ok(shape));
    let rect = Shape::of_rect(&shape.bounds());
    let within = Refine::Within(rect.clone());
    assert!(within.holds(shape), "a geometry lies in its bounds");
    assert!(Refine::Intersects(rect).holds(shape));
    assert!(Refine::DistanceAtMost { from: shape.clone(), most: 0.0 }.holds(shape));
}

fuzz_target!(|bytes: &[u8]| {
    if let Ok(shape) = Shape::from_wkb(bytes) {
        check(&shape);
    }
    if let Ok(shape) =
        str::from_utf8(bytes).map_err(drop).and_then(|text| Shape::from_text(text).map_err(drop))
    {
        check(&shape);
    }
    if let Ok(refine) = Refine::from_bytes(bytes) {
        assert_eq!(Refine::from_bytes(&refine.to_bytes()).as_ref(), Ok(&refine));
        assert!(refine.window().checked().is_ok());
        refine.holds(refine.shape());
    }
});
