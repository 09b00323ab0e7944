//! The notations of tool calls, and finding a model's in its chat template.
//!
//! Source: the chat templates and prompt-format documents that the models' makers publish.

/// How a family of models writes tool calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ToolFormat {
    /// `<tool_call>{"name": …, "arguments": {…}}</tool_call>` (Hermes, Qwen 2.5 and 3).
    HermesJson,
    /// `<tool_call><function=…><parameter=…>…</parameter></function></tool_call>` (Qwen3-Coder, Qwen 3.5).
    QwenXml,
    /// `<tool_call>name<arg_key>…</arg_key><arg_value>…</arg_value></tool_call>` (GLM 4.5 and later).
    GlmXml,
    /// `[TOOL_CALLS] [{"name": …, "arguments": {…}}]` (Mistral until 2024).
    MistralArray,
    /// `[TOOL_CALLS]name[ARGS]{…}` (Mistral from 2025).
    MistralNamed,
    /// `{"name": …, "parameters": {…}}` as the whole answer, `<|python_tag|>` before it or not (Llama 3).
    LlamaJson,
    /// `<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>…`, the arguments as a code block (DeepSeek V3, R1).
    DeepSeekV3,
    /// `<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>…<｜tool▁sep｜>{…}` (DeepSeek V3.1).
    DeepSeekV31,
    /// `<|tool_calls_section_begin|><|tool_call_begin|>functions.name:0…` (Kimi K2).
    KimiK2,
    /// `<minimax:tool_call><invoke name="…"><parameter name="…">…` (MiniMax M2).
    MiniMaxXml,
    /// `<|tool_call|>[{"name": …, "arguments": {…}}]<|/tool_call|>` (Phi 4 mini; Granite 3 without the end).
    PhiJson,
    /// `<|START_ACTION|>[{"tool_name": …, "parameters": {…}}]<|END_ACTION|>` (Command R7B, Command A).
    CommandJson,
}

/// What an opening tag opens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Opening {
    /// A section of calls, and the tag that ends it.
    Section(Option<&'static str>),
    /// A call; its section's tag was left out.
    Call,
}

impl ToolFormat {
    /// The notation that a chat template teaches the model. `None` if the template does not speak of tools or the
    /// notation is not one of these.
    pub fn detect(template: &str) -> Option<ToolFormat> {
        // Templates write quotes inside strings with and without a backslash.
        let template = template.replace('\\', "");
        let has = |text: &str| template.contains(text);
        if !has("tools") && !has("tool_calls") {
            return None;
        }
        if has("<｜tool▁calls▁begin｜>") {
            return Some(if has("```json") { ToolFormat::DeepSeekV3 } else { ToolFormat::DeepSeekV31 });
        }
        if has("<|tool_calls_section_begin|>") {
            return Some(ToolFormat::KimiK2);
        }
        if has("<minimax:tool_call>") {
            return Some(ToolFormat::MiniMaxXml);
        }
        if has("<|START_ACTION|>") {
            return Some(ToolFormat::CommandJson);
        }
        if has("[TOOL_CALLS]") {
            return Some(if has("[ARGS]") { ToolFormat::MistralNamed } else { ToolFormat::MistralArray });
        }
        if has("<tool_call>") {
            return Some(if has("<arg_key>") {
                ToolFormat::GlmXml
            } else if has("<function=") && has("<parameter=") {
                ToolFormat::QwenXml
            } else {
                ToolFormat::HermesJson
            });
        }
        if has("<|tool_call|>") {
            return Some(ToolFormat::PhiJson);
        }
        if has("<|python_tag|>") || (has("<|start_header_id|>") && has("\"parameters\"")) {
            return Some(ToolFormat::LlamaJson);
        }
        None
    }

    /// The tokens that a parser must see although they may be control tokens: decode with
    /// [`StreamDecoder::keeping`](crate::StreamDecoder::keeping).
    pub fn markers(self) -> &'static [&'static str] {
        match self {
            ToolFormat::HermesJson | ToolFormat::QwenXml => &["<tool_call>", "</tool_call>"],
            ToolFormat::GlmXml => {
                &["<tool_call>", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"]
            }
            ToolFormat::MistralArray | ToolFormat::MistralNamed => &["[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"],
            ToolFormat::LlamaJson => &["<|python_tag|>"],
            ToolFormat::DeepSeekV3 | ToolFormat::DeepSeekV31 => &[
                "<｜tool▁calls▁begin｜>",
                "<｜tool▁call▁begin｜>",
                "<｜tool▁sep｜>",
                "<｜tool▁call▁end｜>",
                "<｜tool▁calls▁end｜>",
            ],
            ToolFormat::KimiK2 => &[
                "<|tool_calls_section_begin|>",
                "<|tool_call_begin|>",
                "<|tool_call_argument_begin|>",
                "<|tool_call_end|>",
                "<|tool_calls_section_end|>",
            ],
            ToolFormat::MiniMaxXml => &["<minimax:tool_call>", "</minimax:tool_call>"],
            ToolFormat::PhiJson => &["<|tool_call|>", "<|/tool_call|>"],
            ToolFormat::CommandJson => &["<|START_ACTION|>", "<|END_ACTION|>"],
        }
    }

    /// The tags that begin calls. Where there are none, or only some models write them, calls begin without.
    pub fn openers(self) -> impl Iterator<Item = &'static str> {
        self.openings().iter().map(|&(tag, _)| tag)
    }

    /// The tags that begin calls, and what they open.
    pub(super) fn openings(self) -> &'static [(&'static str, Opening)] {
        use Opening::{Call, Section};
        match self {
            ToolFormat::HermesJson | ToolFormat::QwenXml => {
                &[("<tool_call>", Section(Some("</tool_call>"))), ("<function=", Call)]
            }
            ToolFormat::GlmXml => &[("<tool_call>", Section(Some("</tool_call>")))],
            ToolFormat::MistralArray | ToolFormat::MistralNamed => &[("[TOOL_CALLS]", Section(None))],
            ToolFormat::LlamaJson => &[("<|python_tag|>", Section(None))],
            ToolFormat::DeepSeekV3 | ToolFormat::DeepSeekV31 => &[
                ("<｜tool▁calls▁begin｜>", Section(Some("<｜tool▁calls▁end｜>"))),
                ("<｜tool▁call▁begin｜>", Call),
            ],
            ToolFormat::KimiK2 => &[
                ("<|tool_calls_section_begin|>", Section(Some("<|tool_calls_section_end|>"))),
                ("<|tool_call_begin|>", Call),
            ],
            ToolFormat::MiniMaxXml => &[("<minimax:tool_call>", Section(Some("</minimax:tool_call>")))],
            ToolFormat::PhiJson => &[("<|tool_call|>", Section(Some("<|/tool_call|>")))],
            ToolFormat::CommandJson => &[("<|START_ACTION|>", Section(Some("<|END_ACTION|>")))],
        }
    }

    /// Calls are JSON objects and nothing else.
    pub(super) fn only_objects(self) -> bool {
        matches!(self, ToolFormat::LlamaJson | ToolFormat::PhiJson | ToolFormat::CommandJson)
    }
}
