//! A real server of the shipped model on a port of its own, and a client that sends bytes.

mod anthropic;
mod cases;
mod client;
mod completions;
mod hostile;
mod openai;
mod operations;
mod refusals;
mod responses;
mod scheduling;
mod support;
mod thinking;
