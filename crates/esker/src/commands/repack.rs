//! `esker repack`: experts laid out for quick reading, and back.

use crate::cli::RepackArgs;
use crate::failure::Failure;
use crate::interrupt::Listener;
use crate::output::units::bytes;
use crate::output::{Console, HEADING, Progress};
use esker_lab::repack::{self, BadExpert, PackReport, RepackError, Restored, UnpackReport, VerifyReport};
use esker_lab::{IfExists, OutputError, Stage};
use serde_json::{Value, json};
use std::ops::ControlFlow;
use std::path::Path;

pub fn repack(args: &RepackArgs, console: &Console) -> Result<(), Failure> {
    let from = &args.model;
    let if_exists = if args.force { IfExists::Replace } else { IfExists::Refuse };
    let interrupt = Listener::new();
    let mut bars = Bars { console, current: None };
    let progress = &mut |progress: esker_lab::Progress| {
        bars.show(progress);
        if interrupt.requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    };
    let failed = |e: RepackError| failure(&e);
    let mut bad = None;
    let (value, text) = match &args.out {
        None => {
            let report = repack::verify(from, progress).map_err(failed)?;
            let shown = (verified_json(&report), verified_text(from, &report));
            bad = damage(&report);
            shown
        }
        Some(out) if args.undo => {
            let report = repack::unpack(from, out, if_exists, progress).map_err(failed)?;
            (unpacked_json(&report), unpacked_text(from, out, &report))
        }
        Some(out) => {
            let report = repack::pack(from, out, if_exists, progress).map_err(failed)?;
            (packed_json(&report), packed_text(from, out, &report))
        }
    };
    drop(bars);
    let mut stdout = console.stdout();
    match (args.json, bad) {
        (true, bad) => {
            stdout.json(&value)?;
            bad.map_or(Ok(()), Err)
        }
        (false, Some(bad)) => Err(bad),
        (false, None) => stdout.print(&text),
    }
}

/// A bar for each stage.
struct Bars<'a> {
    console: &'a Console,
    current: Option<(Stage, Progress)>,
}

impl Bars<'_> {
    fn show(&mut self, progress: esker_lab::Progress) {
        let (what, detail) = match progress.stage {
            Stage::Hash => ("reading", "computing the SHA-256 of the file"),
            Stage::Copy => ("writing", "writing the result"),
            Stage::Verify => ("checking", "comparing checksums of experts"),
        };
        let current = match self.current.take() {
            Some((stage, bar)) if stage == progress.stage => (stage, bar),
            _ => {
                self.console.detail(detail);
                (progress.stage, Progress::bytes(self.console, what, progress.total))
            }
        };
        current.1.set(progress.done);
        self.current = Some(current);
    }
}

fn packed_json(r: &PackReport) -> Value {
    json!({
        "source_bytes": r.source_bytes,
        "source_sha256": r.source_sha256,
        "out_bytes": r.out_bytes,
        "n_layers": r.n_layers,
        "n_experts": r.n_experts,
        "expert_bytes": r.expert_bytes,
        "padding_bytes": r.padding_bytes,
        "undo_is_identical": r.not_identical.is_none(),
        "not_identical_because": r.not_identical,
    })
}

fn packed_text(from: &Path, out: &Path, r: &PackReport) -> String {
    let undo = match &r.not_identical {
        None => "`--undo` gives the same bytes again".to_owned(),
        Some(why) => format!("`--undo` gives the same model, but other bytes: {why}"),
    };
    page(
        &format!("repacked {}", from.display()),
        &[
            ("source", bytes(r.source_bytes)),
            ("", format!("SHA-256 {}", r.source_sha256)),
            ("result", format!("{}, {}", out.display(), bytes(r.out_bytes))),
            ("experts", format!("{} in {} layers, {}", r.n_experts, r.n_layers, bytes(r.expert_bytes))),
            ("padding", bytes(r.padding_bytes)),
            ("undo", undo),
        ],
    )
}

fn unpacked_json(r: &UnpackReport) -> Value {
    let (restored, n_files) = match r.restored {
        Restored::Identical => ("identical", None),
        Restored::Merged { n_files } => ("merged", Some(n_files)),
        Restored::Equivalent => ("equivalent", None),
    };
    json!({
        "out_bytes": r.out_bytes,
        "n_tensors": r.n_tensors,
        "restored": restored,
        "source_files": n_files,
        "sha256": r.sha256,
    })
}

fn unpacked_text(from: &Path, out: &Path, r: &UnpackReport) -> String {
    let restored = match r.restored {
        Restored::Identical => "the same bytes as the file that was repacked, by SHA-256".to_owned(),
        Restored::Merged { n_files } => {
            format!("the model of {n_files} files in one; the checksums of all experts are right")
        }
        Restored::Equivalent => {
            "the same model, with another order or padding than the file that was repacked; \
             the checksums of all experts are right"
                .to_owned()
        }
    };
    page(
        &format!("restored {}", from.display()),
        &[
            ("result", format!("{}, {} in {} tensors", out.display(), bytes(r.out_bytes), r.n_tensors)),
            ("", format!("SHA-256 {}", r.sha256)),
            ("", restored),
        ],
    )
}

fn verified_json(r: &VerifyReport) -> Value {
    let bad = |b: &BadExpert| {
        json!({
            "layer": b.layer,
            "expert": b.expert,
            "file": b.file,
            "offset": b.offset,
            "bytes": b.len,
            "expected": format!("{:016x}", b.expected),
            "found": format!("{:016x}", b.found),
        })
    };
    json!({
        "n_layers": r.n_layers,
        "n_experts": r.n_experts,
        "expert_bytes": r.bytes,
        "n_bad": r.n_bad,
        "first_bad": r.first_bad.as_ref().map(bad),
    })
}

fn verified_text(path: &Path, r: &VerifyReport) -> String {
    let experts = format!("{} in {} layers, {}", r.n_experts, r.n_layers, bytes(r.bytes));
    page(
        &format!("verified {}", path.display()),
        &[("experts", experts), ("checksums", "all are right".to_owned())],
    )
}

/// Damage that was found.
fn damage(r: &VerifyReport) -> Option<Failure> {
    let bad = r.first_bad.as_ref()?;
    let hint = RepackError::Damaged { bad: bad.clone() }.hint();
    let message = format!("{} of {} experts are damaged", r.n_bad, r.n_experts);
    Some(Failure::new(message).cause_text(bad.to_string()).hint(hint))
}

fn page(title: &str, lines: &[(&str, String)]) -> String {
    let mut out = format!("{HEADING}{title}{HEADING:#}\n");
    for (label, text) in lines {
        out += &format!("  {label:<11}{text}\n");
    }
    out
}

fn failure(error: &RepackError) -> Failure {
    let hint = |text: &str| Some(text.to_owned());
    match error {
        RepackError::Cancelled => Failure::interrupted(),
        RepackError::Output(OutputError::Exists { .. }) => {
            Failure::of(error).hint(hint("`--force` puts the result in its place"))
        }
        RepackError::Output(OutputError::NoSpace { path, needed, available }) => {
            Failure::no_space(path, *needed, *available)
        }
        RepackError::AlreadyPacked { .. } => {
            Failure::of(error).hint(hint("`--verify` compares its checksums, `--undo` restores the original"))
        }
        RepackError::NotPacked { .. } => {
            Failure::of(error).hint(hint("`esker repack MODEL OUT` makes a file that is"))
        }
        _ => Failure::of(error).hint(error.hint()),
    }
}
