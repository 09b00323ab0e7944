//! A large vocabulary must not make opening slow: this catches a cost that is quadratic, or per byte.

use esker_gguf::{Header, Layout, Metadata, StringArray, limits};
use std::time::{Duration, Instant};

const N_TOKENS: usize = 250_000;

#[test]
fn a_large_vocabulary_reads_fast() {
    let tokens: StringArray = (0..N_TOKENS).map(|i| format!("Ġtoken{i}")).collect();
    let merges: StringArray = (0..N_TOKENS).map(|i| format!("Ġtok en{i}")).collect();
    let mut metadata = Metadata::new();
    metadata.set("tokenizer.ggml.tokens", tokens.clone());
    metadata.set("tokenizer.ggml.merges", merges);
    metadata.set("tokenizer.ggml.scores", vec![0.5f32; N_TOKENS]);
    metadata.set("tokenizer.ggml.token_type", vec![1i32; N_TOKENS]);
    let layout = Layout::new(&metadata, vec![], limits::ALIGNMENT_DEFAULT).unwrap();

    let begin = Instant::now();
    let header = Header::read(layout.header(), layout.file_bytes()).unwrap();
    let elapsed = begin.elapsed();
    eprintln!("{N_TOKENS} tokens, {} header bytes: {elapsed:?}", layout.header().len());

    assert_eq!(header.metadata.str_array("tokenizer.ggml.tokens"), Ok(&tokens));
    // A tenth of this is usual without optimisation; the margin is for a busy machine.
    assert!(elapsed < Duration::from_secs(3), "{elapsed:?}");
}
