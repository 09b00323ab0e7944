//! The Anthropic API: conversion of its requests and responses.
//!
//! Source: the API reference of Anthropic and the types of its published clients.

mod input;
pub(crate) mod messages;
mod output;
mod stream;
