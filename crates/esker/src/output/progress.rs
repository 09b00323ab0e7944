//! Progress on standard error: only if that is a terminal, and gone when the work is done.

use super::Console;
use indicatif::{ProgressBar, ProgressStyle};
use std::time::Duration;

/// A spinner or a bar; removed from the screen when dropped.
pub struct Progress {
    bar: ProgressBar,
}

impl Progress {
    /// For work of unknown length.
    pub fn spinner(console: &Console, what: &str) -> Progress {
        if !console.shows_progress() {
            return Progress::hidden();
        }
        let style = ProgressStyle::with_template("{spinner} {msg} {elapsed}").expect("a constant template");
        let bar = ProgressBar::new_spinner().with_style(style).with_message(what.to_owned());
        bar.enable_steady_tick(Duration::from_millis(100));
        Progress { bar }
    }

    /// For `total` tokens.
    pub fn tokens(console: &Console, what: &str, total: usize) -> Progress {
        Progress::bar(console, what, total as u64, "{msg} {wide_bar} {pos}/{len} tokens, {eta} left")
    }

    /// For `total` bytes.
    pub fn bytes(console: &Console, what: &str, total: u64) -> Progress {
        let template =
            "{msg} {wide_bar} {binary_bytes}/{binary_total_bytes}, {binary_bytes_per_sec}, {eta} left";
        Progress::bar(console, what, total, template)
    }

    fn bar(console: &Console, what: &str, total: u64, template: &str) -> Progress {
        if !console.shows_progress() {
            return Progress::hidden();
        }
        let style = ProgressStyle::with_template(template).expect("a constant template");
        let bar = ProgressBar::new(total).with_style(style).with_message(what.to_owned());
        bar.enable_steady_tick(Duration::from_millis(500));
        Progress { bar }
    }

    /// Shows nothing.
    pub fn hidden() -> Progress {
        Progress { bar: ProgressBar::hidden() }
    }

    /// So many are done.
    pub fn set(&self, done: u64) {
        self.bar.set_position(done);
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
