//! Tokenizers, streaming detokenization and chat templates.
#![forbid(unsafe_code)]
