//! Lists of links as items: chunks of at most 100, each with a link to the next (KELI 6.2; K5).

use super::fetch::Fetcher;
use super::item::{Item, NewItem};
use super::load::Loader;
use remora_client_core::Link;
use std::sync::Arc;

/// Links of a chunk.
pub const CHUNK_LINKS: usize = 100;
/// The field of a chunk that links to the next.
pub const NEXT: &str = "next";

/// The key of a chunk of a list.
pub fn chunk_key(list: &str, chunk: usize) -> String {
    format!("{list}:{chunk}")
}

/// Names of fields, each in memory once, however many links stand in fields of that name.
#[derive(Debug)]
pub struct Names {
    numbers: Vec<Arc<[u8]>>,
}

impl Default for Names {
    fn default() -> Self {
        let names = (0..CHUNK_LINKS).map(|number| number.to_string().into_bytes().into());
        Self { numbers: names.collect() }
    }
}

impl Names {
    /// A name; one that no chunk gives to its links is not remembered.
    #[inline]
    pub fn of(&self, name: &[u8]) -> Arc<[u8]> {
        let digit = |byte: u8| byte.wrapping_sub(b'0') as usize;
        let number = match *name {
            [one] => digit(one),
            [ten, one] => digit(ten) * 10 + digit(one),
            _ => CHUNK_LINKS,
        };
        let known = self.numbers.get(number).filter(|known| known[..] == *name);
        known.map_or_else(|| name.into(), Arc::clone)
    }
}

/// Stores a list, the last chunk first: so the owner finds what each one's `next` links to. `target`
/// writes the key of an element. The first chunk's key is [`chunk_key`] of 0; an empty list has none.
pub fn store<I: ExactSizeIterator + Clone>(
    list: &str,
    elements: I,
    target: impl Fn(I::Item) -> String,
    loader: &mut Loader,
) -> anyhow::Result<()> {
    let mut item = NewItem::default();
    let chunks = elements.len().div_ceil(CHUNK_LINKS);
    for chunk in (0..chunks).rev() {
        item.begin(&chunk_key(list, chunk));
        let some = elements.clone().skip(chunk * CHUNK_LINKS).take(CHUNK_LINKS);
        for (number, element) in some.enumerate() {
            item.link(&number.to_string(), &target(element));
        }
        if chunk + 1 < chunks {
            item.link(NEXT, &chunk_key(list, chunk + 1));
        }
        loader.put(&item)?;
    }
    Ok(())
}

/// The first links of a list, at most so many, in order, from the chunk that `first` leads to: a key that
/// is known, or a link.
pub fn fetch(first: Link, most: usize, fetcher: &mut Fetcher) -> anyhow::Result<Vec<Link>> {
    let (mut links, mut chunk) = (Vec::new(), Some(first));
    // Bounded: a chunk without links is none that anyone stored.
    while let Some(at) = chunk.take().filter(|_| links.len() < most) {
        let (mut next, mut some) = (None, Vec::new());
        let holder = Arc::clone(&at.key);
        let mut see = |_: usize, item: Item<'_>| {
            for field in item.fields().filter(|field| field.is_link) {
                match field.name == NEXT.as_bytes() {
                    true => next = Some(field.link(&holder)),
                    false => some.push((number(field.name)?, field.link(&holder))),
                }
            }
            Ok(())
        };
        match at.link {
            None => fetcher.look_up(std::slice::from_ref(&at), &mut see)?,
            Some(_) => fetcher.follow(std::slice::from_ref(&at), &mut see)?,
        }
        // The fields of a hash come in no order.
        some.sort_unstable_by_key(|(number, _)| *number);
        chunk = next.filter(|_| !some.is_empty());
        links.extend(some.into_iter().map(|(_, link)| link).take(most - links.len()));
    }
    Ok(links)
}

/// The number that a text is.
fn number(text: &[u8]) -> anyhow::Result<u32> {
    Ok(std::str::from_utf8(text)?.parse()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_elements_are_in_memory_once_and_others_are_what_they_are() {
        let names = Names::default();
        for number in 0..CHUNK_LINKS {
            let text = number.to_string();
            let [one, two] = [0; 2].map(|_| names.of(text.as_bytes()));
            assert!(Arc::ptr_eq(&one, &two) && *one == *text.as_bytes());
        }
        for other in ["", "next", "00", "07", "100", "a", "9a", "a9"] {
            assert_eq!(*names.of(other.as_bytes()), *other.as_bytes());
        }
    }
}
