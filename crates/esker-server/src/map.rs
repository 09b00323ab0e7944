//! `GET /api/map`: the expert map as a stream of events.

use crate::http::sse::{KEEP_ALIVE, SseBuffer, response};
use crate::owner::{Health, MapSnapshot, Shared};
use axum::response::Response;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use esker_engine::ExpertMap;
use futures_util::stream::unfold;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::watch::Receiver;

/// Sends the map now and whenever it changes, as often as the owner of the engine publishes it.
pub(crate) fn stream(shared: &Shared) -> Response {
    let watcher =
        Watcher { map: shared.status.map.subscribe(), health: shared.status.watch_health(), sent: 0 };
    response(unfold(watcher, |mut watcher| async {
        let mut out = SseBuffer::default();
        watcher.next(&mut out).await.then(|| (Ok(out.take()), watcher))
    }))
}

struct Watcher {
    map: Receiver<Arc<MapSnapshot>>,
    health: Receiver<Health>,
    /// Version that was sent last; 0 is none.
    sent: u64,
}

impl Watcher {
    /// Waits for something to send; false if there will be nothing any more.
    async fn next(&mut self, out: &mut SseBuffer) -> bool {
        loop {
            if matches!(*self.health.borrow(), Health::Stopping | Health::Failed(_)) {
                return false;
            }
            let now = self.map.borrow_and_update().clone();
            if now.version > self.sent {
                self.sent = now.version;
                out.event("map", &event(&now.map));
                return true;
            }
            tokio::select! {
                changed = self.map.changed() => if changed.is_err() {
                    return false;
                },
                changed = self.health.changed() => if changed.is_err() {
                    return false;
                },
                () = tokio::time::sleep(KEEP_ALIVE) => {
                    out.comment("keep-alive");
                    return true;
                }
            }
        }
    }
}

fn event(map: &ExpertMap) -> Value {
    json!({
        "n_layer": map.n_layer,
        "n_expert": map.n_expert,
        "experts": map.experts,
        "all_resident": map.all_resident,
        "resident": STANDARD.encode(resident(map)),
        "hot": STANDARD.encode(&map.hot),
        "read": map.just_read,
        "hits": map.hits,
        "read_ahead_hits": map.read_ahead_hits,
        "misses": map.misses,
    })
}

/// Bits by layer, the lowest first, each layer padded to whole bytes.
fn resident(map: &ExpertMap) -> Vec<u8> {
    let words = map.n_expert.div_ceil(64);
    let bytes = map.n_expert.div_ceil(8);
    let mut out = Vec::with_capacity(map.n_layer * bytes);
    for il in 0..map.n_layer {
        for byte in 0..bytes {
            let word = map.resident.get(il * words + byte / 8).copied().unwrap_or(0);
            let bits = (word >> (byte % 8 * 8)) as u8;
            let rest = map.n_expert - byte * 8;
            out.push(if rest < 8 { bits & ((1 << rest) - 1) } else { bits });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_are_layer_by_layer() {
        let map = ExpertMap {
            n_layer: 2,
            n_expert: 70,
            resident: vec![1, 0b10_0000, u64::MAX, u64::MAX],
            ..ExpertMap::default()
        };
        assert_eq!(
            resident(&map),
            [1, 0, 0, 0, 0, 0, 0, 0, 0b10_0000, 255, 255, 255, 255, 255, 255, 255, 255, 0b11_1111]
        );
        let few = ExpertMap { n_layer: 1, n_expert: 3, resident: vec![u64::MAX], ..ExpertMap::default() };
        assert_eq!(resident(&few), [0b111]);
    }
}
