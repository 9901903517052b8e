//! The driver of tests: it feeds any walk, with late and torn bytes in any order that its source
//! chooses.

use remora_walk::{Proof, Step, Walk, Want};

/// More fetches than any walk may need.
const MOST_FETCHES: usize = 100_000;

/// The source of a walk's bytes.
pub trait Source<W: Walk> {
    /// The bytes of a want, and their proof.
    fn bytes(&mut self, want: &Want<W::Tag>) -> (Vec<u8>, Proof);

    /// The head under which the walk restarts.
    fn head(&mut self) -> W::Head;

    /// The index of the next want to answer, of this many that are under way.
    fn next(&mut self, under_way: usize) -> usize {
        under_way - 1
    }
}

/// Feeds a walk until it ends, with up to `width` wants under way. Returns its results, and the
/// last bytes that it was fed.
pub fn feed<W: Walk>(
    walk: &mut W,
    mut width: usize,
    source: &mut impl Source<W>,
) -> Result<(W::Found, Vec<u8>), W::Reason> {
    let mut under_way = Vec::new();
    for _ in 0..MOST_FETCHES {
        while under_way.len() < width
            && let Some(want) = walk.next_want()
        {
            under_way.push(want);
        }
        assert!(!under_way.is_empty(), "it wants nothing, and has not ended");
        let want = under_way.swap_remove(source.next(under_way.len()));
        let (bytes, proof) = source.bytes(&want);
        match walk.feed(want, &bytes, proof) {
            Step::More => {}
            Step::Found(found) => return Ok((found, bytes)),
            Step::Ask(reason) => return Err(reason),
            Step::Restart => {
                // The wants that are still under way are fed later, and have no effect.
                width += under_way.len();
                walk.restart(&source.head())?;
            }
        }
    }
    panic!("no walk is so long");
}
