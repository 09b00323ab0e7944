//! Conversations in files: `{"messages": [{"role": "user", "content": "…"}, …]}`.

use crate::conversation::Message;
use crate::failure::Failure;
use crate::output::OutputFile;
use crate::text_input;
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::path::Path;

#[derive(Deserialize, Serialize)]
struct Saved {
    messages: Vec<Message>,
}

/// Writes a conversation.
pub fn save(path: &Path, messages: &[Message]) -> Result<(), Failure> {
    let saved = Saved { messages: messages.to_vec() };
    let mut json = serde_json::to_vec_pretty(&saved).map_err(|e| Failure::of(&e))?;
    json.push(b'\n');
    let mut file = OutputFile::create(path)?;
    file.write_all(&json).map_err(|e| Failure::file("write", path, &e))?;
    file.finish()
}

/// Reads a conversation that [`save`] wrote, or a bare list of messages.
pub fn load(path: &Path) -> Result<Vec<Message>, Failure> {
    let bytes = text_input::read(path)?;
    let parsed = match bytes.trim_ascii_start().first() {
        Some(b'[') => serde_json::from_slice(&bytes),
        _ => serde_json::from_slice(&bytes).map(|saved: Saved| saved.messages),
    };
    parsed
        .map_err(|e| Failure::new(format_args!("`{}` is not a saved conversation", path.display())).cause(&e))
}
