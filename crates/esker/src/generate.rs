//! One generation: text as it comes, progress of the prompt, Ctrl-C, speed.

use crate::failure::Failure;
use crate::interrupt::Listener;
use crate::model::Loaded;
use crate::output::{Console, Progress, units};
use esker_engine::{Event, Finish, GenerateOptions, Generation, GenerationStats, Session};
use std::ops::ControlFlow;

/// Prompts of this many new tokens get a progress bar.
const PROGRESS_TOKENS_MIN: usize = 256;

/// A finished generation.
pub struct Answer {
    /// All text, as it was given out.
    pub text: String,
    pub generation: Generation,
    /// Ended by Ctrl-C.
    pub interrupted: bool,
}

/// Generates from `prompt` and gives text to `show` as soon as it is certain.
///
/// # Errors
/// Those of the engine, and of `show`, which ends the generation.
pub fn generate(
    console: &Console,
    model: &mut Loaded,
    session: &mut Session,
    prompt: &[u32],
    options: &GenerateOptions,
    mut show: impl FnMut(&str) -> Result<(), Failure>,
) -> Result<Answer, Failure> {
    let context = model.engine.context();
    if prompt.len() >= context {
        let n = prompt.len();
        return Err(Failure::new(format_args!(
            "a prompt of {n} tokens leaves no room in a context of {context}"
        ))
        .hint("`--context N` makes room for more tokens".to_owned()));
    }
    let interrupt = Listener::new();
    let known = session.tokens().iter().zip(prompt).take_while(|(a, b)| a == b).count();
    let new = prompt.len() - known;
    let mut progress =
        (new >= PROGRESS_TOKENS_MIN).then(|| Progress::tokens(console, "reading the prompt", new));
    let mut text = String::new();
    let mut failed = None;
    let result = model.engine.generate(session, prompt, options, &mut |event| {
        match event {
            Event::Prefill { done, .. } => {
                if let Some(progress) = &progress {
                    progress.set(done as u64);
                }
            }
            Event::Text { text: piece, .. } => {
                progress = None;
                text.push_str(piece);
                if !piece.is_empty()
                    && let Err(failure) = show(piece)
                {
                    failed = Some(failure);
                    return ControlFlow::Break(());
                }
            }
        }
        if interrupt.requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    });
    drop(progress);
    let generation = result.map_err(|e| model.failure(&e))?;
    match failed {
        Some(failure) => Err(failure),
        None => {
            let interrupted = generation.finish == Finish::Cancelled && interrupt.requested();
            Ok(Answer { text, generation, interrupted })
        }
    }
}

/// Speed in one line.
pub fn speed(stats: &GenerationStats) -> String {
    let reused = match stats.reused_tokens {
        0 => String::new(),
        n => format!(" ({n} reused)"),
    };
    // The first token belongs to the prompt, so that one token has no speed.
    let rate = match stats.generated_tokens {
        0 | 1 => String::new(),
        _ => format!(", {}", units::tokens_per_s(stats.decode_tokens_per_s())),
    };
    format!(
        "prompt: {}{reused} in {}, {}; text: {} in {}{rate}",
        units::tokens(stats.prompt_tokens),
        units::seconds(stats.prefill_time),
        units::tokens_per_s(stats.prefill_tokens_per_s()),
        units::tokens(stats.generated_tokens),
        units::seconds(stats.decode_time),
    )
}

/// The end of a generation in words.
pub fn finish_text(finish: Finish) -> &'static str {
    match finish {
        Finish::EndOfText => "the model ended its text",
        Finish::StopString => "stopped at a stop text",
        Finish::MaxTokens => "stopped at `--max-tokens`",
        Finish::ContextFull => "the context is full",
        Finish::Cancelled => "interrupted",
    }
}
