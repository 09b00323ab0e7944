//! Running the program, and tiny files for it.

use esker_gguf::{GgufWriter, Metadata, TensorSpec};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The tiny model, from the directory in which [`esker`] runs.
pub const TINY: &str = "llama3.gguf";

/// The demo model, from there.
pub const DEMO: &str = "../../../../models/esker-moe-64m-small.gguf";

/// The program, in `tests/data`, with an environment that does not depend on who runs the test.
pub fn esker(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_esker"));
    command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data")).args(args);
    for name in ["COLUMNS", "NO_COLOR", "CLICOLOR", "CLICOLOR_FORCE", "ESKER_MODELS", "ESKER_API_KEY"] {
        command.env_remove(name);
    }
    // Nothing is kept from, or for, other runs.
    for name in ["HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"] {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

/// Runs to the end, with `input` on standard input.
pub fn run_with(args: &[&str], input: &[u8]) -> Output {
    let mut child = esker(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    // A program that ends with an error may not read it.
    let _ = stdin.write_all(input);
    drop(stdin);
    child.wait_with_output().expect("the program ends")
}

/// Sends Ctrl-C's signal after the first output on standard error, and waits for the end.
#[cfg(unix)]
pub fn interrupt(mut command: Command) -> Output {
    let mut child =
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program starts");
    child.stderr.as_mut().expect("a pipe").read_exact(&mut [0]).expect("a line");
    let killed = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    assert!(killed.expect("kill exists").success());
    child.wait_with_output().expect("the program ends")
}

/// Runs to the end.
pub fn run(args: &[&str]) -> Output {
    esker(args).output().expect("the program starts")
}

/// Standard output of a run that succeeds.
pub fn stdout(args: &[&str]) -> String {
    let output = run(args);
    assert!(output.status.success(), "{}", shown(&output));
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// Standard output of a run that succeeds, as JSON.
pub fn json(args: &[&str]) -> serde_json::Value {
    serde_json::from_str(&stdout(args)).expect("one JSON value")
}

/// A value of `--memory` with which a few of the demo model's experts fit, with `--context 64`. What the program itself
/// takes is part of it, and depends on how it was built.
pub fn little_memory() -> &'static str {
    static MEMORY: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    MEMORY.get_or_init(|| {
        let plan = json(&["plan", "--no-measure", "--json", "--context", "64"]);
        let enough = plan["enough"].as_str().and_then(|size| size.strip_suffix('M')).expect("MiB");
        format!("{}M", enough.parse::<u64>().expect("a number") + 4)
    })
}

/// Exit code, standard output, standard error.
pub fn shown(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!(
        "exit code: {}\n--- stdout ---\n{}\n--- stderr ---\n{}",
        output.status.code().map_or("none".to_owned(), |code| code.to_string()),
        text(&output.stdout).trim_end_matches('\n'),
        text(&output.stderr).trim_end_matches('\n'),
    )
}

/// Compares what a run shows with an inline snapshot; paths and times are replaced, and for what is measured `sizes`, or
/// all `numbers`.
macro_rules! assert_run {
    ($output:expr, @$snapshot:literal) => {
        assert_run!($output, times, @$snapshot)
    };
    ($output:expr, $measured:ident, @$snapshot:literal) => {{
        let mut settings = insta::Settings::clone_current();
        settings.add_filter(r"[^ \n`]*models/esker-moe-64m-small.gguf", "[DEMO]");
        settings.add_filter(r"[^ \n`]*/esker-test-[A-Za-z0-9]+", "[DIR]");
        settings.add_filter(r"\d+\.?\d* s\b", "[TIME]");
        settings.add_filter(r"\d+\.?\d* (tok|[KMG]iB)/s", "[SPEED]");
        for (pattern, replacement) in crate::support::filters(stringify!($measured)) {
            settings.add_filter(pattern, *replacement);
        }
        settings.bind(|| insta::assert_snapshot!(crate::support::shown(&$output), @$snapshot));
    }};
}
pub(crate) use assert_run;

/// Further filters of [`assert_run`].
pub fn filters(measured: &str) -> &'static [(&'static str, &'static str)] {
    match measured {
        "sizes" => &[
            (r" *\d+\.?\d* [KMGT]?i?B\b", " [SIZE]"),
            (r" *\d+\.\d %", " [SHARE]"),
            (r"--memory \d+M", "--memory [SIZE]"),
            (r"\[[pwsdctix#.+]{72}\]", "[BAR]"),
            // Slots of the arena.
            (r"\[SIZE\] +\d+ +(\d+) +(\d+) +\[SHARE\]", "[SIZE] [SLOTS] $1 $2 [SHARE]"),
        ],
        "numbers" => &[(r" *\b\d+(\.\d+)?\b( %| [KMGT]?i?B\b)?", " [N]")],
        _ => &[],
    }
}

/// A directory that goes with its owner; its name is replaced in snapshots.
pub fn directory() -> tempfile::TempDir {
    tempfile::Builder::new().prefix("esker-test-").tempdir().expect("a directory")
}

/// Names of all that is in a directory, sorted.
pub fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).expect("a directory");
    let mut names: Vec<String> =
        entries.map(|e| e.expect("an entry").file_name().into_string().expect("UTF-8")).collect();
    names.sort();
    names
}

/// A path as an argument.
pub fn arg(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

/// Writes a GGUF file whose tensors, all F32, are zero.
pub fn write_gguf(path: &Path, metadata: &Metadata, tensors: &[(&str, &[u64])]) {
    let spec = |(name, shape): &(&str, &[u64])| TensorSpec {
        name: (*name).to_owned(),
        ty: esker_quant::GgmlType::F32,
        shape: shape.to_vec(),
    };
    let specs: Vec<TensorSpec> = tensors.iter().map(spec).collect();
    let mut writer = GgufWriter::new(path, metadata, specs, 32).expect("a valid layout");
    while let Some(tensor) = writer.next_tensor().cloned() {
        writer.write_tensor(&tensor.name, &vec![0; tensor.size as usize]).expect("written");
    }
    writer.finish().expect("renamed");
}

/// A file of an architecture that nobody has: two MoE layers, the second with fewer experts, and a draft block.
pub fn unknown_architecture(directory: &Path) -> PathBuf {
    let path = directory.join("nobody.gguf");
    let mut metadata = Metadata::new();
    metadata.set("general.architecture", "nobody\u{1b}[31m");
    metadata.set("general.name", "No\u{1b}body");
    write_gguf(
        &path,
        &metadata,
        &[
            ("token_embd.weight", &[32, 64]),
            ("blk.0.attn_q.weight", &[32, 32]),
            ("blk.0.ffn_gate_inp.weight", &[32, 8]),
            ("blk.0.ffn_down_exps.weight", &[16, 32, 8]),
            ("blk.0.ffn_gate_exps.weight", &[32, 16, 8]),
            ("blk.0.ffn_up_exps.weight", &[32, 16, 8]),
            ("blk.1.ssm_in.weight", &[32, 32]),
            ("blk.1.ffn_gate_inp.weight", &[32, 4]),
            ("blk.1.ffn_gate_up_exps.weight", &[32, 32, 4]),
            ("blk.1.ffn_down_exps.weight", &[16, 32, 4]),
            ("blk.2.attn_q.weight", &[32, 32]),
            ("blk.2.nextn.eh_proj.weight", &[64, 32]),
        ],
    );
    path
}
