//! Elements into blocks, blocks into a file.

use crate::wire::{differences, put_bytes, put_list, put_number, put_varint, zigzag};
use flate2::Compression;
use flate2::write::ZlibEncoder;
use std::collections::HashMap;
use std::io::{self, Write};

/// Elements of a block at most, as other writers have it.
const BLOCK_ELEMENTS: usize = 8000;
/// A block that has so many bytes takes no more elements: with one more it
/// stays below the 16 MiB that the format recommends.
const BLOCK_BYTES: usize = 4 << 20;

type Tags<'a> = [(&'a str, &'a str)];

/// The blob that a file begins with.
pub fn write_header(out: &mut impl Write) -> io::Result<()> {
    let mut header = Vec::new();
    put_bytes(&mut header, 4, b"OsmSchema-V0.6");
    put_bytes(&mut header, 4, b"DenseNodes");
    put_bytes(&mut header, 5, b"Sort.Type_then_ID");
    put_bytes(&mut header, 16, b"remora");
    write_blob(out, "OSMHeader", &header)
}

fn write_blob(out: &mut impl Write, kind: &str, block: &[u8]) -> io::Result<()> {
    let mut packer = ZlibEncoder::new(Vec::new(), Compression::default());
    packer.write_all(block)?;
    let packed = packer.finish()?;
    let (mut head, mut blob) = (Vec::new(), Vec::new());
    put_number(&mut blob, 2, block.len() as u64);
    put_bytes(&mut blob, 3, &packed);
    put_bytes(&mut head, 1, kind.as_bytes());
    put_number(&mut head, 3, blob.len() as u64);
    out.write_all(&(head.len() as u32).to_be_bytes())?;
    out.write_all(&head)?;
    out.write_all(&blob)
}

/// Elements of one kind that follow each other in the file.
pub struct Section<W> {
    out: W,
    block: Block,
}

impl<W: Write> Section<W> {
    /// An empty one.
    pub fn new(out: W) -> Self {
        Self { out, block: Block::default() }
    }

    /// Appends a node; its place is longitude and latitude in units of 1e-7
    /// degrees.
    pub fn node(&mut self, id: i64, place: [i32; 2], tags: &Tags<'_>) -> io::Result<()> {
        self.block.node(id, place, tags);
        self.flush_if_full()
    }

    /// Appends a way over these nodes.
    pub fn way(&mut self, id: i64, nodes: &[i64], tags: &Tags<'_>) -> io::Result<()> {
        self.block.way(id, nodes, tags);
        self.flush_if_full()
    }

    /// Appends a relation of these ways, each with its role.
    pub fn relation(&mut self, id: i64, ways: &[(i64, &str)], tags: &Tags<'_>) -> io::Result<()> {
        self.block.relation(id, ways, tags);
        self.flush_if_full()
    }

    fn flush_if_full(&mut self) -> io::Result<()> {
        if self.block.is_full() { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> io::Result<()> {
        let block = std::mem::take(&mut self.block);
        write_blob(&mut self.out, "OSMData", &block.bytes())
    }

    /// Writes what is left; gives where it was written to.
    pub fn end(mut self) -> io::Result<W> {
        if self.block.elements > 0 {
            self.flush()?;
        }
        Ok(self.out)
    }
}

/// A block of elements of one kind, in the bytes that they will have.
#[derive(Default)]
struct Block {
    elements: usize,
    numbers: HashMap<String, u64>,
    /// The texts as fields of their table.
    texts: Vec<u8>,
    dense: Dense,
    /// Ways and relations, as fields of their group.
    group: Vec<u8>,
}

/// Nodes, each of whose parts is a list.
#[derive(Default)]
struct Dense {
    last: [i64; 3],
    /// Ids, latitudes, longitudes.
    lists: [Vec<u8>; 3],
    tags: Vec<u8>,
}

impl Block {
    fn is_full(&self) -> bool {
        let lists = self.dense.lists.iter().map(Vec::len).sum::<usize>();
        let bytes = self.texts.len() + lists + self.dense.tags.len() + self.group.len();
        self.elements >= BLOCK_ELEMENTS || bytes >= BLOCK_BYTES
    }

    /// A text's number. Number 0 is no tag's: it ends a node's tags.
    fn text(&mut self, text: &str) -> u64 {
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        let number = self.numbers.len() as u64 + 1;
        self.numbers.insert(text.to_owned(), number);
        put_bytes(&mut self.texts, 1, text.as_bytes());
        number
    }

    fn node(&mut self, id: i64, [longitude, latitude]: [i32; 2], tags: &Tags<'_>) {
        self.elements += 1;
        let now = [id, latitude.into(), longitude.into()];
        let last = std::mem::replace(&mut self.dense.last, now);
        for ((list, now), last) in self.dense.lists.iter_mut().zip(now).zip(last) {
            put_varint(list, zigzag(now - last));
        }
        for (key, value) in tags {
            for text in [key, value] {
                let number = self.text(text);
                put_varint(&mut self.dense.tags, number);
            }
        }
        self.dense.tags.push(0);
    }

    /// An element's id and tags.
    fn begin(&mut self, id: i64, tags: &Tags<'_>) -> Vec<u8> {
        self.elements += 1;
        let mut element = Vec::new();
        put_number(&mut element, 1, id as u64);
        let keys: Vec<u64> = tags.iter().map(|(key, _)| self.text(key)).collect();
        let values: Vec<u64> = tags.iter().map(|(_, value)| self.text(value)).collect();
        put_list(&mut element, 2, keys);
        put_list(&mut element, 3, values);
        element
    }

    fn way(&mut self, id: i64, nodes: &[i64], tags: &Tags<'_>) {
        let mut way = self.begin(id, tags);
        put_list(&mut way, 8, differences(nodes));
        put_bytes(&mut self.group, 3, &way);
    }

    fn relation(&mut self, id: i64, ways: &[(i64, &str)], tags: &Tags<'_>) {
        /// What says of a member that it is a way.
        const WAY: u64 = 1;
        let mut relation = self.begin(id, tags);
        let roles: Vec<u64> = ways.iter().map(|(_, role)| self.text(role)).collect();
        let ids: Vec<i64> = ways.iter().map(|(way, _)| *way).collect();
        put_list(&mut relation, 8, roles);
        put_list(&mut relation, 9, differences(&ids));
        put_list(&mut relation, 10, ways.iter().map(|_| WAY));
        put_bytes(&mut self.group, 4, &relation);
    }

    /// The whole block.
    fn bytes(self) -> Vec<u8> {
        let mut table = Vec::new();
        put_bytes(&mut table, 1, b"");
        table.extend(self.texts);
        let mut group = self.group;
        let [ids, latitudes, longitudes] = &self.dense.lists;
        if !ids.is_empty() {
            let mut dense = Vec::new();
            put_bytes(&mut dense, 1, ids);
            put_bytes(&mut dense, 8, latitudes);
            put_bytes(&mut dense, 9, longitudes);
            put_bytes(&mut dense, 10, &self.dense.tags);
            put_bytes(&mut group, 2, &dense);
        }
        let mut block = Vec::new();
        put_bytes(&mut block, 1, &table);
        put_bytes(&mut block, 2, &group);
        block
    }
}
