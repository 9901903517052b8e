//! Pages of products with their reviews (KELI 6.2, figure 6; K20).
//!
//! ```text
//! product:9   title | reviews ---> reviews:9:0   0 | 1 | .. ---> review:31   user | product | rating | lines
//!                                                                             |
//!                                                                             +--> user:7   name
//! ```
//! The reviews' file says who reviewed what, and no more; ratings and texts are made up.

use super::chunks::{self, chunk_key};
use super::fetch::Fetcher;
use super::item::{NewItem, known};
use super::load::Loader;
use super::operations::Application;
use crate::trace::read_bytes;
use anyhow::Context;
use rand::RngExt;
use rand::rngs::ChaCha8Rng;
use remora_client_core::Link;
use remora_command_line::usage;
use remora_layout::hash::mix;
use std::collections::BTreeMap;
use std::path::Path;

/// Reviews of a page.
const PAGE_REVIEWS: usize = 20;
/// Lines of a review's text, and bytes of each.
const LINES: usize = 4;
const LINE_BYTES: usize = 60;

/// Who reviewed what.
#[derive(Debug)]
pub struct Reviews {
    /// User and product of each review.
    reviews: Vec<(u32, u32)>,
    /// The products with their reviews.
    products: Vec<(u32, Vec<u32>)>,
    users: Vec<u32>,
}

/// A page: the product's title, and of each review its author's name, its rating and the bytes of its
/// text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page {
    title: String,
    reviews: Vec<(String, u8, usize)>,
}

impl Reviews {
    /// Reads lines of a user and the products that it reviewed, plain or `.xz`.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let bytes = read_bytes(path, "--pages")?;
        Self::parse(&bytes).map_err(|why| usage(format!("--pages: {}: {why}", path.display())))
    }

    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(bytes).map_err(|_| "is no text".to_owned())?;
        let (mut reviews, mut users) = (Vec::new(), Vec::new());
        let mut products: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for (number, line) in text.lines().enumerate() {
            let words: Result<Vec<u32>, _> = line.split_whitespace().map(str::parse).collect();
            let words = words.map_err(|_| format!("line {} has no numbers", number + 1))?;
            let Some((user, reviewed)) = words.split_first() else { continue };
            users.push(*user);
            for product in reviewed {
                products.entry(*product).or_default().push(reviews.len() as u32);
                reviews.push((*user, *product));
            }
        }
        if reviews.is_empty() {
            return Err("holds no reviews".into());
        }
        users.sort_unstable();
        users.dedup();
        Ok(Self { reviews, products: products.into_iter().collect(), users })
    }
}

fn title(product: u32) -> String {
    format!("product {product}")
}

fn name(user: u32) -> String {
    format!("user {user}")
}

fn text(bytes: &[u8]) -> anyhow::Result<String> {
    Ok(String::from_utf8(bytes.to_vec())?)
}

fn rating(review: u32) -> u8 {
    1 + (mix(review.into(), 1) % 5) as u8
}

/// Bytes of a line of a review's text; most have all of them.
fn line_bytes(review: u32, line: usize) -> usize {
    LINE_BYTES - (mix(review.into(), 2 + line as u64) % 20) as usize
}

impl Application for Reviews {
    /// A product's place among the products.
    type Question = usize;
    type Answer = Page;

    fn size(&self) -> (usize, usize) {
        let chunks = self.products.len() + self.reviews.len() / chunks::CHUNK_LINKS;
        let items = self.reviews.len() + self.users.len() + self.products.len() + chunks;
        (items, 512 * self.reviews.len() + 128 * (self.users.len() + chunks))
    }

    fn store(&self, loader: &mut Loader) -> anyhow::Result<()> {
        let mut item = NewItem::default();
        for user in &self.users {
            item.begin(&format!("user:{user}"));
            item.plain("name", name(*user).as_bytes());
            loader.put(&item)?;
        }
        for (product, _) in &self.products {
            let key = format!("product:{product}");
            item.begin(&key);
            item.plain("title", title(*product).as_bytes());
            item.link("reviews", &chunk_key(&format!("reviews:{product}"), 0));
            loader.put(&item)?;
        }
        for (number, (user, product)) in self.reviews.iter().enumerate() {
            let review = number as u32;
            item.begin(&format!("review:{review}"));
            item.link("user", &format!("user:{user}"));
            item.link("product", &format!("product:{product}"));
            item.plain("rating", rating(review).to_string().as_bytes());
            for line in 0..LINES {
                let text = [b'a' + line as u8; LINE_BYTES];
                item.plain(&format!("line {line}"), &text[..line_bytes(review, line)]);
            }
            loader.put(&item)?;
        }
        for (product, reviews) in &self.products {
            let list = format!("reviews:{product}");
            let target = |review: &u32| format!("review:{review}");
            chunks::store(&list, reviews.iter(), target, loader)?;
        }
        Ok(())
    }

    fn draw(&self, random: &mut ChaCha8Rng) -> usize {
        random.random_range(0..self.products.len())
    }

    fn answer(&self, question: &usize, fetcher: &mut Fetcher) -> anyhow::Result<Page> {
        let product = known(&format!("product:{}", self.products[*question].0));
        let (mut title, mut list) = (String::new(), None);
        fetcher.look_up(std::slice::from_ref(&product), &mut |_, item| {
            for field in item.fields() {
                match field.name {
                    b"title" => title = text(field.value)?,
                    b"reviews" => list = Some(field.link(&product.key)),
                    _ => {}
                }
            }
            Ok(())
        })?;
        let list = list.context("a product without reviews")?;
        let links = chunks::fetch(list, PAGE_REVIEWS, fetcher)?;
        let mut authors = vec![None; links.len()];
        let mut reviews = vec![(String::new(), 0, 0); links.len()];
        fetcher.follow(&links, &mut |at, item| {
            for field in item.fields() {
                match field.name {
                    b"user" => authors[at] = Some(field.link(&links[at].key)),
                    b"rating" => reviews[at].1 = text(field.value)?.parse()?,
                    name if name.starts_with(b"line") => reviews[at].2 += field.value.len(),
                    _ => {}
                }
            }
            Ok(())
        })?;
        let authors: Option<Vec<Link>> = authors.into_iter().collect();
        let authors = authors.context("a review without an author")?;
        fetcher.follow(&authors, &mut |at, item| {
            reviews[at].0 = text(item.field(b"name").context("a user without a name")?)?;
            Ok(())
        })?;
        Ok(Page { title, reviews })
    }

    fn known(&self, question: &usize) -> Page {
        let (product, reviews) = &self.products[*question];
        let of = |review: &u32| {
            let bytes = (0..LINES).map(|line| line_bytes(*review, line)).sum();
            (name(self.reviews[*review as usize].0), rating(*review), bytes)
        };
        let reviews = reviews.iter().take(PAGE_REVIEWS).map(of).collect();
        Page { title: title(*product), reviews }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reviews_come_in_the_order_of_the_file_and_a_page_has_the_first_of_them() {
        let mut text = String::from("7 1 2\n8 2\n\n9 2 1\n");
        (10..40).for_each(|user| text += &format!("{user} 2\n"));
        let reviews = Reviews::parse(text.as_bytes()).unwrap();
        assert_eq!((reviews.reviews.len(), reviews.users.len()), (35, 33));
        assert_eq!(reviews.products[0], (1, vec![0, 4]));
        let page = reviews.known(&0);
        assert_eq!((&page.title[..], page.reviews.len()), ("product 1", 2));
        assert_eq!((&page.reviews[0].0[..], &page.reviews[1].0[..]), ("user 7", "user 9"));
        assert_eq!(reviews.known(&1).reviews.len(), PAGE_REVIEWS);
        assert!(Reviews::parse(b"1 x\n").unwrap_err().contains("line 1"));
        assert!(Reviews::parse(b"\n").is_err());
    }
}
