//! Memory plan, sessions, prefill and decode, sampling.
