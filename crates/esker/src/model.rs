//! From the MODEL argument to a file, a vocabulary, an engine.

use crate::cli::EngineArgs;
use crate::failure::Failure;
use crate::output::{Console, Progress, escaped, units};
use esker_engine::{Engine, EngineOptions};
use esker_gguf::Gguf;
use esker_text::Tokenizer;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The demo model.
const DEMO: &str = "esker-moe-64m-small.gguf";

/// The file that MODEL names; without it, the demo model.
pub fn resolve(console: &Console, model: Option<&Path>) -> Result<PathBuf, Failure> {
    if let Some(path) = model {
        return Ok(path.to_owned());
    }
    let candidates = demo_candidates();
    let Some(path) = candidates.iter().find(|path| path.is_file()) else {
        return Err(Failure::usage("no MODEL was given, and the demo model was not found").hint(format!(
            "give the path of a GGUF file, or set `ESKER_MODELS` to the directory that has `{DEMO}`"
        )));
    };
    console.note(format_args!(
        "using the demo model `{}`: for trying and testing, it knows nothing",
        path.display()
    ));
    Ok(path.clone())
}

/// Where the demo model may be, in the order of the search.
fn demo_candidates() -> Vec<PathBuf> {
    let mut candidates = Vec::new();
    if let Some(directory) = std::env::var_os("ESKER_MODELS").filter(|d| !d.is_empty()) {
        candidates.push(Path::new(&directory).join(DEMO));
    }
    let relative = Path::new("models").join(DEMO);
    // From the current directory, so that what is named in messages is short.
    let depth = std::env::current_dir().map_or(0, |d| d.ancestors().count().saturating_sub(1));
    candidates.extend((0..=depth).map(|up| PathBuf::from_iter(vec![".."; up]).join(&relative)));
    if let Ok(program) = std::env::current_exe() {
        candidates.extend(program.ancestors().skip(1).map(|directory| directory.join(&relative)));
    }
    candidates.push(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(&relative));
    candidates
}

/// Metadata and tensor directory of a model.
pub fn open(path: &Path) -> Result<Gguf, Failure> {
    Gguf::open(path).map_err(|e| Failure::open(path, &e))
}

/// The vocabulary alone, without weights.
pub fn vocabulary(console: &Console, path: &Path) -> Result<Tokenizer, Failure> {
    let tokenizer = esker_engine::tokenizer(&open(path)?).map_err(|e| Failure::vocabulary(path, &e))?;
    warn_about(console, &tokenizer);
    Ok(tokenizer)
}

/// A loaded model and where it is from.
pub struct Loaded {
    pub engine: Engine,
    pub path: PathBuf,
    pub load_time: Duration,
}

impl Loaded {
    /// Loads the model that MODEL names.
    pub fn new(
        console: &Console,
        model: Option<&Path>,
        args: &EngineArgs,
        defaults: EngineOptions,
    ) -> Result<Loaded, Failure> {
        let path = resolve(console, model)?;
        let started = Instant::now();
        let engine = {
            let _spinner = Progress::spinner(console, "loading the model");
            Engine::load(&path, args.options(defaults)).map_err(|e| Failure::engine(&path, &e))?
        };
        let load_time = started.elapsed();
        for note in engine.notes() {
            console.note(note);
        }
        let loaded = Loaded { engine, path, load_time };
        console.detail(format_args!(
            "loaded {} ({}) in {}: {} threads, context of {} tokens",
            loaded.name(),
            loaded.architecture(),
            units::seconds(load_time),
            loaded.engine.threads(),
            loaded.engine.context(),
        ));
        console.detail(units::sentence(loaded.engine.memory_note()));
        if let Some(plan) = loaded.engine.plan() {
            let (total, budget) = (units::bytes(plan.total()), units::bytes(plan.budget));
            let share = 100.0 * plan.resident_share();
            console.detail(format_args!(
                "memory plan: {total} of {budget}, room for {share:.1} % of the experts"
            ));
            for line in &plan.lines {
                console.detail(format_args!("  {:>9}  {}", units::bytes(line.bytes), line.what));
            }
        }
        Ok(loaded)
    }

    /// The tokenizer, after its warnings.
    pub fn tokenizer(&self, console: &Console) -> Result<Arc<Tokenizer>, Failure> {
        let tokenizer = self.engine.tokenizer().map_err(|e| self.failure(&e))?;
        warn_about(console, &tokenizer);
        Ok(tokenizer)
    }

    /// An error of the engine, with where it is from.
    pub fn failure(&self, error: &esker_engine::EngineError) -> Failure {
        Failure::engine(&self.path, error)
    }

    /// `general.name`, or the name of the file.
    pub fn name(&self) -> String {
        name(self.engine.gguf(), &self.path)
    }

    /// `general.architecture`.
    pub fn architecture(&self) -> String {
        self.engine.gguf().architecture().map_or_else(|_| "unknown".to_owned(), |a| escaped(a, 64))
    }
}

/// `general.name`, or the name of the file.
pub fn name(gguf: &Gguf, path: &Path) -> String {
    match gguf.metadata.str("general.name") {
        Ok(name) if !name.trim().is_empty() => escaped(name, 80),
        _ => path.file_stem().unwrap_or_default().to_string_lossy().into_owned(),
    }
}

fn warn_about(console: &Console, tokenizer: &Tokenizer) {
    for warning in tokenizer.warnings() {
        console.warning(warning);
    }
}
