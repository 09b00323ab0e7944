//! Files are models: every architecture builds from them, and their vocabulary encodes text.

use crate::common::{TINY, geometry, options, written};
use esker_models::{Model, Purpose};
use esker_ops::WeightBytes;
use esker_proof::synth::Recipe;
use esker_text::{EncodeOptions, Tokenizer, VocabSpec};
use std::sync::Arc;

#[test]
fn every_architecture_builds() {
    for name in TINY {
        for (recipe, _) in Recipe::ALL {
            let file = written(&geometry(name), &options(recipe));
            let gguf = &file.gguf;
            let mut fetch = |tensor: &esker_gguf::TensorInfo, _: Purpose| {
                let bytes = gguf.read_tensor(tensor).map_err(|e| e.to_string())?;
                let range = 0..bytes.len();
                Ok(WeightBytes::new(Arc::new(bytes), range))
            };
            let (model, layout) = Model::load(gguf, &mut fetch).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!((model.n_layer(), model.n_vocab()), (4, 512));
            assert!(model.notes().is_empty(), "{name}: {:?}", model.notes());
            assert!(layout.layers.iter().all(Option::is_some), "{name}: every layer has experts");
            assert_eq!(layout.tables.len(), if name == "tiny-qwen4exp" { 2 } else { 1 });
        }
    }
}

#[test]
fn the_vocabulary_encodes_and_decodes() {
    for name in TINY {
        let gguf = written(&geometry(name), &options(Recipe::Q8_0)).gguf;
        let meta = &gguf.metadata;
        let id = |key: &str| Some(meta.u32(&format!("tokenizer.ggml.{key}")).unwrap());
        let tokenizer = Tokenizer::new(VocabSpec {
            model: meta.str("tokenizer.ggml.model").unwrap().to_owned(),
            pre: meta.str("tokenizer.ggml.pre").unwrap().to_owned(),
            tokens: meta.str_array("tokenizer.ggml.tokens").unwrap().to_vec(),
            scores: Vec::new(),
            token_types: meta.i32_array("tokenizer.ggml.token_type").unwrap(),
            merges: meta.str_array("tokenizer.ggml.merges").unwrap().to_vec(),
            bos: id("bos_token_id"),
            eos: id("eos_token_id"),
            eot: None,
            unk: None,
            pad: id("padding_token_id"),
            add_bos: Some(meta.bool("tokenizer.ggml.add_bos_token").unwrap()),
            add_eos: None,
            add_space_prefix: None,
            chat_template: Some(meta.str("tokenizer.chat_template").unwrap().to_owned()),
        })
        .unwrap();
        let text = "<|im_start|>user\nthe of and 12 日本語 \u{0}\t🌊<|im_end|>";
        let ids = tokenizer.encode(text, EncodeOptions { special: true, add_bos_eos: true }).unwrap();
        assert_eq!((ids[0], ids[ids.len() - 1]), (501, 502));
        assert!(ids.len() < text.len(), "merges apply: {} tokens for {} bytes", ids.len(), text.len());
        assert_eq!(tokenizer.decode(&ids, false), text.as_bytes());
        assert!(tokenizer.is_end_of_generation(502) && tokenizer.is_control(500));
        let made_up = tokenizer.decode(&[300], false);
        assert!(made_up.len() == 9 && made_up[0] == b' ' && made_up.is_ascii(), "{made_up:?}");
    }
}
