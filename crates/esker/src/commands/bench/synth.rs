//! `esker bench synth`: models of random weights.

use crate::cli::{QuantArg, SynthArgs};
use crate::failure::Failure;
use crate::interrupt::Listener;
use crate::output::units::{bytes, count, seconds};
use crate::output::{Align, Console, HEADING, Progress, Stdout, Table};
use esker_proof::synth::{self, Geometry, Options, SizePlan, SynthError};
use serde_json::{Value, json};
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Instant;

pub fn synth(args: &SynthArgs, console: &Console) -> Result<(), Failure> {
    let (Some(name), Some(out)) = (&args.geometry, &args.out) else {
        return list(args, &mut console.stdout());
    };
    let geometry = Geometry::named(name).expect("the parser accepts only names of geometries");
    if args.ngram_rows.is_some() && geometry.ngram.is_none() {
        return Err(Failure::usage(format_args!(
            "`--ngram-rows` was given, but `{name}` has no n-gram table"
        )));
    }
    let options = Options {
        layers: args.layers,
        recipe: args.quant.recipe(),
        seed: args.seed,
        ngram_rows: args.ngram_rows.unwrap_or(Options::default().ngram_rows),
        overwrite: args.force,
    };
    let total = synth::plan_size(&geometry, &options).map_err(|e| failure(&e))?.file_bytes;
    console.detail(format_args!("writing {}", bytes(total)));
    let started = Instant::now();
    let size = {
        let interrupt = Listener::new();
        let bar = Progress::bytes(console, "writing", total);
        synth::write(&geometry, &options, out, &mut |progress| {
            bar.set(progress.done);
            if interrupt.requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
        .map_err(|e| failure(&e))?
    };
    let time = started.elapsed();
    let mut stdout = console.stdout();
    if args.json {
        let mut value = size_json(&size);
        value["geometry"] = name.as_str().into();
        value["quant"] = options.recipe.name().into();
        value["seed"] = options.seed.into();
        stdout.json(&value)?;
    } else {
        stdout.print(&text(out, name, &size))?;
    }
    let rate = size.file_bytes as f64 / time.as_secs_f64().max(f64::MIN_POSITIVE);
    console.line(format_args!("written in {}, {}/s", seconds(time), bytes(rate as u64)));
    console.note("routing is nearly uniform: cache hit rates are those of the worst case");
    Ok(())
}

fn text(out: &Path, name: &str, s: &SizePlan) -> String {
    let mut page = format!("{HEADING}{}: random weights, geometry of {name}{HEADING:#}\n", out.display());
    let mut line = |label: &str, text: String| page += &format!("  {label:<14}{text}\n");
    line("parameters", format!("{} in {} tensors, {} layers", count(s.n_weights), s.n_tensors, s.n_layers));
    line("size", format!("{}, {:.2} bits per weight", bytes(s.file_bytes), bits_per_weight(s)));
    line(
        "experts",
        format!("{} of {} each, {}", s.n_experts, bytes(s.one_expert_bytes), bytes(s.expert_bytes)),
    );
    line("tables", bytes(s.table_bytes));
    line("dense weights", bytes(s.dense_bytes));
    line("a token needs", format!("all dense weights, {} of experts", bytes(s.touched_expert_bytes)));
    let types: Vec<String> = s.by_type.iter().map(|(ty, n)| format!("{ty} {}", bytes(*n))).collect();
    line("types", types.join(", "));
    page
}

fn bits_per_weight(s: &SizePlan) -> f64 {
    let tensors = s.expert_bytes + s.table_bytes + s.dense_bytes;
    tensors as f64 * 8.0 / s.n_weights.max(1) as f64
}

fn size_json(s: &SizePlan) -> Value {
    json!({
        "file_bytes": s.file_bytes,
        "header_bytes": s.header_bytes,
        "n_tensors": s.n_tensors,
        "n_parameters": s.n_weights,
        "bits_per_weight": bits_per_weight(s),
        "n_layers": s.n_layers,
        "n_experts": s.n_experts,
        "one_expert_bytes": s.one_expert_bytes,
        "expert_bytes": s.expert_bytes,
        "experts_per_token_bytes": s.touched_expert_bytes,
        "table_bytes": s.table_bytes,
        "dense_bytes": s.dense_bytes,
        "types": s.by_type.iter().map(|(ty, n)| json!({ "type": ty.name(), "bytes": n })).collect::<Vec<_>>(),
    })
}

/// `--list`.
fn list(args: &SynthArgs, stdout: &mut Stdout) -> Result<(), Failure> {
    let options = Options { recipe: args.quant.recipe(), ..Options::default() };
    let geometries = Geometry::NAMES.map(|name| Geometry::named(name).expect("a name of the list"));
    let sizes: Result<Vec<_>, _> = geometries.iter().map(|g| synth::plan_size(g, &options)).collect();
    let sizes = sizes.map_err(|e| failure(&e))?;
    let quant = options.recipe.name();
    if args.json {
        let geometry = |(g, size): (&Geometry, &SizePlan)| {
            let mut value = size_json(size);
            value["geometry"] = g.name.into();
            value["architecture"] = g.family.architecture().into();
            value["n_experts_per_layer"] = g.experts.n_expert.into();
            value["n_experts_used"] = g.experts.n_expert_used.into();
            value
        };
        let geometries: Vec<Value> = geometries.iter().zip(&sizes).map(geometry).collect();
        let recipes: Vec<Value> =
            QuantArg::described().map(|(name, help)| json!({ "quant": name, "what": help })).collect();
        return stdout.json(&json!({ "quant": quant, "geometries": geometries, "recipes": recipes }));
    }
    let mut out = format!("{HEADING}Geometries, with `--quant {quant}`{HEADING:#}\n");
    let mut table = Table::new([
        ("name", Align::Left),
        ("architecture", Align::Left),
        ("layers", Align::Right),
        ("experts", Align::Right),
        ("used", Align::Right),
        ("file", Align::Right),
        ("one expert", Align::Right),
        ("a token's experts", Align::Right),
        ("dense", Align::Right),
    ]);
    for (g, size) in geometries.iter().zip(&sizes) {
        table.row([
            g.name.to_owned(),
            g.family.architecture().to_owned(),
            size.n_layers.to_string(),
            g.experts.n_expert.to_string(),
            g.experts.n_expert_used.to_string(),
            bytes(size.file_bytes),
            bytes(size.one_expert_bytes),
            bytes(size.touched_expert_bytes),
            bytes(size.dense_bytes),
        ]);
    }
    out += &table.render();
    out += &format!("\n{HEADING}Recipes{HEADING:#}\n");
    for (name, help) in QuantArg::described() {
        out += &format!("  {name:<6}{help}\n");
    }
    stdout.print(&out)
}

fn failure(error: &SynthError) -> Failure {
    match error {
        SynthError::Cancelled => Failure::interrupted(),
        SynthError::Value { field, found, expected } => {
            let option = match *field {
                "layers" => "`--layers`",
                "n-gram rows" => "`--ngram-rows`",
                other => other,
            };
            Failure::usage(format_args!("{option} is {found}, expected {expected}"))
        }
        SynthError::Exists { .. } => {
            Failure::of(error).hint("`--force` puts the result in its place".to_owned())
        }
        SynthError::NoSpace { path, needed, available } => {
            Failure::no_space(path, *needed, *available).hint("`--layers N` writes fewer layers".to_owned())
        }
        _ => Failure::of(error),
    }
}
