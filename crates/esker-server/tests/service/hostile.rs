//! A few hundred malformed and hostile requests: the right status, no panic, nothing lost for others.

use crate::cases;
use crate::support::{TestServer, config};
use serde_json::json;
use std::time::Duration;

#[test]
fn hostile_requests_harm_nobody() {
    let mut config = config();
    config.limits.header_timeout = Duration::from_secs(2);
    config.limits.body_timeout = Duration::from_secs(2);
    let server = TestServer::start(config);
    let ask = || server.chat("Hello", json!({"max_tokens": 4}))["choices"][0]["message"]["content"].clone();
    let expected = ask();
    for seed in 0..300 {
        let case = cases::case(seed, crate::support::MODEL);
        cases::check(server.address, &case)
            .unwrap_or_else(|e| panic!("case {seed}: {e}\n{}", case.describe()));
        if seed % 50 == 0 {
            assert_eq!(ask(), expected, "after case {seed}");
        }
    }
    assert_eq!(ask(), expected);
    server.wait_for("all is quiet", |state| crate::support::busy(state) == 0);
}
