//! The expert cache as a pure state machine: slots, residency, policies, read-ahead.
#![forbid(unsafe_code)]
