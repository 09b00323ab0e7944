//! Test support: golden arrays, tiny models, tolerances.
#![forbid(unsafe_code)]
