//! `esker repack`.

use crate::support::{
    DEMO, TINY, arg, assert_run, directory, esker, interrupt, json, little_memory, names, run,
};
use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

#[test]
fn there_and_back() {
    let directory = directory();
    let (packed, restored) = (directory.path().join("packed.gguf"), directory.path().join("restored.gguf"));
    assert_run!(run(&["repack", DEMO, arg(&packed)]), @r#"
    exit code: 0
    --- stdout ---
    repacked [DEMO]
      source     28.6 MiB
                 SHA-256 f2f06342ed936a4777df325ea806d34784446db2321b3a245b0ddff736a90b2e
      result     [DIR]/packed.gguf, 29.6 MiB
      experts    512 in 8 layers, 19.2 MiB
      padding    768 KiB
      undo       `--undo` gives the same bytes again
    --- stderr ---
    "#);
    assert_run!(run(&["repack", "--verify", arg(&packed)]), @r#"
    exit code: 0
    --- stdout ---
    verified [DIR]/packed.gguf
      experts    512 in 8 layers, 19.2 MiB
      checksums  all are right
    --- stderr ---
    "#);
    assert_run!(run(&["repack", "--undo", arg(&packed), arg(&restored)]), @r#"
    exit code: 0
    --- stdout ---
    restored [DIR]/packed.gguf
      result     [DIR]/restored.gguf, 28.6 MiB in 214 tensors
                 SHA-256 f2f06342ed936a4777df325ea806d34784446db2321b3a245b0ddff736a90b2e
                 the same bytes as the file that was repacked, by SHA-256
    --- stderr ---
    "#);
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data").join(DEMO);
    assert!(fs::read(&restored).expect("written") == fs::read(demo).expect("there"), "the same bytes");

    // The same model, and the same text from it.
    let [mut before, mut after] = [DEMO, arg(&packed)].map(|model| json(&["inspect", model, "--json"]));
    assert_eq!(after["packing"], serde_json::json!({ "align_bytes": 4096, "padding_bytes": 768 << 10 }));
    for summary in [&mut before, &mut after] {
        for name in ["files", "file_bytes", "packing"] {
            summary[name].take();
        }
    }
    assert_eq!(after, before);
    let options = ["-p", "Once upon a time", "-n", "8", "--greedy", "--json", "--context", "64"];
    let text = |model: &str, memory: &str| {
        json(&[&["run", model], &options[..], &["--memory", memory]].concat())["tokens"].take()
    };
    assert_eq!(text(arg(&packed), little_memory()), text(DEMO, "all"));

    assert_run!(run(&["repack", DEMO, arg(&packed)]), @r#"
    exit code: 1
    --- stdout ---

    --- stderr ---
    error: `[DIR]/packed.gguf` exists

    hint: `--force` puts the result in its place
    "#);
    assert_run!(run(&["repack", arg(&packed), arg(&restored)]), @r#"
    exit code: 1
    --- stdout ---

    --- stderr ---
    error: `[DIR]/packed.gguf` is repacked already

    hint: `--verify` compares its checksums, `--undo` restores the original
    "#);
    assert_run!(run(&["repack", arg(&packed), "--undo", arg(&restored), "--force", "--json"]), @r#"
    exit code: 0
    --- stdout ---
    {"out_bytes":29983392,"n_tensors":214,"restored":"identical","source_files":null,"sha256":"f2f06342ed936a4777df325ea806d34784446db2321b3a245b0ddff736a90b2e"}
    --- stderr ---
    "#);

    damage(&packed);
    assert_run!(run(&["repack", "--verify", arg(&packed)]), @r#"
    exit code: 1
    --- stdout ---

    --- stderr ---
    error: 1 of 512 experts are damaged
      caused by: expert 63 of layer 7 (39424 bytes at byte 30949376 of `[DIR]/packed.gguf`) has checksum 975f8aaf362f2a95, expected 3cb3c142b8254436

    hint: copy the file again, or repack the original again
    "#);
    let found = run(&["repack", "--verify", arg(&packed), "--json"]);
    assert_eq!(found.status.code(), Some(1));
    let value: serde_json::Value = serde_json::from_slice(&found.stdout).expect("JSON");
    assert_eq!((&value["n_bad"], &value["n_experts"]), (&1.into(), &512.into()));
    fs::remove_file(&restored).expect("there");
    assert_eq!(run(&["repack", "--undo", arg(&packed), arg(&restored)]).status.code(), Some(1));
    assert_eq!(names(directory.path()), ["packed.gguf"]);
}

/// Changes a byte in an expert, which are at the end of the file.
fn damage(packed: &Path) {
    let mut file = fs::OpenOptions::new().read(true).write(true).open(packed).expect("there");
    let at = file.metadata().expect("a file").len() - 8192;
    let mut byte = [0];
    file.seek(SeekFrom::Start(at)).and_then(|_| file.read_exact(&mut byte)).expect("read");
    file.seek(SeekFrom::Start(at)).and_then(|_| file.write_all(&[!byte[0]])).expect("written");
}

#[test]
fn refused() {
    let directory = directory();
    let out = directory.path().join("out.gguf");
    assert_run!(run(&["repack", TINY, arg(&out)]), @r#"
    exit code: 1
    --- stdout ---

    --- stderr ---
    error: `llama3.gguf` has no routed experts (no tensor `blk.N.ffn_*_exps.weight`): there is nothing to repack
    "#);
    assert_run!(run(&["repack", "--undo", TINY, arg(&out)]), @r#"
    exit code: 1
    --- stdout ---

    --- stderr ---
    error: `llama3.gguf` is not repacked

    hint: `esker repack MODEL OUT` makes a file that is
    "#);
    assert_run!(run(&["repack", "nofile.gguf", arg(&out)]), @r#"
    exit code: 1
    --- stdout ---

    --- stderr ---
    error: cannot open `nofile.gguf`
      caused by: No such file or directory (os error 2)
    "#);
    assert_run!(run(&["repack", TINY]), @r#"
    exit code: 2
    --- stdout ---

    --- stderr ---
    error: the following required arguments were not provided:
      <OUT>

    Usage: esker repack <MODEL> <OUT>

    For more information, try '--help'.
    "#);
    assert_run!(run(&["repack", "--verify", TINY, arg(&out)]), @r#"
    exit code: 2
    --- stdout ---

    --- stderr ---
    error: the argument '--verify' cannot be used with '[OUT]'

    Usage: esker repack --verify <MODEL> [OUT]

    For more information, try '--help'.
    "#);
    assert!(names(directory.path()).is_empty());
}

/// A large model of zeros that takes no room on the disk.
fn sparse(path: &Path, bytes: u64) {
    use esker_gguf::{Layout, Metadata, TensorSpec};
    let spec = |part: &str| TensorSpec {
        name: format!("blk.0.ffn_{part}_exps.weight"),
        ty: esker_quant::GgmlType::F32,
        shape: vec![1 << 10, 1 << 10, bytes / 3 / (4 << 20)],
    };
    let mut metadata = Metadata::new();
    metadata.set("general.architecture", "nobody");
    let layout =
        Layout::new(&metadata, ["gate", "up", "down"].map(spec).to_vec(), 32).expect("a valid layout");
    let mut file = fs::File::create(path).expect("created");
    file.write_all(layout.header()).expect("written");
    file.set_len(layout.file_bytes()).expect("a sparse file");
}

#[cfg(unix)]
#[test]
fn interrupted_without_a_trace() {
    let directory = directory();
    let source = directory.path().join("zeros.gguf");
    sparse(&source, 12 << 30);
    let out = directory.path().join("out.gguf");
    let output = interrupt(esker(&["repack", arg(&source), arg(&out), "-v"]));
    assert_eq!(output.status.code(), Some(130));
    assert!(output.stdout.is_empty());
    assert_eq!(names(directory.path()), ["zeros.gguf"]);
}
