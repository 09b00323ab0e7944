//! Options of what generates text, and the settings of a conversation by their names.

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use esker_engine::{GenerateOptions, Sampler, Sampling, SamplingError};
use std::hash::{BuildHasher, Hasher, RandomState};

/// How tokens are drawn, and when to stop. Defaults are those of [`Sampling`].
#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Sampling options")]
pub struct GenerationArgs {
    /// Temperature; 0 picks the likeliest token always
    #[arg(long = "temp", visible_alias = "temperature", value_name = "T", allow_negative_numbers = true)]
    #[arg(default_value_t = Sampling::default().temperature)]
    pub temperature: f32,
    /// Pick the likeliest token always: `--temp 0`
    #[arg(long, conflicts_with = "temperature")]
    pub greedy: bool,
    /// Keep the K likeliest tokens; 0 keeps all
    #[arg(long, value_name = "K", default_value_t = Sampling::default().top_k)]
    pub top_k: usize,
    /// Keep the likeliest tokens whose probabilities reach this sum; 1 keeps all
    #[arg(long, value_name = "P", allow_negative_numbers = true, default_value_t = Sampling::default().top_p)]
    pub top_p: f32,
    /// Drop tokens less likely than this share of the likeliest; 0 drops none
    #[arg(long, value_name = "P", allow_negative_numbers = true, default_value_t = Sampling::default().min_p)]
    pub min_p: f32,
    /// Keep the tokens of the most typical surprise up to this sum of probabilities; 1 keeps all
    #[arg(long, value_name = "P", allow_negative_numbers = true, default_value_t = Sampling::default().typical_p)]
    pub typical_p: f32,
    /// Divide the positive and multiply the negative logits of recent tokens by this; 1 changes none
    #[arg(long, value_name = "R", allow_negative_numbers = true)]
    #[arg(default_value_t = Sampling::default().repeat_penalty)]
    pub repeat_penalty: f32,
    /// Subtract this from the logits of recent tokens, once
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    #[arg(default_value_t = Sampling::default().presence_penalty)]
    pub presence_penalty: f32,
    /// Subtract this from the logits of recent tokens for each time that they occur
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    #[arg(default_value_t = Sampling::default().frequency_penalty)]
    pub frequency_penalty: f32,
    /// How many tokens are recent
    #[arg(long, value_name = "N", default_value_t = Sampling::default().penalty_last_n)]
    pub penalty_last_n: usize,
    /// Add X to the logit of a token; `-inf` forbids it. May be repeated
    #[arg(long, value_name = "ID=X", value_parser = logit_bias)]
    pub logit_bias: Vec<(u32, f32)>,
    /// Seed of the draw: the same seed, options and prompt give the same text [default: random]
    #[arg(long, value_name = "N")]
    pub seed: Option<u64>,
    /// Stop at most after N new tokens [default: when the model ends or the context is full]
    #[arg(short = 'n', long, value_name = "N")]
    pub max_tokens: Option<usize>,
    /// Stop before this text, which is not printed. May be repeated
    #[arg(long, value_name = "TEXT", value_parser = NonEmptyStringValueParser::new())]
    pub stop: Vec<String>,
    /// Go on when the model ends its text
    #[arg(long)]
    pub ignore_eos: bool,
    /// Show the control tokens that the model writes
    #[arg(long)]
    pub show_special: bool,
}

impl GenerationArgs {
    /// The engine's options, with a seed drawn if none was given.
    ///
    /// # Errors
    /// If a setting is out of range. Token ids of biases are checked when the vocabulary is known.
    pub fn options(&self) -> Result<GenerateOptions, SamplingError> {
        let sampling = Sampling {
            temperature: if self.greedy { 0.0 } else { self.temperature },
            top_k: self.top_k,
            top_p: self.top_p,
            min_p: self.min_p,
            typical_p: self.typical_p,
            repeat_penalty: self.repeat_penalty,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            penalty_last_n: self.penalty_last_n,
            logit_bias: self.logit_bias.clone(),
            seed: self.seed.unwrap_or_else(random_seed),
        };
        check(&sampling)?;
        Ok(GenerateOptions {
            max_tokens: self.max_tokens,
            sampling,
            stop: self.stop.clone(),
            ignore_eos: self.ignore_eos,
            show_special: self.show_special,
        })
    }
}

/// Checks the ranges that do not depend on a vocabulary.
fn check(sampling: &Sampling) -> Result<(), SamplingError> {
    Sampler::new(Sampling { logit_bias: Vec::new(), ..sampling.clone() }, 1).map(drop)
}

/// A seed below 2^32: short enough to be typed again, and exact in every JSON reader.
fn random_seed() -> u64 {
    // The standard library keys its hash maps from the system's random numbers.
    RandomState::new().build_hasher().finish() >> 32
}

fn logit_bias(arg: &str) -> Result<(u32, f32), String> {
    let parsed = arg.split_once('=').and_then(|(id, bias)| Some((id.parse().ok()?, bias.parse().ok()?)));
    match parsed {
        Some((id, bias)) if !f32::is_nan(bias) => Ok((id, bias)),
        _ => Err("expected a token id, `=` and a number, such as `198=-1.5`".to_owned()),
    }
}

/// The settings that can be changed during a conversation.
pub const SETTINGS: &[&str] = &[
    "temp",
    "top-k",
    "top-p",
    "min-p",
    "typical-p",
    "repeat-penalty",
    "presence-penalty",
    "frequency-penalty",
    "penalty-last-n",
    "seed",
    "max-tokens",
];

/// Names and values of [`SETTINGS`].
pub fn settings(options: &GenerateOptions) -> Vec<(&'static str, String)> {
    let s = &options.sampling;
    let value = |name: &str| match name {
        "temp" => s.temperature.to_string(),
        "top-k" => s.top_k.to_string(),
        "top-p" => s.top_p.to_string(),
        "min-p" => s.min_p.to_string(),
        "typical-p" => s.typical_p.to_string(),
        "repeat-penalty" => s.repeat_penalty.to_string(),
        "presence-penalty" => s.presence_penalty.to_string(),
        "frequency-penalty" => s.frequency_penalty.to_string(),
        "penalty-last-n" => s.penalty_last_n.to_string(),
        "seed" => s.seed.to_string(),
        "max-tokens" => options.max_tokens.map_or("none".to_owned(), |n| n.to_string()),
        _ => unreachable!("every name of SETTINGS has its line"),
    };
    SETTINGS.iter().map(|&name| (name, value(name))).collect()
}

/// Sets one of [`SETTINGS`]; nothing is changed if that is not possible.
///
/// # Errors
/// What is wrong with the name or the value.
pub fn set_value(options: &mut GenerateOptions, name: &str, value: &str) -> Result<(), String> {
    fn parse<T: std::str::FromStr>(name: &str, value: &str) -> Result<T, String> {
        value.parse().map_err(|_| format!("`{value}` is no value for `{name}`"))
    }
    let mut changed = options.clone();
    let s = &mut changed.sampling;
    match name {
        "temp" | "temperature" => s.temperature = parse(name, value)?,
        "top-k" => s.top_k = parse(name, value)?,
        "top-p" => s.top_p = parse(name, value)?,
        "min-p" => s.min_p = parse(name, value)?,
        "typical-p" => s.typical_p = parse(name, value)?,
        "repeat-penalty" => s.repeat_penalty = parse(name, value)?,
        "presence-penalty" => s.presence_penalty = parse(name, value)?,
        "frequency-penalty" => s.frequency_penalty = parse(name, value)?,
        "penalty-last-n" => s.penalty_last_n = parse(name, value)?,
        "seed" => s.seed = parse(name, value)?,
        "max-tokens" if value == "none" => changed.max_tokens = None,
        "max-tokens" => changed.max_tokens = Some(parse(name, value)?),
        _ => return Err(format!("there is no setting `{name}`, expected one of {}", SETTINGS.join(", "))),
    }
    check(&changed.sampling).map_err(|e| format!("`{name}` is {}, expected {}", e.value, e.expected))?;
    *options = changed;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn biases_have_an_id_and_a_number() {
        assert_eq!(logit_bias("15=+2.5"), Ok((15, 2.5)));
        assert_eq!(logit_bias("0=-inf"), Ok((0, f32::NEG_INFINITY)));
        for wrong in ["15", "=1", "15=", "-1=2", "a=1", "1=nan", "4294967296=1"] {
            assert!(logit_bias(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn every_setting_can_be_shown_and_set() {
        let mut options = GenerateOptions::default();
        for &name in SETTINGS {
            set_value(&mut options, name, "1").expect("1 is in every range");
        }
        assert!(settings(&options).iter().all(|(_, value)| value == "1"), "{:?}", settings(&options));
        set_value(&mut options, "max-tokens", "none").expect("no limit");
        assert_eq!(options.max_tokens, None);
    }

    #[test]
    fn a_wrong_setting_changes_nothing() {
        let mut options = GenerateOptions::default();
        let before = settings(&options);
        let error = |options: &mut _, name, value| set_value(options, name, value).expect_err("refused");
        assert_eq!(error(&mut options, "top-p", "1.5"), "`top-p` is 1.5, expected more than 0, at most 1");
        assert_eq!(error(&mut options, "top-k", "-1"), "`-1` is no value for `top-k`");
        assert!(
            error(&mut options, "topk", "1")
                .starts_with("there is no setting `topk`, expected one of temp, ")
        );
        assert_eq!(settings(&options), before);
    }

    #[test]
    fn random_seeds_are_short_and_differ() {
        let seeds: Vec<u64> = (0..8).map(|_| random_seed()).collect();
        assert!(seeds.iter().all(|&s| s < 1 << 32), "{seeds:?}");
        assert!(seeds.iter().any(|&s| s != seeds[0]), "{seeds:?}");
    }
}
