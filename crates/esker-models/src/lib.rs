//! Model architectures, one file each.
//!
//! A model here is weights and a forward pass. It does not know where its experts come from (trait [`ExpertStore`]), how
//! tokens become text, or how much memory there is. Start reading at [`qwen3moe`], the plainest; [`qwen4exp`] has
//! everything. An architecture registers with a line in [`Architecture`] and one in each `match` of [`Model`].
#![forbid(unsafe_code)]

pub mod blocks;
mod layers;
pub mod llama;
pub mod olmoe;
mod pass;
pub mod qwen3moe;
pub mod qwen3next;
pub mod qwen4exp;
mod state;
mod store;
mod tensors;
mod usage;

pub use blocks::moe::RoutingMoved;
pub use pass::{Output, Pass, Scratch, Segment};
pub use state::{LayerState, NgramState, SequenceState, StateBytes, StateOptions};
pub use store::{
    ExpertLayout, ExpertPart, ExpertStore, PartRole, RouteBias, StoreError, StoreLayout, TableId, TableLayout,
};
pub use tensors::{Fetch, LoadError, Purpose, Tensors};
pub use usage::ExpertUse;

use esker_gguf::Gguf;
use esker_ops::{HeadPairing, KvType, Rows};

/// The architectures that can be run, by `general.architecture`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    /// Llama and Mixtral.
    Llama,
    /// OLMoE.
    Olmoe,
    /// Qwen3-MoE.
    Qwen3Moe,
    /// Qwen3-Next.
    Qwen3Next,
    /// Qwen3.5-MoE.
    Qwen35Moe,
    /// Qwen3.8-Flash-Next.
    Qwen4Exp,
}

impl Architecture {
    /// Every architecture with its name in files.
    pub const ALL: &[(Architecture, &str)] = &[
        (Architecture::Llama, "llama"),
        (Architecture::Olmoe, "olmoe"),
        (Architecture::Qwen3Moe, "qwen3moe"),
        (Architecture::Qwen3Next, "qwen3next"),
        (Architecture::Qwen35Moe, "qwen35moe"),
        (Architecture::Qwen4Exp, "qwen4exp"),
    ];

    /// The architecture of a file.
    ///
    /// # Errors
    /// If it is none of these; the error lists them.
    pub fn of(gguf: &Gguf) -> Result<Architecture, LoadError> {
        let found = gguf.metadata.str("general.architecture")?;
        Self::ALL.iter().find(|(_, name)| *name == found).map(|(arch, _)| *arch).ok_or_else(|| {
            let known: Vec<&str> = Self::ALL.iter().map(|(_, name)| *name).collect();
            LoadError::UnknownArchitecture { found: found.to_owned(), known: known.join(", ") }
        })
    }
}

/// A model: everything but its routed experts and tables.
pub struct Model {
    arch: Arch,
    n_vocab: usize,
    n_layer: usize,
    notes: Vec<String>,
}

enum Arch {
    Llama(llama::Llama),
    Olmoe(olmoe::Olmoe),
    Qwen3Moe(qwen3moe::Qwen3Moe),
    Qwen3Next(qwen3next::Qwen3Next),
    Qwen4Exp(Box<qwen4exp::Qwen4Exp>),
}

/// Runs `$body` with `$model` bound to the architecture at hand.
macro_rules! each {
    ($arch:expr, $model:ident => $body:expr) => {
        match $arch {
            Arch::Llama($model) => $body,
            Arch::Olmoe($model) => $body,
            Arch::Qwen3Moe($model) => $body,
            Arch::Qwen3Next($model) => $body,
            Arch::Qwen4Exp($model) => $body,
        }
    };
}

impl Model {
    /// Builds the model of `gguf`, fetching dense tensors by `fetch`. Returns it with what a store has to hold.
    ///
    /// # Errors
    /// If the architecture is unknown, or a key or tensor is missing, misshapen or unexpected.
    pub fn load(gguf: &Gguf, fetch: &mut Fetch<'_>) -> Result<(Model, StoreLayout), LoadError> {
        let architecture = Architecture::of(gguf)?;
        let mut t = Tensors::new(gguf, fetch)?;
        let mut notes = Vec::new();
        let (arch, n_layer) = match architecture {
            Architecture::Llama => llama::Llama::load(&mut t, &mut notes).map(|(m, n)| (Arch::Llama(m), n)),
            Architecture::Olmoe => olmoe::Olmoe::load(&mut t, &mut notes).map(|(m, n)| (Arch::Olmoe(m), n)),
            Architecture::Qwen3Moe => {
                qwen3moe::Qwen3Moe::load(&mut t, &mut notes).map(|(m, n)| (Arch::Qwen3Moe(m), n))
            }
            Architecture::Qwen3Next => qwen3next::Qwen3Next::load(&mut t, HeadPairing::Grouped, &mut notes)
                .map(|(m, n)| (Arch::Qwen3Next(m), n)),
            Architecture::Qwen35Moe => qwen3next::Qwen3Next::load(&mut t, HeadPairing::Tiled, &mut notes)
                .map(|(m, n)| (Arch::Qwen3Next(m), n)),
            Architecture::Qwen4Exp => {
                qwen4exp::Qwen4Exp::load(&mut t, &mut notes).map(|(m, n)| (Arch::Qwen4Exp(Box::new(m)), n))
            }
        }?;
        let n_vocab = t.n_vocab()?;
        let layout = t.finish(n_layer)?;
        Ok((Model { arch, n_vocab, n_layer, notes }, layout))
    }

    /// Size of the vocabulary: token ids are below it, logits have this many.
    pub fn n_vocab(&self) -> usize {
        self.n_vocab
    }

    /// Layers that are run.
    pub fn n_layer(&self) -> usize {
        self.n_layer
    }

    /// What a user should know about this file: parts left unused, values that were corrected.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// A fresh sequence.
    pub fn new_state(&self, options: StateOptions) -> SequenceState {
        each!(&self.arch, model => model.new_state(options))
    }

    /// Memory of a sequence.
    pub fn state_bytes(&self, kv_type: KvType) -> StateBytes {
        each!(&self.arch, model => model.state_bytes(kv_type))
    }

    /// Runs the tokens of several sequences together and returns the logits that they ask for, `[.., n_vocab]`, in the
    /// order of the segments; `None` if none are asked for. `pass` was made for these segments.
    ///
    /// The logits of a token are a function of its sequence alone: cutting it into other passes, or sharing them with
    /// other sequences, changes no bit.
    ///
    /// # Errors
    /// If experts or rows cannot be read. The states are then unusable.
    ///
    /// # Panics
    /// If a segment has no token, one is not in the vocabulary, or they do not fit the state's capacity: sessions check.
    pub fn forward(
        &self,
        pass: &mut Pass<'_>,
        segments: &mut [Segment<'_>],
    ) -> Result<Option<Rows>, StoreError> {
        assert!(!segments.is_empty(), "a pass has segments");
        for Segment { tokens, state, .. } in segments.iter() {
            assert!(!tokens.is_empty(), "a segment has tokens");
            assert!(
                tokens.iter().all(|&t| (t as usize) < self.n_vocab),
                "token ids are checked by the session"
            );
            assert!(
                state.n_past + tokens.len() <= state.options.capacity,
                "the session checked that the tokens fit"
            );
        }
        each!(&self.arch, model => model.forward(pass, segments))
    }
}
