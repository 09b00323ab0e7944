//! `bench kernels`: single operations against measured ceilings of the machine, in the same run and on the same threads.
//!
//! What is isolated: one operation at a time, its inputs ready. Times are the best of several passes: what disturbs makes
//! nothing faster. Every operation has a checksum of its first pass, which must be equal on all instruction sets.

mod ceiling;
mod operations;
mod products;

use super::record::{self, Archive, Started};
use super::{BenchError, argument};
use crate::peer::archive;
use crate::peer::table::columns;
use ceiling::Ceiling;
use esker_kernels::Pool;
use esker_kernels::isa::{self, Isa};
use esker_quant::GgmlType;
use operations::Operation;
use products::Product;
use serde::{Deserialize, Serialize};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Written into every archive.
pub(crate) const FORMAT: &str = "esker-bench-kernels/1";

/// Arguments of `bench kernels`.
#[derive(clap::Args)]
pub(crate) struct KernelsArguments {
    /// Weight types; by default all that models have.
    #[arg(value_name = "TYPE")]
    types: Vec<String>,
    /// Small sizes, each pass once: shows that everything runs and that checksums are equal.
    #[arg(long)]
    smoke: bool,
    /// Threads; by default as many as there are physical cores.
    #[arg(long, value_name = "N")]
    threads: Option<usize>,
    /// One instruction set only (avx512, avxvnni, avx2, neon, scalar); by default all that this machine has.
    #[arg(long, value_name = "NAME")]
    isa: Option<String>,
    /// Columns of the matrices.
    #[arg(long, value_name = "N,…", value_delimiter = ',', default_value = "2048")]
    cols: Vec<usize>,
    /// MiB of weights that a product with one token goes through.
    #[arg(long, value_name = "MIB", default_value_t = 256)]
    mib: usize,
    /// Where the archive goes; by default a new file in target/bench, none of a smoke run.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// What was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Raw {
    /// Sizes were small and passes few: times mean nothing.
    pub(crate) smoke: bool,
    /// GB/s (decimal) at which these threads read memory, the best of all products' readings.
    pub(crate) read_gb_s: f64,
    /// What the processor can do at most, by instruction set.
    pub(crate) ceilings: Vec<Ceiling>,
    /// Products with weights.
    pub(crate) products: Vec<Product>,
    /// Operations on floats.
    pub(crate) operations: Vec<Operation>,
}

/// Shares of the ceilings, one for each product.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Shares {
    /// One token: of the rate at which the same threads just read the same bytes.
    pub(crate) read: f64,
    /// Many tokens: of what the processor can do with numbers of the kind; `None` where that was not measured.
    pub(crate) compute: Option<f64>,
}

/// The archive.
pub(crate) type KernelsArchive = Archive<Raw, Vec<Shares>>;

/// Measures, prints, writes the archive; false if checksums differ.
///
/// # Errors
/// If arguments do not fit this machine.
pub(crate) fn run(arguments: &KernelsArguments) -> Result<bool, BenchError> {
    let started = Started::now();
    let path = match (&arguments.json, arguments.smoke) {
        (None, true) => None,
        (json, _) => {
            Some(record::archive_path(json.as_deref(), "kernels", Path::new(""), started.unix_time())?)
        }
    };
    let threads = arguments.threads.unwrap_or_else(esker_engine::default_threads).max(1);
    let raw = measure(arguments, threads)?;
    let summary = summarize(&raw);
    let archive = Archive { format: FORMAT.to_owned(), run: started.end(threads), raw, summary };
    print!("{}", table(&archive));
    if let Some(path) = path {
        archive::write(&path, &archive)?;
        println!("archive: {}", path.display());
    }
    let differing = differing(&archive.raw);
    for name in &differing {
        println!("CHECKSUMS DIFFER between instruction sets: {name}");
    }
    Ok(differing.is_empty())
}

fn measure(arguments: &KernelsArguments, threads: usize) -> Result<Raw, BenchError> {
    let isas = match &arguments.isa {
        Some(name) => vec![name.parse::<Isa>()?],
        None => Isa::available().collect(),
    };
    let types = types(&arguments.types)?;
    if let Some(&cols) = arguments.cols.iter().find(|&&n| n == 0 || n % 32 != 0) {
        return Err(argument("--cols", &cols, "multiples of 32"));
    }
    if arguments.mib == 0 {
        return Err(argument("--mib", &0, "at least 1"));
    }
    let pool = Pool::new(threads);
    let bench = Bench { pool: &pool, smoke: arguments.smoke, isas: &isas };
    let bytes = if arguments.smoke { 1 << 18 } else { arguments.mib << 20 };
    let ceilings = ceiling::compute(&bench)?;
    let mut products: Vec<Product> = Vec::new();
    for &cols in &arguments.cols {
        for ty in types.iter().filter(|ty| cols.is_multiple_of(ty.block_elems())) {
            products.extend(products::measure(&bench, *ty, cols, bytes)?);
        }
    }
    let operations = operations::measure(&bench)?;
    isa::force_isa(isas[0])?;
    let read_gb_s = products.iter().map(|product| product.read_gb_s).fold(0.0, f64::max);
    Ok(Raw { smoke: arguments.smoke, read_gb_s, ceilings, products, operations })
}

fn types(names: &[String]) -> Result<Vec<GgmlType>, BenchError> {
    use GgmlType as T;
    if names.is_empty() {
        let is_none = |ty: &T| matches!(ty, T::I8 | T::I16 | T::I32 | T::I64 | T::F64);
        return Ok(T::all().filter(|ty| !is_none(ty)).collect());
    }
    let parse = |name: &String| {
        GgmlType::from_name(name).ok_or_else(|| argument("TYPE", name, "a type of weights such as q4_K"))
    };
    names.iter().map(parse).collect()
}

/// How things are measured.
struct Bench<'a> {
    pool: &'a Pool,
    smoke: bool,
    isas: &'a [Isa],
}

impl Bench<'_> {
    /// Seconds of the fastest of several passes of each kind, in turns, so that all meet the same disturbances.
    fn best_of_each(&self, once: bool, passes: &mut [&mut dyn FnMut()]) -> Vec<f64> {
        let mut best = vec![f64::INFINITY; passes.len()];
        let begin = Instant::now();
        for i in 0..1000 {
            for (best, pass) in best.iter_mut().zip(passes.iter_mut()) {
                let begin = Instant::now();
                pass();
                *best = best.min(begin.elapsed().as_secs_f64());
            }
            if once || self.smoke || (i >= 4 && begin.elapsed() > Duration::from_millis(600)) {
                break;
            }
        }
        best
    }

    /// Seconds of the fastest of several passes; of one if `once` or in a smoke run.
    fn best(&self, once: bool, mut pass: impl FnMut()) -> f64 {
        let mut seconds = |n: u32| {
            let begin = Instant::now();
            (0..n).for_each(|_| pass());
            begin.elapsed().as_secs_f64() / f64::from(n)
        };
        let mut best = seconds(1);
        if once || self.smoke {
            return best;
        }
        // Short passes are timed together, or the clock would be part of them.
        let together = (1e-4 / best).clamp(1.0, 1000.0) as u32;
        let begin = Instant::now();
        for i in 0..1000 {
            best = best.min(seconds(together));
            if i >= 2 && begin.elapsed() > Duration::from_millis(300) {
                break;
            }
        }
        best
    }
}

/// A sum's bits, which are equal or not.
fn checksum(values: &[f32]) -> String {
    let sum: f64 = values.iter().map(|&v| f64::from(v)).sum();
    format!("{:016x}", sum.to_bits())
}

/// The tables' numbers: a pure function of what was measured.
pub(crate) fn summarize(raw: &Raw) -> Vec<Shares> {
    let shares = |product: &Product| {
        let ceiling = raw.ceilings.iter().find(|ceiling| ceiling.isa == product.isa);
        let most = ceiling.and_then(|c| if product.integers { c.int8_gop_s } else { c.fma_gflop_s });
        Shares {
            read: product.one_gb_s / product.read_gb_s,
            compute: most.map(|most| product.many_gflop_s / most),
        }
    };
    raw.products.iter().map(shares).collect()
}

/// What has several checksums.
fn differing(raw: &Raw) -> Vec<String> {
    let products = raw.products.iter().map(|p| (format!("{} of {} columns", p.ty, p.cols), &p.checksum));
    let operations = raw.operations.iter().map(|o| (format!("{} {}", o.name, o.size), &o.checksum));
    let mut seen: Vec<(String, &String)> = Vec::new();
    let mut differing = Vec::new();
    for (name, sum) in products.chain(operations) {
        match seen.iter().find(|(known, _)| *known == name) {
            Some((_, known)) if *known != sum => differing.push(name),
            Some(_) => {}
            None => seen.push((name, sum)),
        }
    }
    differing.dedup();
    differing
}

/// For people.
fn table(archive: &KernelsArchive) -> String {
    let Archive { run, raw, summary, .. } = archive;
    let number =
        |v: Option<f64>, digits: usize| v.map_or_else(|| "-".to_owned(), |v| format!("{v:.digits$}"));
    let mut ceilings = vec![["", "GFLOP/s f32", "GOP/s int8"].map(str::to_owned).to_vec()];
    ceilings.extend(raw.ceilings.iter().map(|ceiling| {
        vec![ceiling.isa.clone(), number(ceiling.fma_gflop_s, 1), number(ceiling.int8_gop_s, 1)]
    }));
    let head = [
        "type",
        "cols",
        "isa",
        "1 token GB/s",
        "read GB/s",
        "%",
        "cached GB/s",
        "64 tokens GFLOP/s",
        "% of most",
        "prepare us",
        "checksum",
    ];
    let mut products = vec![head.map(str::to_owned).to_vec()];
    products.extend(raw.products.iter().zip(summary).map(|(product, shares)| {
        vec![
            product.ty.clone(),
            product.cols.to_string(),
            product.isa.clone(),
            format!("{:.2}", product.one_gb_s),
            format!("{:.2}", product.read_gb_s),
            format!("{:.0}", shares.read * 100.0),
            format!("{:.2}", product.cached_gb_s),
            format!("{:.1}", product.many_gflop_s),
            number(shares.compute.map(|share| share * 100.0), 0),
            number(product.prepare_us, 1),
            product.checksum.clone(),
        ]
    }));
    let mut operations =
        vec![["operation", "size", "isa", "us", "GB/s", "checksum"].map(str::to_owned).to_vec()];
    operations.extend(raw.operations.iter().map(|operation| {
        vec![
            operation.name.clone(),
            operation.size.clone(),
            operation.isa.clone(),
            format!("{:.2}", operation.us),
            format!("{:.2}", operation.gb_s()),
            operation.checksum.clone(),
        ]
    }));
    format!(
        "{} threads; memory is read at {:.1} GB/s\n{}\n{}\n{}",
        run.threads,
        raw.read_gb_s,
        columns(&ceilings),
        columns(&products),
        columns(&operations)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        arguments: KernelsArguments,
    }

    fn parsed(line: &str) -> KernelsArguments {
        Line::try_parse_from(line.split_whitespace()).expect("a valid line").arguments
    }

    #[test]
    fn everything_runs_and_all_instruction_sets_agree() {
        let raw = measure(&parsed("kernels --smoke --cols 256"), 2).expect("measured");
        let ran: Vec<_> = Isa::available().map(Isa::name).collect();
        eprintln!("instruction sets that ran: {}", ran.join(", "));
        let n = types(&[]).expect("all types").len() * ran.len();
        assert_eq!(raw.products.len(), n, "all blocks have at most 256 elements");
        assert_eq!(differing(&raw), Vec::<String>::new());
        assert!(raw.products.iter().all(|p| p.one_gb_s > 0.0 && p.many_gflop_s > 0.0));
        assert!(raw.operations.iter().all(|o| o.us > 0.0) && raw.operations.len() >= 10 * ran.len());
        assert_eq!(summarize(&raw).len(), n);
    }

    #[test]
    fn a_difference_is_found() {
        let of = |isa: &str, sum: &str| Operation {
            name: "norm".into(),
            size: "8".into(),
            isa: isa.into(),
            us: 1.0,
            bytes: 8,
            checksum: sum.into(),
        };
        let raw = |sums: [&str; 3]| Raw {
            smoke: true,
            read_gb_s: 1.0,
            ceilings: vec![],
            products: vec![],
            operations: ["a", "b", "c"].into_iter().zip(sums).map(|(isa, sum)| of(isa, sum)).collect(),
        };
        assert_eq!(differing(&raw(["1", "1", "1"])), Vec::<String>::new());
        assert_eq!(differing(&raw(["1", "1", "2"])), ["norm 8"]);
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let refused = |line: &str| measure(&parsed(line), 1).expect_err(line).to_string();
        assert!(refused("kernels --smoke q4_9").contains("TYPE q4_9"));
        assert!(refused("kernels --smoke --cols 100 f32").contains("--cols 100"));
        assert!(refused("kernels --smoke --isa mmx f32").contains("mmx"));
    }
}
