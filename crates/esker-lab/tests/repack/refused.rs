//! What is refused before anything is written.

use crate::common::{go_on, message, metadata, mixed, names, pack_to, spec, write};
use esker_gguf::TensorSpec;
use esker_lab::IfExists;
use esker_lab::repack::{pack, unpack, verify};
use esker_quant::GgmlType;

/// Packing a file of these tensors fails and leaves nothing.
#[track_caller]
fn refused(specs: Vec<TensorSpec>, expected: &str) {
    let dir = tempfile::tempdir().unwrap();
    let source = dir.path().join("m.gguf");
    write(&source, &metadata(), specs, 32);
    let error = pack_to(&source, &dir.path().join("p.gguf")).unwrap_err();
    assert_eq!(message(&error), expected.replace("SOURCE", &source.display().to_string()));
    assert_eq!(names(dir.path()), ["m.gguf"]);
}

#[test]
fn experts_that_cannot_be_packed() {
    let without = |name: &str| mixed().into_iter().filter(|s| s.name != name).collect::<Vec<_>>();
    let with = |name: &str, shape: &[u64]| {
        let mut specs = mixed();
        specs.iter_mut().find(|s| s.name == name).unwrap().shape = shape.to_vec();
        specs
    };
    refused(
        vec![spec("blk.0.ffn_up.weight", GgmlType::F32, &[5, 3])],
        "`SOURCE` has no routed experts (no tensor `blk.N.ffn_*_exps.weight`): there is nothing to repack",
    );
    refused(
        without("blk.1.ffn_gate_exps.weight"),
        "the experts of layer 1 cannot be packed: the parts are ffn_down_exps.weight, ffn_up_exps.weight, \
         expected gate, up and down, or gate_up and down",
    );
    refused(
        with("blk.1.ffn_up_exps.weight", &[64, 5, 4]),
        "tensor `blk.1.ffn_up_exps.weight` holds 4 experts, expected 5, as `blk.1.ffn_down_exps.weight` does",
    );
    refused(
        with("blk.2.ffn_down_exps.weight", &[3, 64]),
        "tensor `blk.2.ffn_down_exps.weight` has shape [3, 64], expected 3 dimensions, the last one counting experts",
    );
    refused(
        vec![
            spec("blk.0.ffn_gate_up_exps.weight", GgmlType::I8, &[1, 1, 65_537]),
            spec("blk.0.ffn_down_exps.weight", GgmlType::I8, &[1, 1, 65_537]),
        ],
        "the experts of layer 0 cannot be packed: there are 65537 experts, expected at most 65536",
    );
}

#[test]
fn files_that_are_the_wrong_way_round() {
    let dir = tempfile::tempdir().unwrap();
    let [source, packed, other] = ["m.gguf", "p.gguf", "o.gguf"].map(|n| dir.path().join(n));
    write(&source, &metadata(), mixed(), 32);
    pack_to(&source, &packed).unwrap();
    let not_packed = format!("`{}` is not repacked", source.display());
    assert_eq!(
        pack_to(&packed, &other).unwrap_err().to_string(),
        format!("`{}` is repacked already", packed.display())
    );
    assert_eq!(verify(&source, &mut go_on).unwrap_err().to_string(), not_packed);
    assert_eq!(unpack(&source, &other, IfExists::Refuse, &mut go_on).unwrap_err().to_string(), not_packed);
    assert_eq!(names(dir.path()), ["m.gguf", "p.gguf"]);
}

#[test]
fn existing_files_are_kept_unless_asked() {
    let dir = tempfile::tempdir().unwrap();
    let [source, packed, back] = ["m.gguf", "p.gguf", "b.gguf"].map(|n| dir.path().join(n));
    write(&source, &metadata(), mixed(), 32);
    std::fs::write(&packed, "theirs").unwrap();
    let error = pack_to(&source, &packed).unwrap_err();
    assert_eq!(error.to_string(), format!("`{}` exists", packed.display()));
    assert_eq!(std::fs::read(&packed).unwrap(), b"theirs");

    pack(&source, &packed, IfExists::Replace, &mut go_on).unwrap();
    std::fs::write(&back, "theirs").unwrap();
    assert!(unpack(&packed, &back, IfExists::Refuse, &mut go_on).is_err());
    assert_eq!(std::fs::read(&back).unwrap(), b"theirs");
    unpack(&packed, &back, IfExists::Replace, &mut go_on).unwrap();
    assert!(std::fs::read(&back).unwrap() == std::fs::read(&source).unwrap());

    for result in [
        pack(&source, &source, IfExists::Replace, &mut go_on).map(drop),
        unpack(&packed, &packed, IfExists::Replace, &mut go_on).map(drop),
    ] {
        assert!(result.unwrap_err().to_string().ends_with("is the file that is read"));
    }
}
