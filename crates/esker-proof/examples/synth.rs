//! Writes a random-weight model and says how fast: `synth GEOMETRY RECIPE LAYERS OUT`.

use esker_proof::synth::{Geometry, Options, Recipe, plan_size, write};
use std::error::Error;
use std::ops::ControlFlow;
use std::path::Path;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [geometry, recipe, layers, out] = &args[..] else {
        return Err(format!(
            "usage: synth GEOMETRY RECIPE LAYERS OUT; geometries: {}",
            Geometry::NAMES.join(", ")
        )
        .into());
    };
    let geometry = Geometry::named(geometry).ok_or_else(|| format!("unknown geometry `{geometry}`"))?;
    let recipe = Recipe::from_name(recipe).ok_or_else(|| format!("unknown recipe `{recipe}`"))?;
    let options = Options { layers: Some(layers.parse()?), recipe, overwrite: true, ..Options::default() };
    println!("{:#?}", plan_size(&geometry, &options)?);
    let begin = Instant::now();
    let size = write(&geometry, &options, Path::new(out), &mut |_| ControlFlow::Continue(()))?;
    let seconds = begin.elapsed().as_secs_f64();
    println!("{:.2} s, {:.0} MB/s, on disk", seconds, size.file_bytes as f64 / seconds / 1e6);
    Ok(())
}
