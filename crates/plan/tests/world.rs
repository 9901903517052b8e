//! What plans run over: keys that hold hashes, lists and strings, and trees of places.

use remora_plan::{Bytes, Value};
use remora_testing::Random;
use std::collections::BTreeMap;

/// What a key holds.
#[derive(Clone, Debug)]
pub enum Thing {
    Hash(BTreeMap<Bytes, Value>),
    List(Vec<Value>),
    Text(Bytes),
    Ordered(BTreeMap<Bytes, Value>),
}

/// An object of a tree.
#[derive(Clone, Debug)]
pub struct Spot {
    pub id: Bytes,
    pub x: f64,
    pub y: f64,
    pub fields: BTreeMap<Bytes, Bytes>,
}

/// All of it.
#[derive(Clone, Debug, Default)]
pub struct World {
    pub things: BTreeMap<Bytes, Thing>,
    pub trees: BTreeMap<Bytes, Vec<Spot>>,
}

pub fn bytes(text: &str) -> Bytes {
    text.as_bytes().into()
}

pub fn plain(text: &str) -> Value {
    Value::Plain(bytes(text))
}

pub fn link(text: &str) -> Value {
    Value::Link { key: bytes(text), hint: None }
}

/// Keys of hashes, lists and strings; some of them hold nothing, or something else.
pub const KEYS: [&str; 16] = [
    "h0", "h1", "h2", "h3", "h4", "h5", "h6", "h7", "l0", "l1", "l2", "l3", "l4", "t0", "o0", "o1",
];
/// Fields that lead to hashes, to lists, and that hold numbers.
pub const FIELDS: [&str; 6] = ["one", "other", "list", "more", "n", "name"];

impl World {
    pub fn with(mut self, key: &str, thing: Thing) -> Self {
        self.things.insert(bytes(key), thing);
        self
    }

    pub fn hash(self, key: &str, fields: &[(&str, Value)]) -> Self {
        let fields = fields.iter().map(|(name, value)| (bytes(name), value.clone()));
        self.with(key, Thing::Hash(fields.collect()))
    }

    pub fn list(self, key: &str, elements: impl IntoIterator<Item = Value>) -> Self {
        self.with(key, Thing::List(elements.into_iter().collect()))
    }

    /// A random one.
    pub fn random(random: &mut Random) -> Self {
        let mut world = Self::default();
        // Once in a while names are so long that the run must not read ahead.
        let long = random.one_in(8).then(|| Bytes::from(vec![b'x'; 300 << 10]));
        for key in KEYS {
            let kind =
                if random.one_in(12) { random.pick(&["h", "l", "t", "o", "-"]) } else { &key[..1] };
            let thing = match kind {
                "h" => Thing::Hash(hash(random, long.as_ref())),
                "l" => Thing::List(list(random)),
                "o" => Thing::Ordered(ordered(random)),
                "t" => Thing::Text(random.value(6).into()),
                _ => continue,
            };
            world.things.insert(bytes(key), thing);
        }
        let spots = (0..random.below(40u64)).map(|number| spot(number, random)).collect();
        world.trees.insert(bytes("tree"), spots);
        world
    }
}

fn target(random: &mut Random, kinds: &str) -> Value {
    let kinds: Vec<&str> = kinds.split(' ').collect();
    let key = loop {
        let key = random.pick(&KEYS);
        if random.one_in(10) || kinds.contains(&&key[..1]) {
            break bytes(key);
        }
    };
    match random.below(6u8) {
        0 => Value::Plain(key),
        1 | 2 => Value::Link { key, hint: None },
        _ => Value::Link { key, hint: Some(random.bits()) },
    }
}

fn hash(random: &mut Random, long: Option<&Bytes>) -> BTreeMap<Bytes, Value> {
    let mut fields = BTreeMap::new();
    for name in FIELDS {
        if random.one_in(6) {
            continue;
        }
        let value = match name {
            "one" | "other" => target(random, "h t"),
            "list" | "more" => target(random, "l"),
            "n" => Value::Plain(random.below(10u8).to_string().into_bytes().into()),
            _ => Value::Plain(long.cloned().unwrap_or_else(|| random.value(5).into())),
        };
        fields.insert(bytes(name), value);
    }
    fields
}

fn list(random: &mut Random) -> Vec<Value> {
    let length = match random.below(24u8) {
        0 => 100,
        1 => random.within(99..350usize),
        _ => random.below(6usize),
    };
    (0..length).map(|_| target(random, "h")).collect()
}

fn ordered(random: &mut Random) -> BTreeMap<Bytes, Value> {
    let most = random.pick(&[0u32, 5, 30, 250]);
    (0..most).map(|_| (entry_key(random), target(random, "h l t"))).collect()
}

/// A key of an ordered tree, or one between two.
pub fn entry_key(random: &mut Random) -> Bytes {
    bytes(&format!("{:02x}", random.below(256u32)))
}

fn spot(number: u64, random: &mut Random) -> Spot {
    let [x, y] = [(); 2].map(|()| f64::from(random.below(8u32)));
    let mut fields = BTreeMap::new();
    if !random.one_in(4) {
        let status = random.pick(&["free", "busy"]);
        fields.insert(bytes("status"), bytes(status));
    }
    if !random.one_in(4) {
        fields.insert(bytes("n"), random.below(10u8).to_string().into_bytes().into());
    }
    Spot { id: number.to_string().into_bytes().into(), x, y, fields }
}
