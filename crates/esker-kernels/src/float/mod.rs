//! Float operations on rows: norms, activations, rotary embedding, attention, recurrences.
