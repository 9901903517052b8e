//! Finds a command by its name: a small hash table, built by the compiler.

use super::all::TABLE;
use crate::spec::CommandSpec;

/// Places; several times the commands, so that probing is short.
const PLACES: usize = 1024;
/// A place without a command.
const FREE: u8 = u8::MAX;

/// Factors that are tried: that many mean that names are too much alike.
const TRIES: u32 = 10_000;
/// Multiplies the letters of a name: searched for, so that each command of the
/// table is found in its place or in the next.
const FACTOR: u32 = factor();

/// Indexes into the table, by hash of the name.
static INDEX: [u8; PLACES] = match build(FACTOR) {
    Some(index) => index,
    None => panic!("the factor was searched for"),
};

/// Length, the first four letters and the last distinguish our commands well; letters only need
/// their low five bits, which ignore case.
#[inline(always)]
const fn place(name: &[u8], factor: u32) -> usize {
    let second = if name.len() > 1 { name[1] & 31 } else { 0 };
    let third = if name.len() > 2 { name[2] & 31 } else { 0 };
    let fourth = if name.len() > 3 { name[3] & 31 } else { 0 };
    let (first, last) = (name[0] & 31, name[name.len() - 1] & 31);
    let letters = first as u32 | (second as u32) << 5 | (third as u32) << 10 | (last as u32) << 15;
    let letters = letters | (fourth as u32) << 20;
    let mixed = (letters ^ (name.len() as u32) << 25).wrapping_mul(factor);
    (mixed >> (u32::BITS - PLACES.ilog2())) as usize
}

/// The index that this factor makes; none if some command would be farther than
/// the place behind its own.
const fn build(factor: u32) -> Option<[u8; PLACES]> {
    let mut index = [FREE; PLACES];
    let mut at = 0;
    while at < TABLE.len() {
        let mut place = place(TABLE[at].name.as_bytes(), factor);
        if index[place] != FREE {
            place = (place + 1) % PLACES;
        }
        if index[place] != FREE {
            return None;
        }
        index[place] = at as u8;
        at += 1;
    }
    Some(index)
}

#[allow(long_running_const_eval, reason = "some tries, once for each build")]
const fn factor() -> u32 {
    let mut factor = 0x9e37_79b1u32;
    let mut tries = 0;
    while build(factor).is_none() {
        assert!(tries < TRIES, "no factor was found");
        tries += 1;
        factor = factor.wrapping_mul(0x2c92_77b5) | 1;
    }
    factor
}

/// The command with this name, in whatever case.
#[inline]
pub fn lookup(name: &[u8]) -> Option<&'static CommandSpec> {
    if name.is_empty() {
        return None;
    }
    let mut place = place(name, FACTOR);
    // Ends at a free place: at most half are taken.
    while let Some(spec) = TABLE.get(usize::from(INDEX[place])) {
        if name.eq_ignore_ascii_case(spec.name.as_bytes()) {
            return Some(spec);
        }
        place = (place + 1) % PLACES;
    }
    None
}

const _: () = assert!(TABLE.len() <= PLACES / 2 && TABLE.len() < FREE as usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_found_in_any_case() {
        for spec in TABLE.iter() {
            for name in [spec.name.to_owned(), spec.name.to_ascii_uppercase()] {
                assert_eq!(lookup(name.as_bytes()).map(|found| found.name), Some(spec.name));
            }
            assert!(lookup(format!("{}-", spec.name).as_bytes()).is_none());
        }
        assert_eq!(lookup(b"gEt").map(|spec| spec.name), Some("get"));
        for name in [&b""[..], b"g", b"ge", b"\xff\xff\xff", &[b'x'; 1000]] {
            assert!(lookup(name).is_none());
        }
    }

    #[test]
    fn probing_is_short() {
        let mut longest = 0;
        for (at, spec) in TABLE.iter().enumerate() {
            let place = place(spec.name.as_bytes(), FACTOR);
            let probes = (0..PLACES).find(|step| INDEX[(place + step) % PLACES] == at as u8);
            longest = longest.max(probes.unwrap());
        }
        assert!(longest <= 1, "{longest}");
    }
}
