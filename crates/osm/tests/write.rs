//! A small writer of OSM PBF files, for tests: one element after the other
//! into a block, blocks into blobs, packed or not.
#![allow(dead_code)]

use flate2::Compression;
use flate2::write::ZlibEncoder;
use std::collections::BTreeMap;
use std::io::Write;

pub type Tags<'a> = &'a [(&'a str, &'a str)];

pub fn varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

pub fn zigzag(number: i64) -> u64 {
    (number << 1 ^ number >> 63) as u64
}

/// A field of a number.
pub fn number(out: &mut Vec<u8>, field: u64, value: u64) {
    varint(out, field << 3);
    varint(out, value);
}

/// A field of bytes.
pub fn bytes(out: &mut Vec<u8>, field: u64, value: &[u8]) {
    varint(out, field << 3 | 2);
    varint(out, value.len() as u64);
    out.extend_from_slice(value);
}

/// A field of packed numbers.
pub fn list(out: &mut Vec<u8>, field: u64, values: impl IntoIterator<Item = u64>) {
    let mut packed = Vec::new();
    values.into_iter().for_each(|value| varint(&mut packed, value));
    bytes(out, field, &packed);
}

/// Numbers as differences, each to the one before.
pub fn deltas(values: &[i64]) -> Vec<u64> {
    let before = std::iter::once(&0).chain(values);
    values.iter().zip(before).map(|(value, before)| zigzag(value.wrapping_sub(*before))).collect()
}

/// A block with its texts.
#[derive(Default)]
pub struct Block {
    texts: BTreeMap<String, u64>,
    pub groups: Vec<u8>,
}

impl Block {
    fn text(&mut self, text: &str) -> u64 {
        // The first text is empty: the end of a dense node's tags has its number.
        let next = self.texts.len() as u64 + 1;
        *self.texts.entry(text.to_owned()).or_insert(next)
    }

    fn tags(&mut self, out: &mut Vec<u8>, tags: Tags<'_>) {
        let keys: Vec<u64> = tags.iter().map(|(key, _)| self.text(key)).collect();
        let values: Vec<u64> = tags.iter().map(|(_, value)| self.text(value)).collect();
        list(out, 2, keys);
        list(out, 3, values);
    }

    fn group(mut self, field: u64, element: &[u8]) -> Self {
        let mut group = Vec::new();
        bytes(&mut group, field, element);
        bytes(&mut self.groups, 2, &group);
        self
    }

    /// One node; its place in degrees.
    pub fn node(mut self, id: i64, x: f64, y: f64, tags: Tags<'_>) -> Self {
        let mut node = Vec::new();
        number(&mut node, 1, zigzag(id));
        self.tags(&mut node, tags);
        number(&mut node, 8, zigzag((y * 1e7).round() as i64));
        number(&mut node, 9, zigzag((x * 1e7).round() as i64));
        self.group(1, &node)
    }

    /// Nodes as files have them.
    pub fn dense(mut self, nodes: &[(i64, f64, f64, Tags<'_>)]) -> Self {
        let mut dense = Vec::new();
        let column = |of: fn(&(i64, f64, f64, Tags<'_>)) -> i64| {
            deltas(&nodes.iter().map(of).collect::<Vec<_>>())
        };
        list(&mut dense, 1, column(|node| node.0));
        list(&mut dense, 8, column(|node| (node.2 * 1e7).round() as i64));
        list(&mut dense, 9, column(|node| (node.1 * 1e7).round() as i64));
        let mut pairs = Vec::new();
        for (_, _, _, tags) in nodes {
            for (key, value) in *tags {
                pairs.extend([self.text(key), self.text(value)]);
            }
            pairs.push(0);
        }
        list(&mut dense, 10, pairs);
        self.group(2, &dense)
    }

    pub fn way(mut self, id: i64, nodes: &[i64], tags: Tags<'_>) -> Self {
        let mut way = Vec::new();
        number(&mut way, 1, id as u64);
        self.tags(&mut way, tags);
        list(&mut way, 8, deltas(nodes));
        self.group(3, &way)
    }

    /// Members: kind (0 node, 1 way, 2 relation), id, role.
    pub fn relation(mut self, id: i64, members: &[(u64, i64, &str)], tags: Tags<'_>) -> Self {
        let mut relation = Vec::new();
        number(&mut relation, 1, id as u64);
        self.tags(&mut relation, tags);
        let roles: Vec<u64> = members.iter().map(|(_, _, role)| self.text(role)).collect();
        list(&mut relation, 8, roles);
        list(&mut relation, 9, deltas(&members.iter().map(|member| member.1).collect::<Vec<_>>()));
        list(&mut relation, 10, members.iter().map(|member| member.0));
        self.group(4, &relation)
    }

    /// The block's bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut sorted = vec![""; self.texts.len() + 1];
        self.texts.iter().for_each(|(text, number)| sorted[*number as usize] = text);
        let mut table = Vec::new();
        sorted.iter().for_each(|text| bytes(&mut table, 1, text.as_bytes()));
        let mut out = Vec::new();
        bytes(&mut out, 1, &table);
        out.extend_from_slice(&self.groups);
        out
    }
}

/// A blob with its header.
pub fn framed(kind: &str, blob: &[u8]) -> Vec<u8> {
    let mut header = Vec::new();
    bytes(&mut header, 1, kind.as_bytes());
    number(&mut header, 3, blob.len() as u64);
    let mut out = (header.len() as u32).to_be_bytes().to_vec();
    out.extend(header);
    out.extend_from_slice(blob);
    out
}

/// A blob that is not packed.
pub fn raw(kind: &str, block: &[u8]) -> Vec<u8> {
    let mut blob = Vec::new();
    bytes(&mut blob, 1, block);
    framed(kind, &blob)
}

/// A packed blob that says that it has so many bytes.
pub fn zlib(kind: &str, block: &[u8], says: u64) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::best());
    encoder.write_all(block).unwrap();
    let mut blob = Vec::new();
    number(&mut blob, 2, says);
    bytes(&mut blob, 3, &encoder.finish().unwrap());
    framed(kind, &blob)
}

/// A file's beginning that needs these features.
pub fn header(features: &[&str]) -> Vec<u8> {
    let mut block = Vec::new();
    features.iter().for_each(|feature| bytes(&mut block, 4, feature.as_bytes()));
    raw("OSMHeader", &block)
}

/// A file of these blocks, packed one by one in turns.
pub fn file(blocks: &[Block]) -> Vec<u8> {
    let mut out = header(&["OsmSchema-V0.6", "DenseNodes"]);
    for (index, block) in blocks.iter().enumerate() {
        let bytes = block.bytes();
        out.extend(match index % 2 {
            0 => zlib("OSMData", &bytes, bytes.len() as u64),
            _ => raw("OSMData", &bytes),
        });
    }
    out
}

/// The little town of the fixture `town.osm.pbf`: points, lines, areas, an area
/// of two ways with a hole, and what an extract cuts off.
pub fn town() -> Vec<u8> {
    let corner = |id: i64, x: f64, y: f64| (id, 11.5 + x / 1000.0, 48.1 + y / 1000.0);
    let plain = |id, x, y| {
        let (id, x, y) = corner(id, x, y);
        (id, x, y, &[][..])
    };
    let nodes = Block::default().dense(&[
        (1, 11.5, 48.1, &[("amenity", "cafe"), ("name", "Zum Dichter & Söhne")]),
        (2, 11.501, 48.102, &[("amenity", "fountain")]),
        plain(10, 0.0, 0.0),
        plain(11, 4.0, 0.0),
        plain(12, 4.0, 4.0),
        plain(13, 0.0, 4.0),
        plain(20, 1.0, 1.0),
        plain(21, 2.0, 1.0),
        plain(22, 2.0, 2.0),
        plain(23, 1.0, 2.0),
    ]);
    let more = Block::default().node(3, 11.5031415, 48.1027182, &[("natural", "tree")]);
    let ways = Block::default()
        .way(30, &[10, 11, 12], &[])
        .way(31, &[10, 13, 12], &[])
        .way(32, &[20, 21, 22, 23, 20], &[("building", "yes"), ("name", "Rathaus")])
        .way(33, &[10, 20, 22, 12], &[("highway", "residential")])
        .way(34, &[20, 21, 22, 23, 20], &[("highway", "footway")])
        .way(35, &[10, 99], &[("highway", "primary")]);
    let park = [("type", "multipolygon"), ("leisure", "park")];
    let relations = Block::default()
        .relation(40, &[(1, 30, "outer"), (1, 31, ""), (1, 32, "inner"), (0, 1, "label")], &park)
        .relation(41, &[(1, 30, "outer"), (1, 98, "outer")], &park)
        .relation(42, &[(1, 30, "outer")], &park)
        .relation(43, &[(1, 33, "")], &[("type", "route")]);
    file(&[relations, ways, nodes, more])
}
