//! Protocol buffers, as far as OSM's files use them: fields of numbers and
//! bytes, lists of packed numbers. Reading copies nothing.

use crate::Broken;

/// What a field holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Value<'a> {
    /// An integer of any kind.
    Number(u64),
    /// Bytes: a text, a message, a list.
    Bytes(&'a [u8]),
    /// Four or eight bytes of a kind that OSM's files do not use.
    Fixed,
}

impl<'a> Value<'a> {
    /// The number that it has to be.
    pub fn number(self) -> Result<u64, Broken> {
        match self {
            Self::Number(number) => Ok(number),
            _ => Err(Broken::FieldType),
        }
    }

    /// The bytes that it has to be.
    pub fn bytes(self) -> Result<&'a [u8], Broken> {
        match self {
            Self::Bytes(bytes) => Ok(bytes),
            _ => Err(Broken::FieldType),
        }
    }
}

/// The fields of a message, in their order.
pub struct Fields<'a>(pub &'a [u8]);

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, Value<'a>), Broken>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

impl<'a> Fields<'a> {
    fn field(&mut self) -> Result<(u64, Value<'a>), Broken> {
        let key = varint(&mut self.0)?;
        let value = match key & 7 {
            0 => Value::Number(varint(&mut self.0)?),
            1 => self.take(8).map(|_| Value::Fixed)?,
            2 => {
                let length = varint(&mut self.0)?;
                Value::Bytes(self.take(length)?)
            }
            5 => self.take(4).map(|_| Value::Fixed)?,
            _ => return Err(Broken::FieldType),
        };
        if key >> 3 == 0 { Err(Broken::Number) } else { Ok((key >> 3, value)) }
    }

    fn take(&mut self, length: u64) -> Result<&'a [u8], Broken> {
        let length = usize::try_from(length).map_err(|_| Broken::Short)?;
        let (taken, rest) = self.0.split_at_checked(length).ok_or(Broken::Short)?;
        self.0 = rest;
        Ok(taken)
    }
}

/// A number of one to ten bytes, seven bits in each, the lowest first.
pub fn varint(bytes: &mut &[u8]) -> Result<u64, Broken> {
    let mut number = 0u64;
    for (index, byte) in bytes.iter().enumerate().take(10) {
        number |= u64::from(byte & 0x7f) << (7 * index);
        if byte & 0x80 == 0 {
            *bytes = &bytes[index + 1..];
            return Ok(number);
        }
    }
    Err(if bytes.len() < 10 { Broken::Short } else { Broken::Number })
}

/// Packed numbers.
#[derive(Clone, Copy, Default)]
pub struct Packed<'a>(Option<&'a [u8]>);

impl<'a> Packed<'a> {
    /// Takes the list from its field; there is one at most.
    pub fn set(&mut self, value: Value<'a>) -> Result<(), Broken> {
        if self.0.is_some() {
            return Err(Broken::SplitList);
        }
        self.0 = Some(value.bytes()?);
        Ok(())
    }

    /// The next number.
    pub fn next(&mut self) -> Result<Option<u64>, Broken> {
        match &mut self.0 {
            None | Some([]) => Ok(None),
            Some(bytes) => varint(bytes).map(Some),
        }
    }

    /// The next number, which has to be there.
    pub fn expect(&mut self) -> Result<u64, Broken> {
        self.next()?.ok_or(Broken::Lists)
    }

    /// Nothing may be left.
    pub fn end(&self) -> Result<(), Broken> {
        match self.0 {
            None | Some([]) => Ok(()),
            Some(_) => Err(Broken::Lists),
        }
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.end().is_ok()
    }
}

/// Packed differences, each to the number before.
#[derive(Clone, Copy, Default)]
pub struct Deltas<'a> {
    /// The differences, as signed numbers.
    pub list: Packed<'a>,
    last: i64,
}

impl Deltas<'_> {
    /// The next number.
    pub fn next(&mut self) -> Result<Option<i64>, Broken> {
        let Some(delta) = self.list.next()? else { return Ok(None) };
        self.last = self.last.checked_add(signed(delta)).ok_or(Broken::Overflow)?;
        Ok(Some(self.last))
    }

    /// The next number, which has to be there.
    pub fn expect(&mut self) -> Result<i64, Broken> {
        self.next()?.ok_or(Broken::Lists)
    }
}

/// A signed number whose lowest bit is its sign ("zigzag").
pub fn signed(number: u64) -> i64 {
    (number >> 1) as i64 ^ -((number & 1) as i64)
}

/// The same the other way round.
pub fn zigzag(number: i64) -> u64 {
    (number << 1 ^ number >> 63) as u64
}

/// Appends a number of one to ten bytes.
pub fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Appends a field of a number.
pub fn put_number(out: &mut Vec<u8>, field: u64, number: u64) {
    put_varint(out, field << 3);
    put_varint(out, number);
}

/// Appends a field of bytes.
pub fn put_bytes(out: &mut Vec<u8>, field: u64, bytes: &[u8]) {
    put_varint(out, field << 3 | 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends a field of packed numbers.
pub fn put_list(out: &mut Vec<u8>, field: u64, numbers: impl IntoIterator<Item = u64>) {
    let mut packed = Vec::new();
    numbers.into_iter().for_each(|number| put_varint(&mut packed, number));
    put_bytes(out, field, &packed);
}

/// Numbers as differences, each to the one before. The sum of a difference and
/// a number in 64 bits is again that in 64 bits, so none runs over.
pub fn differences(numbers: &[i64]) -> impl Iterator<Item = u64> {
    let mut last = 0i64;
    numbers
        .iter()
        .map(move |&number| zigzag(number.wrapping_sub(std::mem::replace(&mut last, number))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_end_where_they_say() {
        for (bytes, wanted) in [
            (&[0x00][..], Ok(0)),
            (&[0x96, 0x01], Ok(150)),
            (&[0xff; 10], Err(Broken::Number)),
            (&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01], Ok(u64::MAX)),
            (&[0x80], Err(Broken::Short)),
            (&[], Err(Broken::Short)),
        ] {
            assert_eq!(varint(&mut &*bytes), wanted, "{bytes:?}");
        }
        assert_eq!([0, 1, 2, 3, u64::MAX].map(signed), [0, -1, 1, -2, i64::MIN]);
    }

    #[test]
    fn what_is_put_is_read() {
        let numbers = [0, 1, -1, 63, 64, 1 << 40, -(1 << 40), 5];
        let mut out = Vec::new();
        put_number(&mut out, 3, u64::MAX);
        put_bytes(&mut out, 500, b"text");
        put_list(&mut out, 8, differences(&numbers));
        let fields: Vec<_> = Fields(&out).map(Result::unwrap).collect();
        assert_eq!(fields[..2], [(3, Value::Number(u64::MAX)), (500, Value::Bytes(b"text"))]);
        let mut list = Deltas::default();
        list.list.set(fields[2].1).unwrap();
        let read: Vec<i64> = std::iter::from_fn(|| list.next().unwrap()).collect();
        assert_eq!(read, numbers);
        assert_eq!([0, -1, 1, -2, i64::MIN].map(zigzag), [0, 1, 2, 3, u64::MAX]);
    }

    #[test]
    fn fields_that_lie_are_refused_once() {
        for bad in [&[0x0a, 5, 1][..], &[0x0b], &[0x0d, 1, 2], &[0x02, 0], &[0x80]] {
            let mut fields = Fields(bad);
            assert!(fields.next().unwrap().is_err(), "{bad:?}");
            assert!(fields.next().is_none());
        }
        let good: Vec<_> = Fields(&[0x08, 7, 0x12, 2, 8, 9]).map(Result::unwrap).collect();
        assert_eq!(good, [(1, Value::Number(7)), (2, Value::Bytes(&[8, 9]))]);
    }
}
