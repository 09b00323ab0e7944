//! Calls that own their lists, so that they can be kept and played again.

use esker_cache::{ClassId, Event, Phase, ReadId, SlotId};

#[derive(Clone, Debug, PartialEq)]
pub enum OwnedEvent {
    BeginStep(Phase),
    Want { layer: u16, experts: Vec<u16> },
    ReadDone { read: ReadId, ok: bool },
    Release { layer: u16, expert: u16 },
    ReadAhead { layer: u16, ranked: Vec<u16> },
    NearPicks { layer: u16, ranked: Vec<u16> },
    PromptCounts { layer: u16, n_tokens: u32, counts: Vec<(u16, u32)> },
    NextUse { layer: u16, expert: u16, when: u64 },
    Shrink { class: ClassId, n_slots: u32 },
    Grow { class: ClassId, n_slots: u32 },
    GivenBack { slot: SlotId },
    Abandon,
}

impl OwnedEvent {
    pub fn borrow(&self) -> Event<'_> {
        match *self {
            OwnedEvent::BeginStep(phase) => Event::BeginStep(phase),
            OwnedEvent::Want { layer, ref experts } => Event::Want { layer, experts },
            OwnedEvent::ReadDone { read, ok } => Event::ReadDone { read, ok },
            OwnedEvent::Release { layer, expert } => Event::Release { layer, expert },
            OwnedEvent::ReadAhead { layer, ref ranked } => Event::ReadAhead { layer, ranked },
            OwnedEvent::NearPicks { layer, ref ranked } => Event::NearPicks { layer, ranked },
            OwnedEvent::PromptCounts { layer, n_tokens, ref counts } => {
                Event::PromptCounts { layer, n_tokens, counts }
            }
            OwnedEvent::NextUse { layer, expert, when } => Event::NextUse { layer, expert, when },
            OwnedEvent::Shrink { class, n_slots } => Event::Shrink { class, n_slots },
            OwnedEvent::Grow { class, n_slots } => Event::Grow { class, n_slots },
            OwnedEvent::GivenBack { slot } => Event::GivenBack { slot },
            OwnedEvent::Abandon => Event::Abandon,
        }
    }
}
