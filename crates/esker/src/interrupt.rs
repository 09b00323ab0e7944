//! Ctrl-C: asks work that listens to end, ends the program when none does or when it is asked twice.

use crate::failure;
use std::sync::atomic::{AtomicBool, Ordering};

/// Something checks [`Listener::requested`].
static LISTENING: AtomicBool = AtomicBool::new(false);
static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Installs the handler. Without one, if the system refuses, Ctrl-C ends the program at once.
pub fn install() {
    let _ = ctrlc::set_handler(|| {
        if !LISTENING.load(Ordering::SeqCst) || REQUESTED.swap(true, Ordering::SeqCst) {
            std::process::exit(failure::INTERRUPTED.into());
        }
    });
}

/// While this is alive, the first Ctrl-C only sets [`requested`](Self::requested). One at a time.
pub struct Listener(());

impl Listener {
    pub fn new() -> Listener {
        REQUESTED.store(false, Ordering::SeqCst);
        LISTENING.store(true, Ordering::SeqCst);
        Listener(())
    }

    /// True after Ctrl-C.
    pub fn requested(&self) -> bool {
        REQUESTED.load(Ordering::SeqCst)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        LISTENING.store(false, Ordering::SeqCst);
    }
}
