//! From a name to its command: a small hash table, built by the compiler.

use super::CommandSpec;
use super::entries::TABLE;

/// Places; several times the commands, so that probing is short.
const PLACES: usize = 256;
/// A place without a command.
const FREE: u8 = u8::MAX;

/// Indexes into the table, by hash of the name.
static INDEX: [u8; PLACES] = build();

/// Length, first, third and last letter tell our commands apart well (the
/// factors were searched for); letters only need their low five bits, which
/// ignore case.
const fn place(name: &[u8]) -> usize {
    let third = if name.len() > 2 { name[2] } else { 0 };
    let (first, last) = (name[0] & 31, name[name.len() - 1] & 31);
    let mixed = first as usize + (third & 31) as usize * 15 + last as usize * 11 + name.len() * 47;
    mixed % PLACES
}

const fn build() -> [u8; PLACES] {
    let mut index = [FREE; PLACES];
    let mut at = 0;
    while at < TABLE.len() {
        let mut place = place(TABLE[at].name.as_bytes());
        while index[place] != FREE {
            place = (place + 1) % PLACES;
        }
        index[place] = at as u8;
        at += 1;
    }
    index
}

/// The command with this name, in whatever case.
#[inline]
pub fn lookup(name: &[u8]) -> Option<&'static CommandSpec> {
    if name.is_empty() {
        return None;
    }
    let mut place = place(name);
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
        for spec in &TABLE {
            for name in [spec.name.to_owned(), spec.name.to_ascii_uppercase()] {
                assert_eq!(lookup(name.as_bytes()).map(|found| found.name), Some(spec.name));
            }
            assert!(lookup(format!("{}x", spec.name).as_bytes()).is_none());
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
            let place = place(spec.name.as_bytes());
            let probes = (0..PLACES).find(|step| INDEX[(place + step) % PLACES] == at as u8);
            longest = longest.max(probes.unwrap());
        }
        assert!(longest <= 1, "{longest}");
    }
}
