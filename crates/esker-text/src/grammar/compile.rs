//! Compiling on a thread of its own: with a stack for nested grammars, and with a time limit.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;

use llguidance::Matcher;
use llguidance::api::TopLevelGrammar;

use super::limits::MAX_COMPILE_TIME;
use super::{GrammarError, GrammarVocabulary};

/// Compilations at the same time, those that ran out of time among them: a thread cannot be stopped from outside.
const MAX_COMPILATIONS: usize = 8;
/// Enough for [`MAX_GRAMMAR_BYTES`](super::MAX_GRAMMAR_BYTES) of rules that each use the next. Only what is used of it
/// becomes memory.
const STACK_BYTES: usize = 256 << 20;

static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// Counts a compilation while it lives.
struct Running;

impl Running {
    fn new() -> Result<Running, GrammarError> {
        let free = |n| (n < MAX_COMPILATIONS).then_some(n + 1);
        match RUNNING.fetch_update(Ordering::Relaxed, Ordering::Relaxed, free) {
            Ok(_) => Ok(Running),
            Err(_) => Err(GrammarError::Busy { max: MAX_COMPILATIONS }),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The matcher for `grammar`; `what` names it in errors.
pub(super) fn compile(
    vocabulary: &GrammarVocabulary,
    grammar: TopLevelGrammar,
    what: &'static str,
) -> Result<Matcher, GrammarError> {
    let running = Running::new()?;
    let (sender, receiver) = mpsc::sync_channel(1);
    let vocabulary = vocabulary.clone();
    let work = move || {
        let result = vocabulary.matcher(grammar, what);
        drop(running);
        // Nobody waits any more if it took too long.
        let _ = sender.send(result);
    };
    std::thread::Builder::new()
        .name("grammar".to_owned())
        .stack_size(STACK_BYTES)
        .spawn(work)
        .map_err(|e| GrammarError::Failed { reason: format!("no thread to compile on: {e}") })?;
    match receiver.recv_timeout(MAX_COMPILE_TIME) {
        Ok(result) => result,
        Err(mpsc::RecvTimeoutError::Timeout) => {
            Err(GrammarError::TimeLimit { what, limit: MAX_COMPILE_TIME })
        }
        Err(mpsc::RecvTimeoutError::Disconnected) => {
            Err(GrammarError::Unsupported { what, reason: "the compiler failed".to_owned() })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn compilations_at_once_are_limited() {
        // Other tests compile at the same time: some of these may be refused already.
        let running: Vec<_> = (0..MAX_COMPILATIONS).filter_map(|_| Running::new().ok()).collect();
        assert!(matches!(Running::new(), Err(GrammarError::Busy { max: MAX_COMPILATIONS })));
        drop(running);
        assert!(Running::new().is_ok());
    }
}
