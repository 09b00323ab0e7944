//! Which tokens end a generation. Files name one or two (`eos`, `eot`); models emit others, too.

use crate::special::SpecialTokens;
use crate::vocab::{TokenType, Vocab};

/// Ends of a turn or a text in published models, by the text of their control token.
const NAMES: &[&str] = &[
    "<|im_end|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|eot|>",
    "<|eom|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|calls|>",
    "<|flush|>",
    "<end_of_turn>",
    "<turn|>",
    "<|tool_response>",
    "<end_of_utterance>",
    "<eos>",
    "</s>",
    "<EOT>",
    "[EOT]",
    "[EOS]",
    "[e~[",
    "<|user|>",
    "<|observation|>",
    "<｜end▁of▁sentence｜>",
];

/// Names that also occur in text: only as control tokens do they end anything. The others do so if they are
/// user-defined, too, as some files have them.
const ALSO_TEXT: &[&str] = &["</s>", "<eos>", "<EOT>", "[EOT]", "[EOS]", "[e~["];

/// The tokens of [`NAMES`] that the vocabulary has as special tokens, and `ids`; sorted.
pub(crate) fn find<const N: usize>(
    vocab: &Vocab,
    special: &SpecialTokens,
    ids: [Option<u32>; N],
) -> Vec<u32> {
    let has = |name| special.get(name).is_some();
    let mut found: Vec<u32> = NAMES
        .iter()
        .filter(|&&name| match name {
            // Where a message ends in one of these, `<|end|>` only ends a part of it.
            "<|end|>" => !(has("<|return|>") && has("<|call|>") || has("<|flush|>") && has("<|calls|>")),
            "<|call|>" => has("<|return|>"),
            "<|calls|>" | "<|flush|>" => has("<|calls|>") && has("<|flush|>"),
            // Gemma 4 has `</s>` for the HTML tag.
            "</s>" => !has("<|tool_response>"),
            // GLM ends its turn by naming the next speaker; elsewhere these names only open turns.
            "<|user|>" | "<|observation|>" => has("<|observation|>") && has("[gMASK]"),
            _ => true,
        })
        .filter_map(|&name| {
            let id = special.get(name)?;
            let control = vocab.token_type(id) == Some(TokenType::Control);
            (control || !ALSO_TEXT.contains(&name)).then_some(id)
        })
        .chain(ids.into_iter().flatten())
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}
