//! From a path to a model: what is mapped, what is read, and what can go wrong.

use crate::arena::slot_buffers;
use crate::cached::{CachedParts, CachedStore};
use crate::dense::DenseStore;
use crate::options::{DEFAULT_CONTEXT, EngineOptions, Memory, READS_MAX, SESSIONS_MAX};
use crate::plan::{PLAN_ALIGN, Plan, Sizes};
use crate::resident::ResidentStore;
use crate::sampler::SamplingError;
use crate::slots::{SlotLayout, slot_layouts};
use crate::tables::Tables;
use crate::vocabulary::{self, VocabularyError};
use esker_cache::{
    CacheConfig, ClassConfig, ClassId, ConfigError, ExpertCache, LayerConfig, PolicyConfig, ReadAheadConfig,
    Visibility,
};
use esker_disk::{
    Arena, ArenaError, Backend, Buffer, Disk, DiskOptions, FileId, MappedFile, Priority, Read, ReadId,
    Segment, StartError, WORKERS_MAX, aligned_span, memory, open_best, probe,
};
use esker_gguf::{Gguf, MetadataError, OpenError, TensorInfo};
use esker_models::{ExpertStore, LoadError, Model, Purpose, StoreError, StoreLayout};
use esker_ops::{Ctx, WeightBytes};
use esker_text::Tokenizer;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

/// Reads of experts in flight for a layer at which read-ahead for the next one begins.
const DEMAND_MAX: u16 = 2;

/// How long a disk is measured, once for a file.
const PROBE_SECONDS: f64 = 0.7;

/// A model cannot be loaded or run.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// The file cannot be read or is damaged.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The file's bytes cannot be mapped.
    #[error(transparent)]
    Map(#[from] esker_disk::MapError),
    /// The model cannot be built.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// A key is missing or has the wrong type.
    #[error(transparent)]
    Metadata(#[from] MetadataError),
    /// The file's vocabulary cannot be used.
    #[error("the file has no usable vocabulary: {cause}")]
    Vocabulary {
        /// Reason.
        cause: String,
    },
    /// A tensor that no machine can hold.
    #[error("a tensor of {bytes} bytes is larger than the address space")]
    TooLarge {
        /// Its size.
        bytes: u64,
    },
    /// The model does not fit.
    #[error(
        "a budget of {budget} bytes is too small: the smallest that works with these options is {smallest_budget} bytes \
         ({lines}, expert_arena at least {arena_min})"
    )]
    Budget {
        /// What was given.
        budget: u64,
        /// What would do.
        smallest_budget: u64,
        /// The fewest slots that work, bytes.
        arena_min: u64,
        /// The other lines of the plan.
        lines: String,
    },
    /// The budget is more than there is.
    #[error("a budget of {budget} bytes is more than the {available} bytes that this process can still have")]
    BudgetUnavailable {
        /// What was given.
        budget: u64,
        /// What the machine and its control groups leave, with what the process has already.
        available: u64,
    },
    /// The cache cannot be set up as asked.
    #[error(transparent)]
    Cache(#[from] ConfigError),
    /// Memory cannot be had.
    #[error(transparent)]
    Arena(#[from] ArenaError),
    /// Reading cannot begin.
    #[error(transparent)]
    Disk(#[from] StartError),
    /// A weight file cannot be opened for reading experts.
    #[error(transparent)]
    DiskOpen(#[from] esker_disk::OpenError),
    /// An option has a value that cannot be.
    #[error("option `{name}` is {value}, expected {expected}")]
    OptionRange {
        /// Name.
        name: &'static str,
        /// Value.
        value: String,
        /// What would do.
        expected: String,
    },
    /// A token id that the model does not have.
    #[error("token {token} is not in the vocabulary of {n_vocab} tokens")]
    TokenRange {
        /// The id.
        token: u32,
        /// Size of the vocabulary.
        n_vocab: usize,
    },
    /// More tokens than there is room for.
    #[error("{more} more token(s) do not fit a context of {capacity} that holds {used}")]
    ContextFull {
        /// Tokens in the session.
        used: usize,
        /// Tokens to be added.
        more: usize,
        /// Room in all.
        capacity: usize,
    },
    /// A pass over more sessions or tokens than were planned for.
    #[error(
        "a pass of {rows} token(s) of {sessions} session(s), expected at most {rows_most} of {sessions_most}: more were \
         not planned for"
    )]
    BatchTooLarge {
        /// Sessions that take part.
        sessions: usize,
        /// What is planned for.
        sessions_most: usize,
        /// Tokens of all of them.
        rows: usize,
        /// A chunk, or one for each session if that is more.
        rows_most: usize,
    },
    /// Nothing to continue.
    #[error("the prompt has no tokens, and the vocabulary names none to begin with")]
    EmptyPrompt,
    /// An earlier pass failed half-way.
    #[error("this session's last pass failed; begin a new one")]
    BrokenSession,
    /// A sampling setting is out of range.
    #[error(transparent)]
    Sampling(#[from] SamplingError),
    /// Weights could not be read during a pass.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Where the experts of a loaded model are.
pub(crate) enum Store {
    Resident(ResidentStore),
    Cached(Box<CachedStore>),
    Dense(Box<DenseStore>),
}

impl Store {
    pub(crate) fn as_dyn(&mut self) -> &mut dyn ExpertStore {
        match self {
            Store::Resident(store) => store,
            Store::Cached(store) => &mut **store,
            Store::Dense(store) => &mut **store,
        }
    }
}

/// What [`load`] hands to the engine.
pub(crate) struct Loaded {
    pub(crate) gguf: Gguf,
    pub(crate) tokenizer: Result<Arc<Tokenizer>, VocabularyError>,
    pub(crate) model: Model,
    pub(crate) store: Store,
    pub(crate) plan: Option<Plan>,
    pub(crate) context: usize,
    pub(crate) ctx: Ctx,
    pub(crate) notes: Vec<String>,
    pub(crate) memory_note: String,
}

/// Physical cores that this process may use.
pub fn default_threads() -> usize {
    let allowed = std::thread::available_parallelism().map_or(1, usize::from);
    num_cpus::get_physical().clamp(1, allowed)
}

/// What is decided before anything is allocated.
pub(crate) struct Decision {
    /// `None`: all in memory.
    laid_out: Option<LaidOut>,
    why: String,
}

/// A model inside a budget.
struct LaidOut {
    sizes: Sizes,
    plan: Plan,
    /// By class.
    n_slots: Vec<usize>,
}

/// Opens, plans, allocates, builds. `disk` is what experts are read with; `None` opens the best that the machine has.
pub(crate) fn load(
    path: &Path,
    options: &EngineOptions,
    disk: Option<Box<dyn Disk>>,
) -> Result<Loaded, EngineError> {
    memory::return_freed_memory();
    let gguf = Gguf::open(path)?;
    let tokenizer = vocabulary::tokenizer(&gguf).map(Arc::new);
    // The threads are part of the process whose footprint the plan begins with.
    let ctx = Ctx::new(options.threads.unwrap_or_else(default_threads));
    let threads = ctx.threads();
    let context = context(&gguf, options)?;
    check(options)?;
    let decision = decide(&gguf, options, context, threads)?;
    let mut memory_note = decision.why;
    let (model, store, plan) = match decision.laid_out {
        None => {
            let (model, store) = resident(&gguf)?;
            (model, Store::Resident(store), None)
        }
        Some(LaidOut { sizes, plan, n_slots }) => {
            let (model, store, disk) = laid_out(&gguf, options, &sizes, &n_slots, disk)?;
            memory_note.push_str("; ");
            memory_note.push_str(&disk);
            (model, store, Some(plan))
        }
    };
    let notes = model.notes().to_vec();
    Ok(Loaded { gguf, tokenizer, model, store, plan, context, ctx, notes, memory_note })
}

/// Options that no model can be run with.
fn check(options: &EngineOptions) -> Result<(), EngineError> {
    let refuse =
        |name, value: String, expected: String| Err(EngineError::OptionRange { name, value, expected });
    let (lambda, sessions) = (options.route_bias.lambda, options.sessions);
    if !(0.0..=10.0).contains(&lambda) {
        return refuse("route_bias.lambda", lambda.to_string(), "0 to 10".to_owned());
    }
    if !(1..=SESSIONS_MAX).contains(&sessions) {
        return refuse("sessions", sessions.to_string(), format!("1 to {SESSIONS_MAX}"));
    }
    if lambda > 0.0 && sessions > 1 {
        let expected = "1 with cache-aware routing: what is resident, and so the result, would depend on what other \
                        sessions do";
        return refuse("sessions", sessions.to_string(), expected.to_owned());
    }
    Ok(())
}

/// Chooses between all in memory and a budget, and lays the budget out.
pub(crate) fn decide(
    gguf: &Gguf,
    options: &EngineOptions,
    context: usize,
    threads: usize,
) -> Result<Decision, EngineError> {
    let all_in_memory = |why| Ok(Decision { laid_out: None, why });
    if options.memory == Memory::Resident {
        return all_in_memory("memory: all of the model, as asked for".into());
    }
    let available = memory::available();
    // Far from the limit nothing needs to be measured.
    let file = gguf.total_file_bytes();
    if let (Memory::Auto, Some(free)) = (options.memory, available.as_ref().map(|a| a.bytes))
        && context <= DEFAULT_CONTEXT
        && options.sessions == 1
        && file.saturating_mul(2).saturating_add(1 << 30).saturating_add(options.snapshot_bytes) < free
    {
        return all_in_memory(format!("memory: all of the model; {free} bytes are free"));
    }
    // Resident pages that are shared with other processes count in full: they may go away under us. Code that has not run
    // yet is going to.
    let measured =
        || memory::footprint().map_or(0, |f| f.rss) + memory::untouched_program_bytes().unwrap_or(0);
    let process = options.process_bytes.unwrap_or_else(measured);
    let measure = || Sizes::measure(gguf, options, context, threads);
    let (budget, sizes, why) = match (options.memory, available) {
        (Memory::Budget(budget), available) => {
            // What the process has already is part of its budget.
            if let Some(available) = available.map(|a| a.bytes + process)
                && budget > available
            {
                return Err(EngineError::BudgetUnavailable { budget, available });
            }
            (budget, measure()?, format!("memory: budget of {budget} bytes as asked for"))
        }
        (_, Some(available)) => {
            let reserve = (available.machine_total_bytes / 10).min(2 << 30).min(available.bytes / 4);
            let budget = available.bytes + process - reserve;
            let sizes = measure()?;
            let all = process + file + sizes.beside_weights();
            if all <= budget {
                return all_in_memory(format!(
                    "memory: all of the model; {all} bytes of {budget} that it may take"
                ));
            }
            let why =
                format!("memory: budget of {budget} bytes, what is free less a reserve of {reserve} bytes");
            (budget, sizes, why)
        }
        (_, None) => {
            return all_in_memory("memory: all of the model; this system does not say what is free".into());
        }
    };
    let (plan, n_slots) = sizes.plan(budget, process, context, options.chunk.clamp(1, context))?;
    Ok(Decision { laid_out: Some(LaidOut { sizes, plan, n_slots }), why })
}

/// What `esker plan` shows.
#[derive(Clone, Debug)]
pub struct PlanReport {
    /// The layout; `None` if the model would be all in memory, mapped from its file.
    pub plan: Option<Plan>,
    /// Why this budget.
    pub why: String,
    /// Bytes of the model's files.
    pub file_bytes: u64,
    /// Context length that is planned for, tokens.
    pub context: usize,
}

/// Plans the model at `path` without loading it.
///
/// # Errors
/// As loading would, [`EngineError::Budget`] above all.
pub fn plan(path: &Path, options: &EngineOptions) -> Result<PlanReport, EngineError> {
    memory::return_freed_memory();
    let gguf = Gguf::open(path)?;
    let tokenizer = vocabulary::tokenizer(&gguf);
    let ctx = Ctx::new(options.threads.unwrap_or_else(default_threads));
    let context = context(&gguf, options)?;
    check(options)?;
    let decision = decide(&gguf, options, context, ctx.threads())?;
    drop((tokenizer, ctx)); // they are part of the process while its footprint is measured
    let plan = decision.laid_out.map(|laid_out| laid_out.plan);
    Ok(PlanReport { plan, why: decision.why, file_bytes: gguf.total_file_bytes(), context })
}

/// Maps experts and tables, and reads dense weights into memory of their own: they are used for every token, and huge
/// pages make that a good deal faster than the pages of a mapped file.
fn resident(gguf: &Gguf) -> Result<(Model, ResidentStore), EngineError> {
    let files = gguf
        .files
        .iter()
        .map(|path| MappedFile::open(path).map(|file| Arc::new(Mapped(file))))
        .collect::<Result<Vec<_>, _>>()?;
    let mut kept = Vec::new();
    Model::load(gguf, &mut |tensor: &TensorInfo, purpose| {
        if purpose == Purpose::Kept {
            kept.push(tensor.clone());
        }
        mapped(&files, tensor)
    })?;
    kept.sort_by(|a, b| a.name.cmp(&b.name));
    kept.dedup_by(|a, b| a.name == b.name);
    // Through the page cache, which has the file if it was used a short while ago.
    let options = DiskOptions { backend: Backend::Pool, direct: false, reads_max: 64, workers: 4 };
    let mut disk = open_best(options)?;
    let on_disk = gguf.files.iter().map(|path| disk.open(path)).collect::<Result<Vec<_>, _>>()?;
    let dense = read_dense(&mut *disk, &on_disk, &kept)?;
    let mut fetch = |tensor: &TensorInfo, _: Purpose| match dense.get(&tensor.name) {
        Some(bytes) => Ok(bytes.clone()),
        None => mapped(&files, tensor),
    };
    let (model, layout) = Model::load(gguf, &mut fetch)?;
    let store = ResidentStore::new(layout, &mut fetch)
        .map_err(|cause| LoadError::Read { name: "experts".into(), cause })?;
    Ok((model, store))
}

/// A mapped file that weights can own a share of.
struct Mapped(MappedFile);

impl AsRef<[u8]> for Mapped {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// A tensor's bytes in the mapped files.
fn mapped(files: &[Arc<Mapped>], tensor: &TensorInfo) -> Result<WeightBytes, String> {
    let file = &files[tensor.file];
    let range = usize::try_from(tensor.offset).ok().zip(usize::try_from(tensor.size).ok());
    match range.and_then(|(start, len)| Some(start..start.checked_add(len)?)) {
        Some(range) if range.end <= file.0.len() => Ok(WeightBytes::new(file.clone(), range)),
        _ => Err("the file has become shorter since its directory was read".to_owned()),
    }
}

/// Reads dense weights into memory of their own and lays out the arena. Also says how the disk is read.
fn laid_out(
    gguf: &Gguf,
    options: &EngineOptions,
    sizes: &Sizes,
    n_slots: &[usize],
    disk: Option<Box<dyn Disk>>,
) -> Result<(Model, Store, String), EngineError> {
    let (depth, depth_note) = disk_depth(gguf, options, sizes, n_slots);
    let reads_max = reads_max(depth);
    let reads = usize::from(reads_max);
    // Threads find the disk's next transfer when one is done. io_uring would need this thread for that, which
    // computes: measured on two cores, threads decode 8 % faster.
    let backend = match options.backend {
        Backend::Auto => Backend::Pool,
        asked_for => asked_for,
    };
    let disk_options = DiskOptions {
        backend,
        direct: options.direct,
        reads_max: reads + crate::tables::READS,
        workers: usize::from(depth).clamp(1, WORKERS_MAX),
    };
    let mut disk = match disk {
        Some(disk) => disk,
        None => open_best(disk_options)?,
    };
    let files = gguf.files.iter().map(|path| disk.open(path)).collect::<Result<Vec<_>, _>>()?;
    let aligns: Vec<usize> = files.iter().map(|&file| disk.alignment(file)).collect();
    if let Some(align) = aligns.iter().find(|&&align| align > PLAN_ALIGN) {
        let expected = format!("false where a disk asks for an alignment of {align}, more than {PLAN_ALIGN}");
        return Err(EngineError::OptionRange { name: "direct", value: "true".to_owned(), expected });
    }

    let dense = read_dense(&mut *disk, &files, &sizes.kept)?;
    let mut fetch = |tensor: &TensorInfo, purpose: Purpose| match purpose {
        Purpose::Kept => dense.get(&tensor.name).cloned().ok_or_else(|| "it was not planned for".to_owned()),
        Purpose::Decoded => {
            let mut bytes = vec![0; tensor.size as usize];
            disk.read_now(files[tensor.file], tensor.offset, &mut bytes).map_err(|e| e.to_string())?;
            Ok(WeightBytes::from(bytes))
        }
    };
    let (model, layout) = Model::load(gguf, &mut fetch)?;

    let (slots_of_layer, classes) = slot_layouts(&layout, PLAN_ALIGN, &aligns);
    let on_disk: Vec<_> =
        layout.tables.iter().filter(|t| !dense.contains_key(&t.tensor.name)).cloned().collect();
    let mut row_arena = Arena::new(Tables::arena_bytes(&on_disk, PLAN_ALIGN).max(PLAN_ALIGN))?;
    let kept = |name: &str| dense.get(name).cloned();
    let tables = Tables::on_disk(&layout.tables, &on_disk, &files, kept, &mut row_arena);

    let how = match files.iter().find_map(|&file| disk.buffered_reason(file)) {
        None => "direct".to_owned(),
        Some(why) => format!("through the page cache ({why})"),
    };
    let how = format!("disk: {}, {how}, {depth_note}", disk.description());
    if classes.is_empty() {
        return Ok((
            model,
            Store::Dense(Box::new(DenseStore::new(layout, disk, tables, gguf.files[0].clone()))),
            how,
        ));
    }
    let mut config = cache_config(&layout, &classes, n_slots, options, reads_max)?;
    let (buffers, refused) = slot_buffers(&mut config)?;
    let how = match refused {
        None => how,
        Some(error) => format!("{how}, slots stay divided among sizes of experts as planned: {error}"),
    };
    let cache = ExpertCache::new(config)?;
    let near_depth = match options.policy {
        PolicyConfig::NearPickEma { depth, .. } | PolicyConfig::InverseRouterEma { depth, .. } => {
            usize::from(depth)
        }
        _ => 0,
    };
    let depth = usize::from(cache.config().read_ahead.per_layer_max);
    let store = CachedStore::new(CachedParts {
        layout,
        slots_of_layer,
        cache,
        disk,
        files,
        paths: gguf.files.clone(),
        buffers,
        tables,
        route_bias: options.route_bias,
        depth,
        near_depth,
    });
    Ok((model, Store::Cached(Box::new(store)), how))
}

fn cache_config(
    layout: &StoreLayout,
    classes: &[crate::slots::SizeClass],
    n_slots: &[usize],
    options: &EngineOptions,
    reads_max: u16,
) -> Result<CacheConfig, EngineError> {
    let class_of =
        |il: usize| classes.iter().position(|c| c.layers.contains(&il)).expect("every layer has a class");
    let layers = layout.layers.iter().enumerate().filter_map(|(il, layer)| {
        let layer = layer.as_ref()?;
        Some(LayerConfig {
            n_expert: layer.n_expert as u32,
            top_k: layer.n_expert_used as u32,
            class: ClassId(class_of(il) as u8),
            expert_bytes: layer.expert_bytes(),
        })
    });
    let class_configs = classes
        .iter()
        .zip(n_slots)
        .map(|(class, &n)| ClassConfig { slot_bytes: class.slot_bytes as u64, n_slots: n as u32 })
        .collect();
    let mut config = CacheConfig::new(layers.collect(), class_configs, reads_max);
    config.policy = options.policy;
    config.rebalance = options.rebalance;
    // About what the disk has begun already when the last demand reads are handed to it.
    config.read_ahead.demand_max = DEMAND_MAX;
    if !options.read_ahead {
        config.read_ahead = ReadAheadConfig::OFF;
    }
    if options.route_bias.lambda > 0.0 {
        config.visibility = Visibility::Stepwise;
    }
    Ok(config)
}

/// Transfers at the disk at a time, and where the number comes from: what was asked for, what the disk was measured to be
/// best at with transfers of the size of an expert's largest part, or a default.
fn disk_depth(gguf: &Gguf, options: &EngineOptions, sizes: &Sizes, n_slots: &[usize]) -> (u16, String) {
    if let Some(depth) = options.reads_max {
        return (depth, format!("{depth} transfers at a time as asked for"));
    }
    let longest = sizes.slots_of_layer.iter().flatten().filter_map(SlotLayout::longest_read).max();
    let (Some(folder), Some((bytes, file))) = (&options.probe_folder, longest) else {
        return (READS_MAX, format!("{READS_MAX} transfers at a time"));
    };
    // The arena is not there yet: what it will take can be used for this.
    let arena: usize = sizes.classes.iter().zip(n_slots).map(|(class, &n)| class.slot_bytes * n).sum();
    let memory = arena.min(probe::MEMORY_BYTES);
    match probe::probe_cached(&gguf.files[file], bytes, memory, PROBE_SECONDS, folder) {
        Ok(probed) => {
            // With fewer than three the disk would be idle between the end of one and the beginning of the next.
            let depth = u16::try_from(probed.result.best_depth).unwrap_or(u16::MAX).clamp(3, 64);
            (depth, format!("{depth} transfers at a time as measured"))
        }
        Err(error) => {
            (READS_MAX, format!("{READS_MAX} transfers at a time, since measuring failed: {error}"))
        }
    }
}

/// Reads of experts that the disk is handed at a time. More than it carries out at a time, so that it finds the next one
/// when one is done, and in order: experts that are read one after the other are computed while others are read; read all
/// at once they would be there all at once, with the disk idle while they are computed.
fn reads_max(depth: u16) -> u16 {
    depth.saturating_mul(2).clamp(8, 128)
}

/// Reads the dense tensors, many at a time, each into pages of its own.
fn read_dense(
    disk: &mut dyn Disk,
    files: &[FileId],
    tensors: &[TensorInfo],
) -> Result<HashMap<String, WeightBytes>, EngineError> {
    let mut dense = HashMap::with_capacity(tensors.len());
    let align_of = |disk: &dyn Disk, t: &TensorInfo| disk.alignment(files[t.file]);
    let span_bytes =
        |disk: &dyn Disk, t: &TensorInfo| aligned_span(t.offset, t.size as usize, align_of(disk, t)).len;
    let sizes: Vec<usize> = tensors.iter().map(|t| span_bytes(disk, t)).collect();
    if sizes.is_empty() {
        return Ok(dense);
    }
    let mut arena = Arena::new(Arena::bytes_for(sizes.iter().copied()))?;
    let _ = arena.advise_huge_pages();
    let mut waiting: Vec<(usize, Buffer)> =
        arena.carve(sizes.iter().copied()).into_iter().enumerate().collect();
    waiting.reverse();
    let mut done = Vec::new();
    let failed = |t: &TensorInfo, cause: String| LoadError::Read { name: t.name.clone(), cause };
    while dense.len() < tensors.len() {
        while let Some((i, buffer)) = waiting.pop() {
            let t = &tensors[i];
            let segment = Segment { file: files[t.file], offset: t.offset, len: t.size as usize, into: 0 };
            let read =
                Read { id: ReadId(i as u64), priority: Priority::Demand, buffer, segments: segment.into() };
            if let Err(full) = disk.submit(read) {
                waiting.push((i, full.0.buffer));
                break;
            }
        }
        disk.wait(&mut done).map_err(|e| failed(&tensors[0], e.to_string()))?;
        for completion in done.drain(..) {
            let t = &tensors[completion.id.0 as usize];
            completion.result.map_err(|e| failed(t, e.to_string()))?;
            let skip = aligned_span(t.offset, t.size as usize, align_of(disk, t)).skip;
            let bytes = WeightBytes::new(Arc::new(Held(completion.buffer)), skip..skip + t.size as usize);
            dense.insert(t.name.clone(), bytes);
        }
    }
    Ok(dense)
}

/// A buffer that weights own.
struct Held(Buffer);

impl AsRef<[u8]> for Held {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

/// The context asked for, or the default within what the model was trained for.
fn context(gguf: &Gguf, options: &EngineOptions) -> Result<usize, EngineError> {
    let arch = gguf.metadata.str("general.architecture")?;
    let trained =
        gguf.metadata.opt_u32(&format!("{arch}.context_length"))?.map_or(usize::MAX, |n| n as usize);
    let context = options.context.unwrap_or(DEFAULT_CONTEXT.min(trained).max(1));
    if context == 0 || context > 1 << 24 {
        let expected = "1 to 16777216 tokens".to_owned();
        return Err(EngineError::OptionRange { name: "context", value: context.to_string(), expected });
    }
    Ok(context)
}
