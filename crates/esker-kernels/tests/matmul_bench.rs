//! The benchmark of the matrix products runs, and its checksums agree between instruction sets.

#[allow(dead_code, reason = "its main is cargo bench's")]
#[path = "../benches/matmul.rs"]
mod matmul;

#[test]
fn smoke() {
    let args = ["--smoke", "--threads", "2"].map(String::from);
    matmul::run(&matmul::parse(args.into_iter()).unwrap());
}

#[test]
fn bad_arguments_are_named() {
    let error = |args: &[&str]| matmul::parse(args.iter().map(|s| s.to_string())).map(|_| ()).unwrap_err();
    assert!(error(&["--cols", "100"]).contains("100"));
    assert!(error(&["q9_9"]).contains("q9_9"));
    assert!(error(&["--mib"]).contains("--mib"));
}
