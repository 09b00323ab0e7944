//! A file written by another program.

use esker_gguf::{Gguf, Value};
use esker_quant::GgmlType;
use std::path::Path;

fn llama3() -> Gguf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/llama3.gguf");
    Gguf::open(&path).expect("the golden file opens")
}

#[test]
fn a_file_of_llama_cpp_reads_as_it_was_written() {
    let gguf = llama3();
    assert_eq!(gguf.version, 3);
    assert_eq!(gguf.alignment, 32);
    assert_eq!(gguf.total_file_bytes(), 538_848);
    assert_eq!(gguf.metadata.str("general.architecture"), Ok("llama"));
    assert_eq!(gguf.metadata.u32("llama.block_count"), Ok(2));
    assert_eq!(gguf.metadata.u64("llama.embedding_length"), Ok(64));
    assert_eq!(gguf.metadata.str_array("tokenizer.ggml.tokens").unwrap().len(), 512);
    assert!(matches!(gguf.metadata.get("tokenizer.ggml.token_type"), Some(Value::Array(_))));

    let embd = gguf.tensor("token_embd.weight").unwrap();
    assert_eq!((embd.ty, &embd.shape[..], embd.size), (GgmlType::F32, &[64, 512][..], 64 * 512 * 4));
    assert!(gguf.tensor("output.weight").is_none(), "the file ties output to token_embd");
    for tensor in &gguf.tensors {
        assert!(tensor.offset.is_multiple_of(32) && tensor.offset + tensor.size <= 538_848);
        assert_eq!(gguf.tensor(&tensor.name), Some(tensor));
    }
}
