//! Which closed ways are areas. The file does not say; the keys do, as in the
//! list osm-polygon-features (<https://github.com/tyrasd/osm-polygon-features>)
//! and the wiki's page <https://wiki.openstreetmap.org/wiki/Overpass_turbo/Polygon_Features>.

/// For which values of a key a closed way is an area.
enum Values {
    All,
    Only(&'static [&'static str]),
    AllBut(&'static [&'static str]),
}

use Values::{All, AllBut, Only};

const KEYS: &[(&str, Values)] = &[
    ("aeroway", AllBut(&["taxiway"])),
    ("amenity", All),
    ("area:highway", All),
    ("barrier", Only(&["city_wall", "ditch", "hedge", "retaining_wall", "spikes"])),
    ("boundary", All),
    ("building", All),
    ("building:part", All),
    ("craft", All),
    ("golf", All),
    ("highway", Only(&["services", "rest_area", "escape", "elevator"])),
    ("historic", All),
    ("indoor", All),
    ("landuse", All),
    ("leisure", All),
    ("man_made", AllBut(&["cutline", "embankment", "pipeline"])),
    ("military", All),
    ("natural", AllBut(&["coastline", "cliff", "ridge", "arete", "tree_row"])),
    ("office", All),
    ("place", All),
    ("power", Only(&["plant", "substation", "generator", "transformer"])),
    ("public_transport", All),
    ("railway", Only(&["station", "turntable", "roundhouse", "platform"])),
    ("ruins", All),
    ("shop", All),
    ("tourism", All),
    ("waterway", Only(&["riverbank", "dock", "boatyard", "dam"])),
];

/// Whether a closed way with these tags is an area: `area` says so, else one
/// of its keys does. A key whose value is `no` says nothing.
pub fn is_area(tags: &[(&str, &str)]) -> bool {
    match tags.iter().find(|(key, _)| *key == "area") {
        Some((_, value)) => *value != "no",
        None => tags.iter().any(|(key, value)| {
            let Ok(at) = KEYS.binary_search_by_key(key, |(known, _)| known) else { return false };
            *value != "no"
                && match KEYS[at].1 {
                    All => true,
                    Only(values) => values.contains(value),
                    AllBut(values) => !values.contains(value),
                }
        }),
    }
}

/// Whether a relation with these tags is an area.
pub fn is_area_relation(tags: &[(&str, &str)]) -> bool {
    tags.iter().any(|tag| matches!(*tag, ("type", "multipolygon" | "boundary")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_values_decide() {
        assert!(KEYS.is_sorted_by_key(|(key, _)| key));
        for (tags, wanted) in [
            (&[("building", "yes")][..], true),
            (&[("building", "no")], false),
            (&[("highway", "pedestrian")], false),
            (&[("highway", "pedestrian"), ("area", "yes")], true),
            (&[("landuse", "grass"), ("area", "no")], false),
            (&[("natural", "coastline")], false),
            (&[("natural", "wood")], true),
            (&[("railway", "station")], true),
            (&[("name", "x")], false),
            (&[], false),
        ] {
            assert_eq!(is_area(tags), wanted, "{tags:?}");
        }
    }
}
