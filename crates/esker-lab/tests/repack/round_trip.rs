//! There and back.

use crate::common::{go_on, golden, metadata, mixed, names, pack_to, write};
use esker_gguf::Gguf;
use esker_lab::repack::{RepackError, Restored, pack, unpack, verify};
use esker_lab::{IfExists, Progress, Stage};
use esker_packed::{read_packed, tensor_name};
use std::ops::ControlFlow;
use std::path::Path;

/// Every expert of `packed` is the slices of the stacked tensors of `source`, everything else is as it was.
fn check_contents(source: &Path, packed: &Path) {
    let (from, to) = (Gguf::open(source).unwrap(), Gguf::open(packed).unwrap());
    assert_eq!((to.alignment, to.files.len()), (4096, 1));
    let layers = read_packed(&to).unwrap();
    let mut n_packed = 0;
    for tensor in &from.tensors {
        let data = from.read_tensor(tensor).unwrap();
        if let Some(same) = to.tensor(&tensor.name) {
            assert!(same.spec() == tensor.spec() && to.read_tensor(same).unwrap() == data, "{}", tensor.name);
            continue;
        }
        n_packed += 1;
        let layer = tensor.block().unwrap();
        let packed = &layers[&layer];
        let holder = to.tensor(&tensor_name(layer)).unwrap();
        assert_eq!(holder.offset % 4096, 0);
        let experts = to.read_tensor(holder).unwrap();
        let index = packed.parts.iter().position(|p| p.name == tensor.name_in_block()).unwrap();
        let part = &packed.parts[index];
        assert_eq!(
            (part.ty, [part.cols, part.rows, packed.n_expert]),
            (tensor.ty, tensor.shape[..].try_into().unwrap())
        );
        let slices = data.chunks_exact(part.size as usize);
        for (expert, slice) in experts.chunks_exact(packed.stride as usize).zip(slices) {
            assert!(expert[packed.part_range(index)] == *slice, "{}", tensor.name);
        }
    }
    let of_parts: usize = layers.values().map(|l| l.parts.len()).sum();
    assert_eq!((n_packed, to.tensors.len()), (of_parts, from.tensors.len() - of_parts + layers.len()));
    for (&layer, packed) in &layers {
        let experts = to.read_tensor(to.tensor(&tensor_name(layer)).unwrap()).unwrap();
        for (expert, &checksum) in experts.chunks_exact(packed.stride as usize).zip(&packed.checksums) {
            assert_eq!(packed.checksum_of(expert), checksum);
            let mut rest = expert.to_vec();
            (0..packed.parts.len()).for_each(|i| rest[packed.part_range(i)].fill(0));
            assert!(rest.iter().all(|&b| b == 0), "padding is zero");
        }
    }
}

#[test]
fn every_golden_model_comes_back_byte_for_byte() {
    let dir = tempfile::tempdir().unwrap();
    let mut n_packed = 0;
    for name in names(&golden()).iter().filter(|n| n.ends_with(".gguf")) {
        let source = golden().join(name);
        let (packed, back) = (dir.path().join(format!("{name}.packed")), dir.path().join(name));
        let report = match pack_to(&source, &packed) {
            Err(RepackError::NoExperts { .. }) => {
                assert!(name.starts_with("llama"), "{name} has experts");
                continue;
            }
            other => other.unwrap(),
        };
        assert_eq!(report.not_identical, None, "{name}");
        check_contents(&source, &packed);

        let checked = verify(&packed, &mut go_on).unwrap();
        assert_eq!(
            (checked.n_bad, checked.n_experts, checked.n_layers),
            (0, report.n_experts, report.n_layers)
        );
        assert_eq!(checked.bytes, report.expert_bytes);

        let restored = unpack(&packed, &back, IfExists::Refuse, &mut go_on).unwrap();
        assert_eq!(
            (restored.restored, restored.sha256),
            (Restored::Identical, report.source_sha256),
            "{name}"
        );
        assert!(std::fs::read(&source).unwrap() == std::fs::read(&back).unwrap(), "{name}");
        n_packed += 1;
    }
    assert!(n_packed >= 15, "only {n_packed} models with experts");
}

#[test]
fn fused_experts_and_dense_layers() {
    let dir = tempfile::tempdir().unwrap();
    let [source, packed, back] = ["m.gguf", "p.gguf", "b.gguf"].map(|n| dir.path().join(n));
    write(&source, &metadata(), mixed(), 32);
    let report = pack_to(&source, &packed).unwrap();
    assert_eq!((report.n_layers, report.n_experts), (2, 8));
    // Layer 1: 5 rows of 2 Q4_0 blocks, 5 of 2 Q8_0 blocks, 64 of 5 f16. Layer 2: 6 rows of 2 Q4_0 blocks, 64 of 3 f32.
    assert_eq!(report.expert_bytes, 5 * (180 + 340 + 640) + 3 * (216 + 768));
    assert_eq!(report.expert_bytes + report.padding_bytes, 8 * 4096);
    check_contents(&source, &packed);

    let gguf = Gguf::open(&packed).unwrap();
    let layers = read_packed(&gguf).unwrap();
    let places =
        |layer: u32| layers[&layer].parts.iter().map(|p| (&p.name[..], p.offset)).collect::<Vec<_>>();
    assert_eq!(
        places(1),
        [("ffn_gate_exps.weight", 0), ("ffn_up_exps.weight", 192), ("ffn_down_exps.weight", 576)]
    );
    assert_eq!(places(2), [("ffn_gate_up_exps.weight", 0), ("ffn_down_exps.weight", 256)]);
    assert!(gguf.tensor("blk.0.ffn_up.weight").is_some());

    assert_eq!(unpack(&packed, &back, IfExists::Refuse, &mut go_on).unwrap().restored, Restored::Identical);
    assert!(std::fs::read(&source).unwrap() == std::fs::read(&back).unwrap());
}

#[test]
fn progress_reaches_its_totals() {
    let dir = tempfile::tempdir().unwrap();
    let [source, packed, back] = ["m.gguf", "p.gguf", "b.gguf"].map(|n| dir.path().join(n));
    write(&source, &metadata(), mixed(), 32);
    let mut seen: Vec<Progress> = Vec::new();
    let mut watch = |p| {
        seen.push(p);
        ControlFlow::Continue(())
    };
    let report = pack(&source, &packed, IfExists::Refuse, &mut watch).unwrap();
    verify(&packed, &mut watch).unwrap();
    let restored = unpack(&packed, &back, IfExists::Refuse, &mut watch).unwrap();

    let mut ends = Vec::new();
    for pair in seen.windows(2) {
        if pair[1].done < pair[0].done || pair[1].stage != pair[0].stage {
            ends.push(pair[0]);
        }
    }
    ends.push(seen[seen.len() - 1]);
    let at = |stage, total| Progress { stage, done: total, total };
    assert_eq!(
        ends,
        [
            at(Stage::Hash, report.source_bytes),
            at(Stage::Copy, report.out_bytes),
            at(Stage::Verify, report.expert_bytes),
            at(Stage::Copy, restored.out_bytes),
        ]
    );
}
