//! Notes beside the output of a command.

use std::io::Write;

/// A note for the user; never on standard output.
pub fn note(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
