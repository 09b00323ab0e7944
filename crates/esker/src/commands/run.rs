//! `esker run`: one completion or one answer.

use crate::cli::RunArgs;
use crate::conversation::{Conversation, Role, prompt_tokens};
use crate::failure::{Failure, INTERRUPTED};
use crate::generate::{Answer, finish_text, generate, speed};
use crate::model::Loaded;
use crate::output::{Console, units};
use crate::profile::ProfileReport;
use crate::statistics::{Statistics, Work};
use crate::text_input;
use esker_engine::{EngineOptions, Finish, Sampling};
use serde::Serialize;
use std::path::Path;
use std::process::ExitCode;

pub fn run(args: &RunArgs, console: &Console) -> Result<ExitCode, Failure> {
    let mut options = args.generation.options().map_err(|e| Failure::from(&e))?;
    let text = prompt_text(args, console)?;
    let mut model = Loaded::new(console, args.model.as_deref(), &args.engine, EngineOptions::default())?;
    if args.profile {
        model.engine.profile().turn_on();
    }
    let tokenizer = model.tokenizer(console)?;
    let prompt = if args.chat || args.template.any() {
        let mut conversation = Conversation::new(console, &tokenizer, &args.template)?;
        conversation.say(Role::User, text);
        options.stop.extend(conversation.stop_texts(&tokenizer));
        conversation.prompt(&tokenizer)?.tokens
    } else {
        prompt_tokens(&tokenizer, &text, args.special, true)?
    };
    console.detail(format_args!("prompt of {}, seed {}", units::tokens(prompt.len()), options.sampling.seed));

    let mut stdout = console.stdout();
    let mut session = model.engine.new_session();
    let answer = generate(console, &mut model, &mut session, &prompt, &options, |piece| {
        if args.json { Ok(()) } else { stdout.text(piece) }
    })?;
    let mut work = Work::default();
    work.add(&answer.generation.stats, session.tokens().len());
    let statistics = Statistics::new(&model.engine, work);
    let profile = args.profile.then(|| ProfileReport::new(model.engine.profile()));
    let table = args.stats.then(|| statistics.table(console.is_verbose()));
    if args.json {
        stdout.json(&Report::new(&model, &options.sampling, &answer, statistics, profile.as_ref()))?;
    } else {
        if !answer.text.ends_with('\n') {
            stdout.text("\n")?;
        }
        console.line(speed(&answer.generation.stats));
        console.detail(finish_text(answer.generation.finish));
    }
    if let Some(table) = table {
        console.table(&table);
    }
    if let Some(profile) = profile {
        console.table(&profile.table());
    }
    Ok(if answer.interrupted { ExitCode::from(INTERRUPTED) } else { ExitCode::SUCCESS })
}

/// The prompt from where the arguments say.
fn prompt_text(args: &RunArgs, console: &Console) -> Result<String, Failure> {
    let bytes = match (&args.prompt, &args.file) {
        (Some(text), _) => return Ok(text.clone()),
        (None, Some(path)) => text_input::read(path)?,
        (None, None) => text_input::read_piped_stdin()?.ok_or_else(|| {
            Failure::usage("there is no prompt").hint(
                "give one with `-p TEXT` or `--file FILE`, or talk with the model: `esker chat`".to_owned(),
            )
        })?,
    };
    let text = String::from_utf8(bytes).unwrap_or_else(|e| {
        console.warning("the prompt is not UTF-8; what could not be read is replaced by U+FFFD");
        String::from_utf8_lossy(e.as_bytes()).into_owned()
    });
    // The newline that editors and `echo` end a text with would be part of the prompt.
    let end = text.strip_suffix('\n').map(|text| text.strip_suffix('\r').unwrap_or(text).len());
    Ok(text[..end.unwrap_or(text.len())].to_owned())
}

/// What `--json` prints.
#[derive(Serialize)]
struct Report<'a> {
    text: &'a str,
    tokens: &'a [u32],
    finish: Finish,
    model: ModelReport<'a>,
    sampling: &'a Sampling,
    stats: Stats,
    #[serde(skip_serializing_if = "Option::is_none")]
    profile: Option<&'a ProfileReport>,
}

#[derive(Serialize)]
struct ModelReport<'a> {
    path: &'a Path,
    name: String,
    architecture: String,
}

#[derive(Serialize)]
struct Stats {
    prompt_tokens: usize,
    reused_tokens: usize,
    generated_tokens: usize,
    load_s: f64,
    prefill_s: f64,
    decode_s: f64,
    prefill_tokens_per_s: f64,
    decode_tokens_per_s: f64,
    threads: usize,
    context: usize,
    #[serde(flatten)]
    statistics: Statistics,
}

impl<'a> Report<'a> {
    fn new(
        model: &'a Loaded,
        sampling: &'a Sampling,
        answer: &'a Answer,
        statistics: Statistics,
        profile: Option<&'a ProfileReport>,
    ) -> Report<'a> {
        let stats = &answer.generation.stats;
        Report {
            text: &answer.text,
            tokens: &answer.generation.tokens,
            finish: answer.generation.finish,
            model: ModelReport { path: &model.path, name: model.name(), architecture: model.architecture() },
            sampling,
            stats: Stats {
                prompt_tokens: stats.prompt_tokens,
                reused_tokens: stats.reused_tokens,
                generated_tokens: stats.generated_tokens,
                load_s: model.load_time.as_secs_f64(),
                prefill_s: stats.prefill_time.as_secs_f64(),
                decode_s: stats.decode_time.as_secs_f64(),
                prefill_tokens_per_s: stats.prefill_tokens_per_s(),
                decode_tokens_per_s: stats.decode_tokens_per_s(),
                threads: model.engine.threads(),
                context: model.engine.context(),
                statistics,
            },
            profile,
        }
    }
}
