//! Trees of places in process, against the libraries that people use instead.
//! All hold the same rectangles (edges uniform to 1e-4 in the unit square) and
//! are asked the same windows, by turns; a number is the median of the rounds.
//!
//! `cargo run --release --manifest-path bench/trees/Cargo.toml -- WHAT [objects] [rounds] [capacity]`
//!
//! WHAT: `libraries`, `capacities`, `sizes`, or `one`, which inserts and searches
//! and does nothing else, for a profiler.

mod contestants;
mod shapes;
mod workload;

use remora_layout::limits::NODE_ENTRIES;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().unwrap_or_else(|| "libraries".into());
    let mut number =
        |default: usize| arguments.next().map_or(default, |text| text.parse().expect("a number"));
    match what.as_str() {
        "libraries" => contestants::compare(number(2_000_000), number(7), number(NODE_ENTRIES)),
        "capacities" => shapes::capacities(number(1_000_000), number(5)),
        "sizes" => shapes::sizes(number(10_000_000), number(5)),
        "one" => shapes::one(number(2_000_000), number(10)),
        _ => {
            eprintln!("libraries, capacities, sizes or one, not {what}");
            std::process::exit(2);
        }
    }
}
