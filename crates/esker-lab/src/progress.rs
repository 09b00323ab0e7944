//! What long operations report while they run.

use std::ops::ControlFlow;

/// How far an operation is. The callback that receives it may answer [`ControlFlow::Break`]: the operation ends with an
/// error that says so and leaves no file behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// What is being done.
    pub stage: Stage,
    /// Bytes done of this stage.
    pub done: u64,
    /// Bytes of this stage in all.
    pub total: u64,
}

/// A pass over the data. An operation reports its stages one after the other, each from 0 to its total.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Reading the source to hash it.
    Hash,
    /// Reading, and writing the result.
    Copy,
    /// Reading experts to compare their checksums.
    Verify,
}

/// Counts the bytes of one stage and asks the callback whether to go on.
pub(crate) struct Meter<'a> {
    report: &'a mut dyn FnMut(Progress) -> ControlFlow<()>,
    progress: Progress,
}

impl<'a> Meter<'a> {
    pub(crate) fn new(
        report: &'a mut dyn FnMut(Progress) -> ControlFlow<()>,
        stage: Stage,
        total: u64,
    ) -> Meter<'a> {
        Meter { report, progress: Progress { stage, done: 0, total } }
    }

    /// `Break` if the caller wants no more.
    pub(crate) fn add(&mut self, bytes: u64) -> ControlFlow<()> {
        self.progress.done += bytes;
        (self.report)(self.progress)
    }
}
