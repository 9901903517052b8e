//! How far a file is read, as a terminal shows it.

use indicatif::{ProgressBar, ProgressStyle};
use std::path::Path;

/// Shows how far the file is read, where standard error is a terminal.
pub fn progress_bar(file: &Path) -> ProgressBar {
    match std::fs::metadata(file) {
        Ok(metadata) if metadata.is_file() => {
            let style = "{wide_bar} {bytes}/{total_bytes} {msg} {eta}";
            let bar = ProgressBar::new(metadata.len());
            ProgressStyle::with_template(style)
                .map(|style| bar.clone().with_style(style))
                .unwrap_or(bar)
        }
        _ => ProgressBar::new_spinner(),
    }
}
