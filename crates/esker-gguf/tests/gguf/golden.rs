//! Files written by other programs.

use crate::round_trip::rewrite;
use esker_gguf::{Gguf, Value};
use esker_quant::GgmlType;
use std::path::{Path, PathBuf};

fn golden() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/llama3.gguf")
}

#[test]
fn a_file_of_llama_cpp_reads_as_it_was_written() {
    let gguf = Gguf::open(&golden()).unwrap();
    assert_eq!((gguf.version, gguf.alignment), (3, 32));
    assert_eq!(gguf.total_file_bytes(), 538_848);
    assert_eq!(gguf.architecture(), Ok("llama"));
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

    let blocks = gguf.tensors_by_block();
    assert_eq!(blocks.keys().copied().collect::<Vec<_>>(), [None, Some(0), Some(1)]);
    assert!(blocks[&Some(0)].iter().any(|t| t.name_in_block() == "attn_q.weight"));
    assert_eq!(gguf.expert_tensor_bytes(), 0);
    let totals = gguf.totals_by_type();
    assert_eq!(
        totals.iter().map(|t| (t.ty, t.n_tensors)).collect::<Vec<_>>(),
        [(GgmlType::F32, gguf.tensors.len())]
    );
    assert_eq!(totals[0].size, gguf.total_tensor_bytes());
    assert_eq!(totals[0].size, gguf.total_elements() * 4);
}

#[test]
fn a_file_of_llama_cpp_is_rewritten_byte_for_byte() {
    check_rewrite(&golden());
}

fn check_rewrite(path: &Path) {
    let dir = tempfile::tempdir().unwrap();
    let copy = dir.path().join("copy.gguf");
    rewrite(&Gguf::open(path).unwrap(), &copy);
    assert!(std::fs::read(path).unwrap() == std::fs::read(&copy).unwrap(), "{} differs", path.display());
}

/// The reference models of every architecture, and an importance matrix, where they are at hand.
#[test]
fn every_reference_file_is_rewritten_byte_for_byte() {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    let shared = std::env::var_os("ESKER_SHARED").map_or(manifest.join("../../../shared"), PathBuf::from);
    let mut n_files = 0;
    for folder in ["golden/logits", "models"] {
        let Ok(entries) = std::fs::read_dir(shared.join(folder)) else {
            eprintln!("skipped: no `{folder}` in {} (set ESKER_SHARED)", shared.display());
            continue;
        };
        for path in entries.map(|entry| entry.unwrap().path()) {
            if path.extension().is_some_and(|extension| extension == "gguf") {
                check_rewrite(&path);
                n_files += 1;
            }
        }
    }
    eprintln!("{n_files} files rewritten");
}
