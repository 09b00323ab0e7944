//! `esker detokenize`: token ids to text.

use crate::cli::DetokenizeArgs;
use crate::failure::Failure;
use crate::output::Console;
use crate::{model, text_input, token_ids};
use std::path::Path;

pub fn detokenize(args: &DetokenizeArgs, console: &Console) -> Result<(), Failure> {
    let (model, ids) = match args.model_and_ids.split_first() {
        // Every list of ids begins like this, and no sensible file name does.
        Some((first, ids)) if !first.starts_with(|c: char| c.is_ascii_digit() || c == '[') => {
            (Some(first), ids)
        }
        _ => (None, &args.model_and_ids[..]),
    };
    let listed = match ids {
        [] => text_input::read_piped_stdin()?.ok_or_else(|| {
            Failure::usage("there are no token ids")
                .hint("give them as arguments or on standard input".to_owned())
        })?,
        ids => ids.join(" ").into_bytes(),
    };
    let ids = token_ids::parse(&String::from_utf8_lossy(&listed)).map_err(Failure::new)?;
    let path = model::resolve(console, model.map(Path::new))?;
    let tokenizer = model::vocabulary(console, &path)?;
    if let Some((index, id)) = ids.iter().enumerate().find(|(_, id)| tokenizer.token_bytes(**id).is_none()) {
        let n_vocab = tokenizer.vocab_size();
        return Err(Failure::new(format_args!(
            "token {id} at position {index} is not in the vocabulary of {n_vocab} tokens"
        )));
    }
    let bytes = tokenizer.decode(&ids, !args.special);
    let mut stdout = console.stdout();
    if stdout.is_terminal() {
        let text = String::from_utf8_lossy(&bytes);
        stdout.text(&text)?;
        return if text.ends_with('\n') { Ok(()) } else { stdout.text("\n") };
    }
    stdout.bytes(&bytes)
}
