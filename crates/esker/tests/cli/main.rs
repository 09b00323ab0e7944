//! The command line as a user meets it: the program is run, and what it prints is compared as a whole.
//!
//! `llama3.gguf` (dense, random weights, 512 tokens) is for what needs a model and no sense; what needs experts, a chat
//! template or a vocabulary of some size uses the demo model of the repository.

mod bench;
mod chat;
mod errors;
mod help;
mod inspect;
mod logits;
mod plan;
mod repack;
mod run;
mod serve;
mod shell;
mod stats;
mod support;
mod tokens;
