//! The summary for people.

use super::metadata::to_text;
use super::role::Role;
use super::summary::{Experts, Layer, Summary};
use crate::output::units::{bytes, count, percent};
use crate::output::{Align, HEADING, Table, escaped};
use esker_gguf::Gguf;
use esker_models::Architecture;
use std::fmt::Display;

pub fn summary(s: &Summary) -> String {
    let mut out = general(s);
    out += &section("Layers");
    out += &layers(&s.layers);
    if !s.outside.is_empty() {
        out += &section("Outside of layers");
        let mut table = Table::new([
            ("tensor", Align::Left),
            ("type", Align::Left),
            ("shape", Align::Left),
            ("size", Align::Right),
        ]);
        for t in &s.outside {
            table.row([t.name.clone(), t.ty.into(), shape(&t.shape), bytes(t.bytes)]);
        }
        out += &table.render();
    }
    out += &section("Types");
    let mut table = Table::new([
        ("type", Align::Left),
        ("tensors", Align::Right),
        ("parameters", Align::Right),
        ("size", Align::Right),
        ("share", Align::Right),
        ("bits/weight", Align::Right),
    ]);
    for t in &s.types {
        table.row([
            t.ty.into(),
            t.n_tensors.to_string(),
            count(t.n_parameters),
            bytes(t.bytes),
            percent(t.bytes, s.tensor_bytes),
            format!("{:.2}", t.bits_per_weight),
        ]);
    }
    out += &table.render();
    out += &section("Quantization mix");
    let mut table = Table::new([
        ("part", Align::Left),
        ("parameters", Align::Right),
        ("size", Align::Right),
        ("bits/weight", Align::Right),
        ("types by size", Align::Left),
    ]);
    for m in &s.mix {
        let types: Vec<String> =
            m.types.iter().map(|(ty, n)| format!("{ty} {}", percent(*n, m.bytes))).collect();
        table.row([
            m.role.name().into(),
            count(m.n_parameters),
            bytes(m.bytes),
            format!("{:.2}", m.bits_per_weight),
            types.join(", "),
        ]);
    }
    out + &table.render()
}

fn general(s: &Summary) -> String {
    let mut out = format!("{HEADING}{}{HEADING:#}\n", s.name);
    let mut line = |label: &str, text: String| out += &format!("  {label:<16}{text}\n");
    match &s.files[..] {
        [file] => line("file", file.path.clone()),
        files => {
            line("files", format!("{} of a split set, the first is {}", files.len(), files[0].path));
        }
    }
    let architecture = s.architecture.as_ref().map_or("none".to_owned(), |name| escaped(name, 64));
    match &s.unsupported_because {
        None => line("architecture", format!("{architecture}, supported")),
        Some(_) => {
            let names: Vec<&str> = Architecture::ALL.iter().map(|(_, name)| *name).collect();
            line("architecture", format!("{architecture}, not supported (supported: {})", names.join(", ")));
        }
    }
    line("parameters", format!("{} in {} tensors", count(s.n_parameters), s.n_tensors));
    line(
        "size",
        format!(
            "{}, {:.2} bits per weight, GGUF version {}",
            bytes(s.file_bytes),
            s.bits_per_weight,
            s.gguf_version
        ),
    );
    line("layers", s.n_layers.to_string());
    if let Some(width) = s.embedding_length {
        line("width", width.to_string());
    }
    if let Some(length) = s.context_length {
        line("context", format!("{length} tokens"));
    }
    if let Some(v) = &s.vocabulary {
        let kind = [&v.model, &v.pre].into_iter().flatten().map(|text| escaped(text, 64));
        let kind = kind.collect::<Vec<_>>().join("/");
        let template = if v.has_chat_template { "with" } else { "without" };
        line("vocabulary", format!("{} tokens ({kind}), {template} chat template", v.n_tokens));
    }
    if let Some(e) = &s.experts {
        for (label, text) in expert_lines(e) {
            line(label, text);
        }
    }
    if let Some(p) = &s.packing {
        let padding = bytes(p.padding_bytes);
        line("repacked", format!("experts one after the other, a read each; {padding} of padding"));
    }
    if let Some(d) = &s.drafts {
        let blocks: Vec<String> = d.blocks.iter().map(u32::to_string).collect();
        line("drafts (MTP)", format!("block {}, {}: recognised, not run", blocks.join(", "), bytes(d.bytes)));
    }
    out
}

fn expert_lines(e: &Experts) -> Vec<(&'static str, String)> {
    let counts = range(e.count_min, e.count_max, |n| n.to_string());
    let used = e.used.map_or(String::new(), |k| format!(", {k} used per token"));
    let mut lines = vec![
        ("experts", format!("{counts} in each of {} layers{used}", e.n_layers)),
        ("one expert", range(e.expert_bytes_min, e.expert_bytes_max, bytes)),
        ("all experts", bytes(e.total_bytes)),
        ("everything else", bytes(e.dense_bytes)),
    ];
    if let Some(n) = e.token_bytes {
        lines.push(("one token uses", format!("{} of experts", bytes(n))));
    }
    lines
}

fn range(min: u64, max: u64, show: impl Fn(u64) -> String) -> String {
    if min == max { show(min) } else { format!("{} to {}", show(min), show(max)) }
}

/// Columns of parts that no layer has are left out.
fn layers(layers: &[Layer]) -> String {
    let size = |layer: &Layer, role: Role| layer.bytes.get(&role).copied();
    let roles: Vec<Role> = Role::OF_LAYER
        .into_iter()
        .filter(|&role| layers.iter().any(|layer| size(layer, role).is_some()))
        .collect();
    let routed = layers.iter().any(|layer| layer.experts.is_some());
    let mut header = vec![("layer", Align::Right), ("mixes by", Align::Left)];
    header.extend(roles.iter().map(|role| (role.name(), Align::Right)));
    header.push(("total", Align::Right));
    if routed {
        header.extend([("one expert", Align::Right), ("expert types", Align::Left)]);
    }
    let mut table = Table::new(header);
    for layer in layers {
        let draft = if layer.draft { " (draft)" } else { "" };
        let mut row = vec![layer.index.to_string(), format!("{}{draft}", layer.mixer)];
        row.extend(roles.iter().map(|&role| size(layer, role).map_or("-".to_owned(), bytes)));
        row.push(bytes(layer.total_bytes));
        if routed {
            let (each, types) = layer.experts.as_ref().map_or(("-".to_owned(), String::new()), |e| {
                let short = |name: &str| name.trim_start_matches("ffn_").trim_end_matches("_exps").to_owned();
                let types = e.types.iter().map(|(name, ty)| format!("{} {ty}", short(name)));
                let types = types.collect::<Vec<_>>().join(", ");
                (format!("{} x {}", e.count, bytes(e.expert_bytes)), types)
            });
            row.extend([each, types]);
        }
        table.row(row);
    }
    table.render()
}

/// All keys and values.
pub fn metadata(gguf: &Gguf) -> String {
    let width = gguf.metadata.iter().map(|(key, _)| key.chars().count()).max().unwrap_or(0).min(60);
    let lines = gguf.metadata.iter().map(|(key, value)| format!("  {key:<width$}  {}\n", to_text(value)));
    section("Metadata") + &lines.collect::<String>()
}

/// All tensors.
pub fn tensors(gguf: &Gguf) -> String {
    let split = gguf.files.len() > 1;
    let mut header = vec![
        ("tensor", Align::Left),
        ("type", Align::Left),
        ("shape", Align::Left),
        ("size", Align::Right),
        ("offset", Align::Right),
    ];
    if split {
        header.push(("file", Align::Right));
    }
    let mut table = Table::new(header);
    for t in &gguf.tensors {
        let mut row =
            vec![t.name.clone(), t.ty.to_string(), shape(&t.shape), bytes(t.size), t.offset.to_string()];
        if split {
            row.push((t.file + 1).to_string());
        }
        table.row(row);
    }
    section("Tensors") + &table.render()
}

fn section(title: impl Display) -> String {
    format!("\n{HEADING}{title}{HEADING:#}\n")
}

/// Elements per dimension in the order of the file: the contiguous one first.
fn shape(shape: &[u64]) -> String {
    let dims: Vec<String> = shape.iter().map(u64::to_string).collect();
    format!("[{}]", dims.join(", "))
}
