use std::ops::Range;

/// Random numbers from a seed (SplitMix64): the same seed gives the same numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

/// An integer that [`Random`] gives.
pub trait Integer: Copy {
    /// As 64 bits.
    fn to_bits(self) -> u64;
    /// From 64 bits that came from a smaller number of this type.
    fn from_bits(bits: u64) -> Self;
}

macro_rules! integers {
    ($($type:ty)*) => {$(
        impl Integer for $type {
            fn to_bits(self) -> u64 {
                self as u64
            }

            fn from_bits(bits: u64) -> Self {
                bits as Self
            }
        }
    )*};
}
integers!(u8 u16 u32 u64 usize i32 i64);

impl Random {
    /// A generator for this seed; every seed will do.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// A number from 0 to below `bound`, which is above 0.
    pub fn below<N: Integer>(&mut self, bound: N) -> N {
        N::from_bits(self.bits() % bound.to_bits())
    }

    /// A number of this range, which is not empty and does not begin below 0.
    pub fn within<N: Integer>(&mut self, range: Range<N>) -> N {
        let start = range.start.to_bits();
        N::from_bits(start + self.below(range.end.to_bits() - start))
    }

    /// True once in `many` times.
    pub fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }

    /// From 0 to below 1.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// From `low` to below `high`.
    pub fn between(&mut self, low: f64, high: f64) -> f64 {
        low + self.unit() * (high - low)
    }

    /// One of a list, which is not empty.
    pub fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }

    /// So many random bytes.
    pub fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(count + 8);
        while bytes.len() < count {
            bytes.extend_from_slice(&self.bits().to_le_bytes());
        }
        bytes.truncate(count);
        bytes
    }

    /// From no to `most` random bytes.
    pub fn bytes_up_to(&mut self, most: usize) -> Vec<u8> {
        let count = self.below(most + 1);
        self.bytes(count)
    }

    /// Mostly below `usual`; once in thirteen times a number of one of the `rare` ranges,
    /// such as those around a limit.
    pub fn mostly_below(&mut self, usual: u64, rare: &[Range<u64>]) -> u64 {
        if self.one_in(13) {
            let at = self.below(rare.len());
            return self.within(rare[at].clone());
        }
        self.below(usual)
    }

    /// A key: the prefix, and one of `many` numbers.
    pub fn key(&mut self, prefix: &str, many: u64) -> Vec<u8> {
        format!("{prefix}{}", self.below(many)).into_bytes()
    }

    /// A value: once in four times a decimal number below 1,000, else up to `most` bytes.
    pub fn value(&mut self, most: usize) -> Vec<u8> {
        if self.one_in(4) {
            return self.below(1_000).to_string().into_bytes();
        }
        self.bytes_up_to(most)
    }

    /// A rectangle with whole coordinates, as its least and greatest x and y: its lower corner
    /// is below `size` in both, and a side is shorter than `side`.
    pub fn rectangle(&mut self, size: u32, side: u32) -> [f64; 4] {
        let [x, y] = [(); 2].map(|()| f64::from(self.below(size)));
        let [width, height] = [(); 2].map(|()| f64::from(self.below(side)));
        [x, x + width, y, y + height]
    }

    /// A position on the globe as longitude and latitude: at the antimeridian, near the
    /// south end of the map of GEO keys, within one degree of a town, or anywhere.
    pub fn position(&mut self) -> (f64, f64) {
        let (x, y) = (self.unit(), self.unit());
        match self.below(4) {
            0 => (180.0 - x, 84.5 * (1.0 - y)),
            1 => (x - 180.0, -85.0 + y),
            2 => (13.0 + x, 52.0 + y),
            _ => ((2.0 * x - 1.0) * 180.0, y * 80.0),
        }
    }

    /// A geometry of any kind as WKT, with whole coordinates: it lies in a square of side
    /// `side` whose lower corner is below `size` in both. Polygons may cross themselves.
    pub fn wkt(&mut self, size: u32, side: u32) -> String {
        let [x, y] = [(); 2].map(|()| self.below(size));
        let [a, b, c, d] =
            [(); 4].map(|()| format!("{} {}", x + self.below(side), y + self.below(side)));
        match self.below(5) {
            0 => format!("POINT ({a})"),
            1 => format!("LINESTRING ({a}, {b}, {c})"),
            2 => format!("MULTIPOINT ({a}, {b})"),
            3 => format!("GEOMETRYCOLLECTION (POINT ({d}), POLYGON (({a}, {b}, {c}, {a})))"),
            _ => format!("POLYGON (({a}, {b}, {c}, {d}, {a}))"),
        }
    }
}
