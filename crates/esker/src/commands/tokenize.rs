//! `esker tokenize`: text to token ids.

use crate::cli::TokenizeArgs;
use crate::conversation::prompt_tokens;
use crate::failure::Failure;
use crate::model;
use crate::output::{Console, escaped};
use crate::text_input;
use serde_json::json;
use std::path::{Path, PathBuf};

pub fn tokenize(args: &TokenizeArgs, console: &Console) -> Result<(), Failure> {
    let (model, text) = match (&args.model, &args.text) {
        // A single argument can be either.
        (Some(one), None) if args.file.is_none() && !names_model(one) => {
            let text = one.to_str().ok_or_else(|| Failure::usage("TEXT is not UTF-8"))?;
            (None, Some(text.to_owned()))
        }
        (model, text) => (model.as_ref(), text.clone()),
    };
    let bytes = match (text, &args.file) {
        (Some(text), _) => text.into_bytes(),
        (None, Some(path)) => text_input::read(path)?,
        (None, None) => text_input::read_piped_stdin()?.ok_or_else(|| {
            Failure::usage("there is no text").hint("give it as TEXT or with `--file FILE`".to_owned())
        })?,
    };
    let text = String::from_utf8_lossy(&bytes);
    let path = model::resolve(console, model.map(PathBuf::as_path))?;
    let tokenizer = model::vocabulary(console, &path)?;
    if matches!(text, std::borrow::Cow::Owned(_)) {
        console.warning("the text is not UTF-8; what could not be read is replaced by U+FFFD");
    }
    let tokens = prompt_tokens(&tokenizer, &text, args.special, !args.no_bos)?;
    let mut stdout = console.stdout();
    if args.json {
        let piece = |&id: &u32| String::from_utf8_lossy(tokenizer.token_bytes(id).unwrap_or_default());
        let pieces: Vec<_> = tokens.iter().map(piece).collect();
        return stdout.json(&json!({ "tokens": tokens, "pieces": pieces, "count": tokens.len() }));
    }
    if args.pieces {
        let width = tokens.iter().max().map_or(1, |id| id.to_string().len());
        let line = |&id: &u32| {
            format!("{id:width$}  `{}`\n", visible(tokenizer.token_bytes(id).unwrap_or_default()))
        };
        return stdout.print(&tokens.iter().map(line).collect::<String>());
    }
    let ids: Vec<String> = tokens.iter().map(u32::to_string).collect();
    stdout.print(&(ids.join(" ") + "\n"))
}

fn names_model(argument: &Path) -> bool {
    argument.extension().is_some_and(|e| e.eq_ignore_ascii_case("gguf")) || argument.is_file()
}

/// The text of one token; if that is not whole characters, its bytes.
fn visible(bytes: &[u8]) -> String {
    str::from_utf8(bytes).map_or_else(|_| bytes.escape_ascii().to_string(), |text| escaped(text, usize::MAX))
}
