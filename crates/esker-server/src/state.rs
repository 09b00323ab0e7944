//! What the service says about itself: `/health`, `/props`, `/api/state`.

use crate::anthropic::messages;
use crate::openai::{chat, completions, responses};
use crate::owner::{Health, Shared};
use axum::http::StatusCode;
use serde_json::{Value, json};

/// Whether tokens can be made, and the status that says so.
pub(crate) fn health(shared: &Shared) -> (StatusCode, Value) {
    let (status, word, reason) = match shared.status.health() {
        Health::Ready => (StatusCode::OK, "ready", None),
        Health::Loading => (StatusCode::SERVICE_UNAVAILABLE, "loading", None),
        Health::Failed(reason) => (StatusCode::SERVICE_UNAVAILABLE, "failed", Some(reason)),
        Health::Stopping => (StatusCode::SERVICE_UNAVAILABLE, "stopping", None),
    };
    (status, json!({"status": word, "reason": reason}))
}

/// What is honoured, and with which limits and defaults.
pub(crate) fn props(shared: &Shared) -> Value {
    let config = &shared.config;
    let limits = &config.limits;
    let loaded = shared.loaded();
    let formats = loaded.map(|l| &l.prompter.formats);
    let reasoning = formats.and_then(|f| f.reasoning.as_ref());
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "model": {
            "name": config.model_name,
            "aliases": config.aliases,
            "architecture": loaded.map(|l| &l.info.architecture),
            "parameters": loaded.map(|l| l.info.parameters),
            "context": loaded.map(|l| l.info.context),
            "context_trained": loaded.and_then(|l| l.info.context_trained),
            "vocabulary": loaded.map(|l| l.info.n_vocab),
            "notes": loaded.map(|l| &l.info.notes),
        },
        "capabilities": {
            "text": true,
            "images": false,
            "audio": false,
            "chat_template": loaded.map(|l| if l.info.has_template { "own" } else { "chatml" }),
            "tools": formats.and_then(|f| f.tools).map(|format| format!("{format:?}")),
            "reasoning": reasoning.map(|r| json!({"open": r.open(), "close": r.close()})),
            "reasoning_switch": formats.map(|f| f.thinking_switch),
            "json_schema": loaded.map(|l| l.prompter.has_grammar()),
            "logprobs": true,
            "prefix_reuse": true,
        },
        "endpoints": {
            "/v1/chat/completions": chat::PARAMETERS.json(),
            "/v1/completions": completions::PARAMETERS.json(),
            "/v1/responses": responses::PARAMETERS.json(),
            "/v1/messages": messages::PARAMETERS.json(),
            "/v1/messages/count_tokens": messages::COUNT_PARAMETERS.json(),
        },
        "defaults": {
            "sampling": config.sampling,
            "thinking": {
                "answer_reserve": config.thinking.answer_reserve,
                "budget": config.thinking.budget,
                "closing_sentence": config.thinking.closing_sentence,
                "close": config.thinking.close,
            },
        },
        "limits": {
            "slots": config.slots,
            "queue": config.queue,
            "body_bytes": limits.body_bytes,
            "max_tokens": limits.max_tokens,
            "choices": limits.choices,
            "stops": limits.stops,
            "tools": limits.tools,
            "messages": limits.messages,
            "top_logprobs": limits.top_logprobs,
            "header_timeout_s": limits.header_timeout.as_secs(),
            "body_timeout_s": limits.body_timeout.as_secs(),
        },
    })
}

/// How things are at this moment.
pub(crate) fn state(shared: &Shared) -> Value {
    let snapshot = shared.status.snapshot();
    let stats = &snapshot.stats;
    let info = shared.loaded().map(|l| &l.info);
    let share = |of: u64, all: u64| if all == 0 { Value::Null } else { json!(of as f64 / all as f64) };
    let lookups = stats.expert_hits + stats.expert_read_ahead_hits + stats.expert_misses;
    let slots = snapshot.slots.iter().enumerate().map(|(id, slot)| {
        json!({
            "id": id,
            "state": slot.phase.name(),
            "prompt_tokens": slot.prompt_tokens,
            "prefilled_tokens": slot.prefilled_tokens,
            "generated_tokens": slot.generated_tokens,
            "tokens_per_s": slot.tokens_per_s,
        })
    });
    let lines: Option<Vec<Value>> = info.map(|info| {
        info.plan.iter().map(|l| json!({"name": l.name, "bytes": l.bytes, "what": l.what})).collect()
    });
    json!({
        "health": health(shared).1["status"],
        "model": {
            "name": shared.config.model_name,
            "architecture": info.map(|i| &i.architecture),
            "n_layer": info.map(|i| i.n_layer),
            "n_expert": info.map(|i| i.n_expert),
            "n_expert_used": info.map(|i| i.n_expert_used),
            "context": info.map(|i| i.context),
            "file_bytes": info.map(|i| i.file_bytes),
            "threads": info.map(|i| i.threads),
            "chunk": info.map(|i| i.chunk),
            "load_s": info.map(|i| i.load_s),
            "memory_note": info.map(|i| &i.memory_note),
        },
        "memory": {
            "budget_bytes": info.and_then(|i| i.budget_bytes),
            "planned_bytes": info.map(|i| i.plan.iter().map(|l| l.bytes).sum::<u64>()),
            "used_bytes": stats.memory_bytes,
            "peak_bytes": stats.peak_memory_bytes,
            "lines": lines,
        },
        "slots": slots.collect::<Vec<_>>(),
        "queue": {"waiting": shared.queue.waiting(), "max": shared.queue.max()},
        "stats": {
            "decode_tokens_per_s": snapshot.decode_tokens_per_s,
            "prefill_tokens_per_s": snapshot.prefill_tokens_per_s,
            "hit_rate": share(stats.expert_hits + stats.expert_read_ahead_hits, lookups),
            "read_ahead_hit_rate": share(stats.expert_read_ahead_hits, lookups),
            "bytes_read": stats.expert_bytes_read + stats.row_bytes_read,
            "requests_refused": shared.metrics.refused.get(),
            "sequences_cancelled": shared.metrics.cancelled.get(),
            "prompt_tokens": shared.metrics.prompt_tokens.get(),
            "cached_tokens": shared.metrics.cached_tokens.get(),
            "generated_tokens": shared.metrics.generated_tokens.get(),
            "passes": shared.metrics.passes.get(),
        },
        "uptime_s": shared.status.started.elapsed().as_secs_f64(),
        "version": env!("CARGO_PKG_VERSION"),
    })
}
