//! `peer smollm2`: a small trained llama model gives the same results on both sides.
//!
//! Compared are token ids of texts, rendered chat prompts, and greedy continuations of the same prompt ids, with keys and
//! values in f32 and llama.cpp's fused attention off. Along llama.cpp's continuation the log-probabilities of its
//! candidates are compared as well.
//!
//! Continuations are made twice. With the weights unpacked to f32 ([`super::unpack`] says why) they must be equal, token
//! for token. With the file as it is, each side rounds activations to 8 bits, and the sides must be no further apart than
//! Esker is from itself when only its keys and values are rounded to f16; where tokens part, the margin is shown, and
//! `--strict` makes that an error too.

use super::measure::side_command;
use super::protocol::{
    Candidate, Complete, Completion, Facts, Kv, Load, Loaded, Rendered, Request, Scores, Tokens,
};
use super::python::{self, Python};
use super::side::{Side, SideError, Who};
use super::table::columns;
use super::unpack;
use super::{CommonArguments, PeerError};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Candidates compared at each place.
const TOP: usize = 5;

/// With quantized weights: so many times as far apart as Esker is from itself the sides may be, on average.
const APART_MAX: f64 = 2.0;

/// Room for prompt and continuation.
const CONTEXT: usize = 1024;

/// Arguments of `peer smollm2`.
#[derive(clap::Args)]
pub(crate) struct Smollm2Arguments {
    #[command(flatten)]
    common: CommonArguments,
    /// Another GGUF file than the one that the package ships.
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,
    /// Tokens of each continuation.
    #[arg(long, value_name = "N", default_value_t = 48, value_parser = clap::value_parser!(u16).range(1..=512))]
    tokens: u16,
    /// Also demand equal tokens with the weights as they are in the file, rounding and all.
    #[arg(long)]
    strict: bool,
}

/// Texts whose ids are compared; whether control tokens in them are recognised.
const TEXTS: [(&str, bool); 18] = [
    ("Hello, world!", false),
    ("  two  spaces\tand a tab\n\n\nthree line ends ", false),
    ("I'll say we've seen that SHE'S here, don't you?", false),
    ("1234567890 3.14159 1,000,000 0x1f", false),
    ("def f(x):\n    return x ** 2  # square\n", false),
    ("日本語のテキスト、東京タワー。", false),
    ("Ünïcödé naïve café — “quotes” …", false),
    ("🙂 👩‍👩‍👧 🇩🇪", false),
    ("e\u{301} is not é", false),
    ("windows\r\nline ends\r\n", false),
    ("https://example.com/a?b=c&d=%20#e", false),
    ("مرحبا بالعالم हिन्दी ไทย", false),
    ("\u{feff}byte order mark and a\u{a0}hard space", false),
    ("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false),
    (" ", false),
    ("", false),
    ("<|im_start|>user\nhi<|im_end|>\n", false),
    ("<|im_start|>user\nhi<|im_end|>\n", true),
];

/// Prompts that are continued; whether they are a user's message to be put into the chat template.
const PROMPTS: [(&str, &str, bool); 3] = [
    ("prose", "The history of the bicycle begins with", false),
    ("chat", "Explain in two sentences why the sky is blue.", true),
    ("code", "def fibonacci(n):\n    \"\"\"Return the first n Fibonacci numbers as a list.\"\"\"\n", false),
];

/// Compares and prints; false if anything differs.
///
/// # Errors
/// If a side cannot be set up or fails.
pub(crate) fn run(arguments: &Smollm2Arguments) -> Result<bool, PeerError> {
    let python = arguments.common.python(&[python::SMOLLM2])?;
    let model = match &arguments.model {
        Some(model) => model.clone(),
        None => python.smollm2()?,
    };
    println!("model: {}", model.display());
    let n = usize::from(arguments.tokens);

    let mut sides = Sides::start(arguments, &python, &model)?;
    let texts = same_tokens(&mut sides.esker, &mut sides.llama)?;
    let prompts = same_prompts(&mut sides.esker, &mut sides.llama)?;
    // The same prompts for all: one side's ids, from the file as it is.
    let ids = prompt_ids(&mut sides.esker)?;
    println!("\nas the file is:");
    let packed = continuations(&mut sides, &ids, n)?;
    drop(sides);

    let unpacked = unpack::in_f32(&model, &super::folder())?;
    println!("\nwith weights in f32:");
    let exact = continuations(&mut Sides::start(arguments, &python, &unpacked)?, &ids, n)?;

    let as_it_is = packed.iter().all(|c| c.near_enough() && (c.difference.is_none() || !arguments.strict));
    let same = texts && prompts && as_it_is && exact.iter().all(|c| c.difference.is_none());
    println!("\n{}", if same { "no difference" } else { "DIFFERENT" });
    Ok(same)
}

/// The processes of one file.
struct Sides {
    esker: Side,
    /// Esker with keys and values in f16: what a small change in rounding does to this model.
    rounded: Side,
    llama: Side,
}

impl Sides {
    fn start(arguments: &Smollm2Arguments, python: &Python, model: &Path) -> Result<Sides, PeerError> {
        let side = |who, kv| -> Result<Side, PeerError> {
            let (program, words) = side_command(who, python);
            let mut command = Command::new(program);
            command.args(words);
            let mut side = Side::start(who, command, arguments.common.timeout())?;
            let load = Load {
                model: model.to_string_lossy().into_owned(),
                threads: arguments.common.threads(),
                context: CONTEXT,
                kv,
                flash_attention: false,
                isa: arguments.common.isa.clone(),
                memory: None,
                probe_folder: None,
            };
            let _: Loaded = side.ask(&Request::Load(load))?;
            let facts: Facts = side.ask(&Request::Facts)?;
            if kv == Kv::F32 {
                eprintln!("{}: {} ({})", who.name(), facts.version, facts.isa);
            }
            Ok(side)
        };
        Ok(Sides {
            esker: side(Who::Esker, Kv::F32)?,
            rounded: side(Who::Esker, Kv::F16)?,
            llama: side(Who::LlamaCpp, Kv::F32)?,
        })
    }
}

fn tokenize(side: &mut Side, text: &str, special: bool) -> Result<Vec<u32>, SideError> {
    let request = Request::Tokenize { text: text.to_owned(), special };
    side.ask::<Tokens>(&request).map(|t| t.tokens)
}

fn same_tokens(esker: &mut Side, llama: &mut Side) -> Result<bool, PeerError> {
    let mut different = 0;
    for (text, special) in TEXTS {
        let (ours, theirs) = (tokenize(esker, text, special)?, tokenize(llama, text, special)?);
        if ours != theirs {
            different += 1;
            let at = ours.iter().zip(&theirs).take_while(|(a, b)| a == b).count();
            println!("text {text:?} (control tokens: {special}) differs at token {at}:");
            println!("  Esker     {ours:?}\n  llama.cpp {theirs:?}");
        }
    }
    println!("tokenizer: {} of {} texts give the same ids", TEXTS.len() - different, TEXTS.len());
    Ok(different == 0)
}

fn same_prompts(esker: &mut Side, llama: &mut Side) -> Result<bool, PeerError> {
    let user = |text: &str| json!({"role": "user", "content": text});
    let conversations = [
        json!([user("Hi")]),
        json!([{"role": "system", "content": "Answer in French."}, user("Where is the Eiffel tower?")]),
        json!([user("1 + 1?"), {"role": "assistant", "content": "2 "}, user(" and twice that?\n")]),
        json!([user("日本語で <b>答えて</b> & \"quotes\" {{ braces }}")]),
    ];
    let (mut compared, mut same) = (0, 0);
    for messages in &conversations {
        let request = Request::Render { messages: messages.clone() };
        let (ours, theirs): (Rendered, Rendered) = (esker.ask(&request)?, llama.ask(&request)?);
        let Some(theirs) = theirs.prompt else { continue };
        compared += 1;
        if ours.prompt.as_deref() == Some(&*theirs) {
            same += 1;
        } else {
            println!(
                "conversation {messages} differs:\n  Esker     {:?}\n  llama.cpp {theirs:?}",
                ours.prompt
            );
        }
    }
    match compared {
        0 => println!("chat template: not compared, the binding does not render as llama.cpp does"),
        n => println!("chat template: {same} of {n} conversations give the same prompt"),
    }
    Ok(same == compared)
}

/// The ids of [`PROMPTS`], with their names.
fn prompt_ids(esker: &mut Side) -> Result<Vec<(&'static str, Vec<u32>)>, PeerError> {
    let mut all = Vec::new();
    for (name, text, is_chat) in PROMPTS {
        let text = if is_chat {
            let messages = json!([{"role": "user", "content": text}]);
            esker.ask::<Rendered>(&Request::Render { messages })?.prompt.unwrap_or_default()
        } else {
            text.to_owned()
        };
        all.push((name, tokenize(esker, &text, is_chat)?));
    }
    Ok(all)
}

/// One prompt, continued by both.
struct Continuation {
    difference: Option<Difference>,
    /// Esker's distance from llama.cpp.
    near: Nearness,
    /// Esker's distance from itself with keys and values in f16.
    rounded: f64,
}

impl Continuation {
    fn near_enough(&self) -> bool {
        self.near.mean <= APART_MAX * self.rounded
    }
}

/// Continues, compares and prints.
fn continuations(
    sides: &mut Sides,
    prompts: &[(&'static str, Vec<u32>)],
    n: usize,
) -> Result<Vec<Continuation>, PeerError> {
    let head =
        ["continuation", "same tokens", "same best", "least margin", "largest Δ", "mean Δ", "own Δ", ""];
    let mut rows = vec![head.map(str::to_owned).to_vec()];
    let (mut all, mut notes) = (Vec::new(), Vec::new());
    for (name, prompt) in prompts {
        let request = Request::Complete(Complete {
            prompt: prompt.clone(),
            n,
            top: TOP,
            ignore_eos: false,
            resume: false,
        });
        let (ours, theirs): (Completion, Completion) =
            (sides.esker.ask(&request)?, sides.llama.ask(&request)?);
        let score = Request::Score {
            prompt: prompt.clone(),
            continuation: theirs.tokens.clone(),
            wanted: theirs.top.iter().map(|row| row.iter().map(|c| c.id).collect()).collect(),
        };
        let (scores, rounded): (Scores, Scores) = (sides.esker.ask(&score)?, sides.rounded.ask(&score)?);
        let one = Continuation {
            difference: first_difference(&ours, &theirs),
            near: nearness(&theirs, &scores),
            rounded: distance(scores.logprobs.iter().flatten(), rounded.logprobs.iter().flatten()).1,
        };
        let of = theirs.tokens.len();
        let same = one.difference.as_ref().map_or(of, |d| d.at);
        rows.push(vec![
            (*name).to_owned(),
            format!("{same} of {of}"),
            format!("{} of {of}", one.near.same_best),
            format!("{:.4}", one.near.least_margin),
            format!("{:.6}", one.near.largest),
            format!("{:.6}", one.near.mean),
            format!("{:.6}", one.rounded),
            if one.difference.is_none() { "same".to_owned() } else { "parts".to_owned() },
        ]);
        notes.extend(one.difference.as_ref().map(|d| format!("{name}: {}", d.in_words())));
        all.push(one);
    }
    print!("{}", columns(&rows));
    notes.iter().for_each(|note| println!("{note}"));
    println!(
        "same best: places along llama.cpp's tokens where Esker prefers the same one. margin: llama.cpp's logits,"
    );
    println!(
        "best less second. Δ: log-probabilities of llama.cpp's {TOP} best candidates, Esker's less llama.cpp's, in"
    );
    println!("nats. own Δ: the mean of Esker's with keys and values in f16 less those in f32.");
    Ok(all)
}

/// Where two continuations part.
#[derive(Debug, PartialEq)]
struct Difference {
    /// Tokens before it that are the same.
    at: usize,
    /// What each side drew there; `None` if it had ended.
    esker: Option<u32>,
    llama: Option<u32>,
    /// Logit of the best less that of the second, on each side.
    esker_margin: Option<f64>,
    llama_margin: Option<f64>,
}

impl Difference {
    fn in_words(&self) -> String {
        let token = |t: Option<u32>| t.map_or_else(|| "nothing more".to_owned(), |t| format!("token {t}"));
        let margin = |m: Option<f64>| m.map_or_else(|| "-".to_owned(), |m| format!("{m:.4}"));
        format!(
            "after {} equal tokens Esker draws {} (margin {}), llama.cpp {} (margin {})",
            self.at,
            token(self.esker),
            margin(self.esker_margin),
            token(self.llama),
            margin(self.llama_margin),
        )
    }
}

fn first_difference(esker: &Completion, llama: &Completion) -> Option<Difference> {
    let at = esker.tokens.iter().zip(&llama.tokens).take_while(|(a, b)| a == b).count();
    let (ours, theirs) = (esker.tokens.get(at).copied(), llama.tokens.get(at).copied());
    if ours.is_none() && theirs.is_none() {
        return None;
    }
    let margin_at = |side: &Completion| margin(side.top.get(at)?);
    Some(Difference {
        at,
        esker: ours,
        llama: theirs,
        esker_margin: margin_at(esker),
        llama_margin: margin_at(llama),
    })
}

/// Differences of log-probabilities at one place are those of logits.
fn margin(candidates: &[Candidate]) -> Option<f64> {
    Some(candidates.first()?.logprob - candidates.get(1)?.logprob)
}

/// How near the sides are along llama.cpp's continuation.
#[derive(Debug, PartialEq)]
struct Nearness {
    same_best: usize,
    least_margin: f64,
    largest: f64,
    mean: f64,
}

fn nearness(llama: &Completion, scores: &Scores) -> Nearness {
    let same_best = llama.tokens.iter().zip(&scores.best).filter(|(a, b)| a == b).count();
    let least_margin = llama.top.iter().filter_map(|row| margin(row)).fold(f64::INFINITY, f64::min);
    let theirs: Vec<f64> = llama.top.iter().flatten().map(|c| c.logprob).collect();
    let (largest, mean) = distance(theirs.iter(), scores.logprobs.iter().flatten());
    Nearness { same_best, least_margin, largest, mean }
}

/// Largest and mean absolute difference.
fn distance<'a>(a: impl Iterator<Item = &'a f64>, b: impl Iterator<Item = &'a f64>) -> (f64, f64) {
    let apart: Vec<f64> = a.zip(b).map(|(a, b)| (a - b).abs()).collect();
    (apart.iter().copied().fold(0.0, f64::max), apart.iter().sum::<f64>() / apart.len().max(1) as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn completion(tokens: &[u32], margins: &[f64]) -> Completion {
        let row = |(&id, &m): (&u32, &f64)| {
            vec![Candidate { id, logprob: -0.5 }, Candidate { id: 99, logprob: -0.5 - m }]
        };
        Completion {
            tokens: tokens.to_vec(),
            prompt_n: 1,
            prompt_ms: 1.0,
            decode_ms: 1.0,
            top: tokens.iter().zip(margins).map(row).collect(),
        }
    }

    #[test]
    fn equal_continuations_have_no_difference() {
        let a = completion(&[1, 2, 3], &[1.0, 2.0, 3.0]);
        assert_eq!(first_difference(&a, &a), None);
    }

    #[test]
    fn the_first_difference_and_its_margins() {
        let ours = completion(&[1, 2, 3], &[1.0, 0.25, 3.0]);
        let theirs = completion(&[1, 7, 3], &[1.0, 0.5, 3.0]);
        let found = first_difference(&ours, &theirs).expect("a difference");
        assert_eq!((found.at, found.esker, found.llama), (1, Some(2), Some(7)));
        assert_eq!((found.esker_margin, found.llama_margin), (Some(0.25), Some(0.5)));
        assert!(found.in_words().contains("after 1 equal tokens Esker draws token 2 (margin 0.2500)"));
    }

    #[test]
    fn ending_early_is_a_difference() {
        let ours = completion(&[1], &[1.0]);
        let theirs = completion(&[1, 7], &[1.0, 0.5]);
        let found = first_difference(&ours, &theirs).expect("a difference");
        assert_eq!((found.at, found.esker, found.llama, found.esker_margin), (1, None, Some(7), None));
        assert!(found.in_words().contains("nothing more (margin -)"));
    }

    #[test]
    fn near_is_twice_of_what_rounding_does() {
        let of = |mean, rounded| Continuation {
            difference: None,
            near: Nearness { same_best: 1, least_margin: 1.0, largest: mean, mean },
            rounded,
        };
        assert!(of(0.19, 0.1).near_enough());
        assert!(!of(0.21, 0.1).near_enough());
        assert!(!of(f64::NAN, 0.1).near_enough());
    }

    #[test]
    fn nearness_along_a_continuation() {
        let llama = completion(&[1, 2], &[1.0, 0.5]);
        let scores = Scores { best: vec![1, 3], logprobs: vec![vec![-0.5, -1.5], vec![-0.75, -1.0]] };
        let expected = Nearness { same_best: 1, least_margin: 0.5, largest: 0.25, mean: 0.0625 };
        assert_eq!(nearness(&llama, &scores), expected);
    }
}
