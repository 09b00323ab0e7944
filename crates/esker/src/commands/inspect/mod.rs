//! `esker inspect`: what a GGUF file holds.

mod metadata;
mod packed;
mod role;
mod summary;
mod text;

use crate::cli::InspectArgs;
use crate::failure::Failure;
use crate::model;
use crate::output::Console;
use serde_json::{Map, Value, json};
use summary::Summary;

pub fn inspect(args: &InspectArgs, console: &Console) -> Result<(), Failure> {
    let path = model::resolve(console, args.model.as_deref())?;
    let gguf = model::open(&path)?;
    let unpacked = packed::model(&gguf).unwrap_or_else(|error| {
        console.warning(format_args!("the file is repacked, and damaged: {error}"));
        None
    });
    let summary = match unpacked {
        Some((model, packing)) => Summary { packing: Some(packing), ..Summary::new(&model, &path) },
        None => Summary::new(&gguf, &path),
    };
    let mut stdout = console.stdout();
    if !args.json {
        let mut out = text::summary(&summary);
        if args.metadata {
            out += &text::metadata(&gguf);
        }
        if args.tensors {
            out += &text::tensors(&gguf);
        }
        return stdout.print(&out);
    }
    let mut value = serde_json::to_value(&summary).map_err(|e| Failure::of(&e))?;
    if args.metadata {
        let pairs = gguf.metadata.iter().map(|(key, v)| (key.to_owned(), metadata::to_json(v)));
        value["metadata"] = Value::Object(pairs.collect::<Map<_, _>>());
    }
    if args.tensors {
        let tensors = gguf.tensors.iter().map(|t| {
            json!({
                "name": t.name,
                "type": t.ty.name(),
                "shape": t.shape,
                "bytes": t.size,
                "file": t.file,
                "offset": t.offset,
            })
        });
        value["tensors"] = tensors.collect();
    }
    stdout.json(&value)
}
