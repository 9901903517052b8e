//! Ordered trees in process, against the ordered maps that people use instead. All hold the same
//! keys with values of 8 bytes and are asked the same by turns; a number is the median of the
//! rounds.
//!
//! `cargo run --release --manifest-path bench/ordered/Cargo.toml -- WHAT [keys] [rounds]`
//!
//! WHAT: `integers`: random keys of 64 bits; `addresses`: URLs; `one FANOUT`: only our tree of
//! integers with this fan-out, for a profiler.

mod integers;
mod run;
mod urls;
mod workload;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let what = arguments.next().unwrap_or_else(|| "integers".into());
    let mut number =
        |default: usize| arguments.next().map_or(default, |text| text.parse().expect("a number"));
    match what.as_str() {
        "integers" => integers::compare(number(10_000_000), number(7)),
        "addresses" => urls::compare(number(10_000_000), number(7)),
        "one" => integers::one(number(16), number(1_000_000), number(7)),
        _ => {
            eprintln!("integers, addresses or one, not {what}");
            std::process::exit(2);
        }
    }
}
