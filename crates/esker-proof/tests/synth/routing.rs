//! Routing is what the documentation says: as far from reuse as chance has it, in deep models too.

use crate::common::{TINY, geometry, options, written};
use esker_engine::{Engine, EngineOptions, Output};
use esker_proof::synth::{Geometry, Recipe};
use std::cell::RefCell;
use std::rc::Rc;

const N_TOKENS: usize = 128;
const K: usize = 8;

/// Experts by layer and token.
type Chosen = Vec<Vec<Vec<usize>>>;

/// As deep as large models, with enough experts and words for averages to mean something.
fn deep(name: &str) -> Geometry {
    let mut deep = geometry(name);
    deep.n_layer = 48;
    deep.experts.n_expert = 64;
    deep.experts.n_expert_used = K as u32;
    deep.experts.n_ff = 64;
    deep.vocabulary.n_vocab = 4096;
    deep.vocabulary.end_of_text = 4000;
    deep
}

#[test]
fn tokens_share_experts_by_chance_only() {
    for name in TINY {
        let file = written(&deep(name), &options(Recipe::Q8_0));
        let load = EngineOptions { context: Some(N_TOKENS), ..EngineOptions::default() };
        let mut engine = Engine::load(&file.path, load).unwrap();
        let chosen: Rc<RefCell<Chosen>> = Rc::new(RefCell::new(vec![Vec::new(); 48]));
        let seen = Rc::clone(&chosen);
        engine.set_probe(Some(Box::new(move |what, layer, rows| {
            if what == "ffn_moe_logits" {
                seen.borrow_mut()[layer].extend((0..rows.n_rows()).map(|t| largest(rows.row(t))));
            }
        })));
        let tokens: Vec<u32> = (0..N_TOKENS as u32).map(|i| 300 + i * 29 % 3700).collect();
        let mut session = engine.new_session();
        let logits = engine.forward(&mut session, &tokens, Output::Last).unwrap().unwrap();
        assert!(logits.row(0).iter().all(|l| l.is_finite() && l.abs() < 20.0), "{name}");

        for (layer, tokens) in chosen.borrow().iter().enumerate() {
            assert_eq!(tokens.len(), N_TOKENS, "{name}");
            let shared: usize =
                tokens.windows(2).map(|pair| pair[0].iter().filter(|e| pair[1].contains(e)).count()).sum();
            let overlap = shared as f64 / ((N_TOKENS - 1) * K) as f64;
            // Chance is 8 of 64, with a standard error of 0.01; a narrow model has a little structure besides. Where all
            // tokens have become alike it is above 0.5.
            assert!((0.06..0.22).contains(&overlap), "{name}, layer {layer}: {overlap}");
        }
    }
}

/// The `K` largest.
fn largest(logits: &[f32]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|&a, &b| logits[b].total_cmp(&logits[a]));
    order.truncate(K);
    order
}
