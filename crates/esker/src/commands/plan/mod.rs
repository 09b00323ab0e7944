//! `esker plan`: will it fit, how is it laid out, what speed to expect.

mod bandwidth;
mod layout;
mod speed;
mod text;

use crate::cli::{PlanArgs, memory_that_is_enough};
use crate::failure::Failure;
use crate::model;
use crate::output::{Console, Progress, escaped};
use crate::statistics::PlanFigures;
use esker_engine::{EngineOptions, PlanReport, default_threads};
use layout::InMemory;
use serde::Serialize;
use speed::{Reads, Speed, Traffic};
use std::path::Path;

pub fn plan(args: &PlanArgs, console: &Console) -> Result<(), Failure> {
    let path = model::resolve(console, args.model.as_deref())?;
    let defaults = EngineOptions {
        sessions: usize::from(args.sessions),
        snapshot_bytes: args.snapshots.unwrap_or(0),
        ..EngineOptions::default()
    };
    let options = args.engine.options(defaults);
    let failed = |e| Failure::engine(&path, &e);
    let (decided, streamed) = {
        let _spinner = Progress::spinner(console, "planning");
        let decided = esker_engine::plan(&path, &options).map_err(failed)?;
        let streamed = match decided.plan {
            Some(_) => None,
            None => layout::if_streamed(&path, &options, decided.file_bytes).map_err(failed)?,
        };
        (decided, streamed)
    };
    let gguf = model::open(&path)?;
    let mut report = Report::new(&path, decided, streamed.as_ref());
    report.name = model::name(&gguf, &path);
    report.architecture = gguf.architecture().map(|name| escaped(name, 64)).ok();
    report.threads = options.threads.unwrap_or_else(default_threads);
    if let Some(traffic) = report.traffic.filter(|_| !args.no_measure) {
        report.speed = Some(speed::measure(console, traffic, Reads::of(&gguf).as_ref(), report.threads));
    }
    if let Some(memory) = &report.in_memory
        && memory.free_bytes.is_some_and(|free| memory.total > free)
    {
        console.warning(
            "this is more than what is free: the system would read the same weights again and again; \
             `--memory auto` keeps to what is there",
        );
    }
    let mut stdout = console.stdout();
    if args.json { stdout.json(&report) } else { stdout.print(&text::report(&report)) }
}

/// What is printed. Sizes in bytes.
#[derive(Serialize)]
struct Report<'a> {
    name: String,
    architecture: Option<String>,
    path: &'a Path,
    file_bytes: u64,
    threads: usize,
    /// Tokens that a sequence has room for.
    context: usize,
    /// Why it is laid out like this.
    why: String,
    /// The layout in a budget; null if all of the model would be in memory.
    plan: Option<PlanFigures>,
    /// What all of the model in memory takes; null if it would be in a budget.
    in_memory: Option<InMemory>,
    /// A value of `--memory` that would be enough.
    enough: Option<String>,
    traffic: Option<Traffic>,
    /// Null if it was not measured.
    speed: Option<Speed>,
}

impl<'a> Report<'a> {
    /// `streamed`: for a model that would be all in memory, how it could be run otherwise.
    fn new(path: &'a Path, decided: PlanReport, streamed: Option<&layout::Streamed>) -> Report<'a> {
        let PlanReport { plan, why, file_bytes, context } = decided;
        let in_memory = plan.is_none().then(|| InMemory::new(file_bytes, streamed));
        let smallest = match (&plan, streamed) {
            (Some(plan), _) => Some(plan.smallest_budget),
            (None, streamed) => streamed.map(layout::Streamed::smallest_budget),
        };
        let traffic = match (&plan, streamed) {
            (Some(plan), _) => Some(Traffic::of(plan, plan.resident_share())),
            (None, Some(layout::Streamed::Fits(plan))) => Some(Traffic::of(plan, 1.0)),
            (None, _) => None,
        };
        Report {
            name: String::new(),
            architecture: None,
            path,
            file_bytes,
            threads: 0,
            context,
            why,
            plan: plan.as_ref().map(PlanFigures::from),
            in_memory,
            enough: smallest.map(memory_that_is_enough),
            traffic,
            speed: None,
        }
    }
}
