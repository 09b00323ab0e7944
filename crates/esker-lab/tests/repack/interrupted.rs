//! Operations that do not come to their end.

use crate::common::{go_on, metadata, mixed, names, pack_to, spec, write};
use esker_lab::repack::{RepackError, pack, unpack, verify};
use esker_lab::{IfExists, Progress};
use esker_quant::GgmlType;
use std::ops::ControlFlow;
use std::path::Path;
use std::process::Command;

/// Breaks off at every report in turn; nothing may be left of any of them.
#[test]
fn breaking_off_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let [source, packed, out] = ["m.gguf", "p.gguf", "o.gguf"].map(|n| dir.path().join(n));
    write(&source, &metadata(), mixed(), 32);
    pack_to(&source, &packed).unwrap();
    type Operation<'a> = &'a dyn Fn(&mut dyn FnMut(Progress) -> ControlFlow<()>) -> Result<(), RepackError>;
    let operations: [Operation<'_>; 3] = [
        &|p| pack(&source, &out, IfExists::Refuse, p).map(drop),
        &|p| unpack(&packed, &out, IfExists::Refuse, p).map(drop),
        &|p| verify(&packed, p).map(drop),
    ];
    for operation in operations {
        let mut n_reports = 0;
        operation(&mut |_| {
            n_reports += 1;
            ControlFlow::Continue(())
        })
        .unwrap();
        let _ = std::fs::remove_file(&out);
        assert!(n_reports > 10);
        for stop_at in 1..=n_reports {
            let mut report = 0;
            let result = operation(&mut |_| {
                report += 1;
                if report == stop_at { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            });
            assert!(matches!(result, Err(RepackError::Cancelled)), "report {stop_at} of {n_reports}");
            assert_eq!(names(dir.path()), ["m.gguf", "p.gguf"], "report {stop_at} of {n_reports}");
        }
    }
}

/// The test runs itself a second time; that process dies in the middle of writing.
#[test]
fn a_killed_process_leaves_the_target_as_it_was() {
    const VICTIM: &str = "ESKER_LAB_TEST_VICTIM";
    let paths = |dir: &Path| ["m.gguf", "p.gguf"].map(|n| dir.join(n));
    if let Some(dir) = std::env::var_os(VICTIM) {
        let [source, packed] = paths(Path::new(&dir));
        let mut copied = 0;
        let _ = pack(&source, &packed, IfExists::Replace, &mut |p| {
            copied += u32::from(p.stage == esker_lab::Stage::Copy);
            if copied == 20 { std::process::abort() } else { ControlFlow::Continue(()) }
        });
        unreachable!("20 reports of copying come before the end");
    }
    let dir = tempfile::tempdir().unwrap();
    let [source, packed] = paths(dir.path());
    let mut specs = mixed();
    specs.push(spec("big", GgmlType::F32, &[1 << 20]));
    write(&source, &metadata(), specs, 32);
    std::fs::write(&packed, "before").unwrap();
    let victim = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "interrupted::a_killed_process_leaves_the_target_as_it_was"])
        .env(VICTIM, dir.path())
        .output()
        .unwrap();
    assert!(!victim.status.success());
    assert_eq!(std::fs::read(&packed).unwrap(), b"before");
    let left = names(dir.path());
    assert!(left.len() == 3 && left[0].starts_with(".p.gguf.") && left[0].ends_with(".tmp"), "{left:?}");

    pack(&source, &packed, IfExists::Replace, &mut go_on).unwrap();
    assert_eq!(verify(&packed, &mut go_on).unwrap().n_bad, 0);
}
