//! A bar on the terminal while data are loaded.

use indicatif::{ProgressBar, ProgressStyle};
use remora_server::Progress;
use std::io::IsTerminal;

/// Draws on standard error, if that is a terminal.
pub struct RecoveryBar(ProgressBar);

impl RecoveryBar {
    /// A bar with this word before it.
    pub fn new(word: &'static str) -> Self {
        // Nothing is drawn before the first news: most restarts are over by then.
        let bar = ProgressBar::hidden();
        let style = "{prefix} {wide_bar} {human_pos}/{human_len} {msg}";
        let style =
            ProgressStyle::with_template(style).unwrap_or_else(|_| ProgressStyle::default_bar());
        Self(bar.with_style(style).with_prefix(word))
    }

    /// Whether it would be seen.
    pub fn has_terminal() -> bool {
        std::io::stderr().is_terminal()
    }

    /// Draws how far it is; removes the bar at the end.
    pub fn show(&self, progress: &Progress) {
        if !Self::has_terminal() {
            return;
        }
        if progress.is_over {
            return self.0.finish_and_clear();
        }
        if self.0.is_hidden() {
            self.0.set_draw_target(indicatif::ProgressDrawTarget::stderr());
        }
        let left = indicatif::HumanDuration(progress.left());
        self.0.set_length(progress.of);
        self.0.set_position(progress.done);
        self.0.set_message(format!("{:.0}/s, {left} left", progress.per_s()));
    }
}
