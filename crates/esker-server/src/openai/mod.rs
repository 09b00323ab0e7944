//! The OpenAI API: conversion of its requests and responses, one file for each of its endpoints.
//!
//! Source: the API reference of OpenAI and the types of its published clients.

pub(crate) mod chat;
mod chat_messages;
mod chat_response;
mod chat_stream;
mod chunks;
pub(crate) mod completions;
mod logprobs;
pub(crate) mod models;
pub(crate) mod options;
pub(crate) mod responses;
mod responses_input;
mod responses_output;
mod responses_stream;

pub(crate) use chat_response::extension;
