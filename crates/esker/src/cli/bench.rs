//! Arguments of `esker bench`.

use clap::builder::PossibleValuesParser;
use clap::{Args, Subcommand, ValueEnum, value_parser};
use esker_proof::synth::{Geometry, Options, Recipe};
use std::path::PathBuf;

/// Write models of random weights, to measure speed with
///
/// Nothing is measured here: `esker run --stats` with such a model shows speed, memory and reads, and `esker plan` what
/// to expect.
#[derive(Args, Debug)]
#[command(subcommand_required = true, arg_required_else_help = true, disable_help_subcommand = true)]
pub struct BenchArgs {
    #[command(subcommand)]
    pub command: BenchCommand,
}

#[derive(Debug, Subcommand)]
pub enum BenchCommand {
    Synth(SynthArgs),
}

/// Write a model of random weights with the geometry of a real one
///
/// Speed, memory and disk traffic depend on shapes, types and sizes, and these are those of the real model: they can
/// be measured without its weights. The same geometry, options and seed give the same bytes on every machine.
#[derive(Args, Debug)]
#[command(after_long_help = AFTER_HELP)]
pub struct SynthArgs {
    /// The real model whose shapes it gets
    #[arg(value_parser = PossibleValuesParser::new(Geometry::NAMES), required_unless_present = "list")]
    pub geometry: Option<String>,
    /// GGUF file to write
    #[arg(required_unless_present = "list")]
    pub out: Option<PathBuf>,
    /// Show the geometries and recipes, with sizes, and write nothing
    #[arg(long, conflicts_with_all = ["geometry", "out", "layers", "seed", "ngram_rows", "force"])]
    pub list: bool,
    /// Only the first N layers, for a smaller file [default: all]
    #[arg(long, value_name = "N")]
    pub layers: Option<u32>,
    /// Which tensors have which types
    #[arg(long, value_name = "RECIPE", value_enum, default_value_t = QuantArg::Q4K)]
    pub quant: QuantArg,
    /// Another seed gives other weights, in a file of the same size
    #[arg(long, value_name = "N", default_value_t = Options::default().seed)]
    pub seed: u64,
    /// Rows of the n-gram table, about, where the model has one (`qwen4exp`); the released model has 320 million
    /// [default: 2 million]
    #[arg(long, value_name = "N", value_parser = value_parser!(u64).range(1..))]
    pub ngram_rows: Option<u64>,
    /// Put the result in the place of a file that exists
    #[arg(long)]
    pub force: bool,
    /// Print one JSON object on standard output; sizes are in bytes
    #[arg(long)]
    pub json: bool,
}

const AFTER_HELP: &str = "\
What it is not good for:
  The text means nothing. Routing is nearly uniform: a token has as many experts
  in common with the one before as chance has it. That is the worst case for
  a cache: a hit rate is about the share of experts that fit, while trained
  models reuse experts far more. Experts follow from a token's id nearly
  alone, so measure with `--temp 1`: greedy text repeats itself. Read-ahead
  guesses better than with real weights.

Examples:
  esker bench synth --list
  esker bench synth qwen3-30b-a3b synth.gguf --layers 8
  esker run synth.gguf --memory 2G -p x -n 200 --temp 1 --ignore-eos --stats";

/// A mix of types, as quantized releases have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum QuantArg {
    /// Experts Q4_K, down projections Q6_K; dense Q4_K, values and output Q6_K
    #[value(name = "q4_k")]
    Q4K,
    /// Experts Q2_0; everything else Q8_0
    #[value(name = "q2_0")]
    Q2_0,
    /// Experts IQ3_S, down projections IQ4_NL; dense Q5_K, embedding and tables IQ4_XS
    #[value(name = "iq3")]
    Iq3,
    /// Everything Q8_0
    #[value(name = "q8_0")]
    Q8_0,
    /// Everything F16
    #[value(name = "f16")]
    F16,
}

impl QuantArg {
    pub fn recipe(self) -> Recipe {
        match self {
            QuantArg::Q4K => Recipe::Q4K,
            QuantArg::Q2_0 => Recipe::Q2_0,
            QuantArg::Iq3 => Recipe::Iq3,
            QuantArg::Q8_0 => Recipe::Q8_0,
            QuantArg::F16 => Recipe::F16,
        }
    }

    /// Names and meanings of all.
    pub fn described() -> impl Iterator<Item = (String, String)> {
        let value = |quant: &QuantArg| {
            let value = quant.to_possible_value().expect("no variant is skipped");
            (value.get_name().to_owned(), value.get_help().map(ToString::to_string).unwrap_or_default())
        };
        QuantArg::value_variants().iter().map(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_recipe_is_offered_by_its_name() {
        let offered: Vec<String> = QuantArg::described().map(|(name, _)| name).collect();
        assert_eq!(offered, Recipe::ALL.map(|(_, name)| name));
        for quant in QuantArg::value_variants() {
            let value = quant.to_possible_value().expect("no variant is skipped");
            assert_eq!(quant.recipe().name(), value.get_name());
        }
    }

    #[test]
    fn the_default_number_of_rows_is_the_one_in_the_help() {
        assert_eq!(Options::default().ngram_rows, 2_000_000);
    }
}
