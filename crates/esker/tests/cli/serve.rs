//! `esker serve`: what it says, its configuration file, and how it ends. What it serves is tested in `esker-server`.

use crate::support::{DEMO, assert_run, esker, run, stdout};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running service and its address.
struct Service {
    child: Child,
    log: BufReader<std::process::ChildStderr>,
    address: String,
}

/// Starts one and waits until it is ready.
fn serve(args: &[&str]) -> Service {
    let args = [&["serve", DEMO, "--port", "0", "--context", "256"], args].concat();
    let mut child = esker(&args).stderr(Stdio::piped()).spawn().expect("the program starts");
    let mut log = BufReader::new(child.stderr.take().expect("a pipe"));
    let mut seen = String::new();
    let address = loop {
        let mut line = String::new();
        assert!(log.read_line(&mut line).expect("a line") > 0, "it ended: {seen}");
        seen += &line;
        if let Some((_, rest)) = line.split_once("127.0.0.1:") {
            let port: String = rest.chars().take_while(char::is_ascii_digit).collect();
            break format!("127.0.0.1:{port}");
        }
    };
    let begun = Instant::now();
    while !get(&address, "/health").starts_with("HTTP/1.1 200") {
        assert!(begun.elapsed() < Duration::from_secs(120), "it becomes ready");
        std::thread::sleep(Duration::from_millis(50));
    }
    Service { child, log, address }
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    write!(stream, "GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n").expect("sent");
    let mut response = String::new();
    stream.read_to_string(&mut response).expect("a response");
    response
}

impl Service {
    /// Sends a signal; the exit code, and the rest of the log.
    fn end(mut self, signal: &str) -> (Option<i32>, String) {
        let kill = Command::new("kill").args([signal, &self.child.id().to_string()]).status();
        assert!(kill.expect("kill exists").success());
        let status = self.child.wait().expect("it ends");
        let mut rest = String::new();
        self.log.read_to_string(&mut rest).expect("text");
        (status.code(), rest)
    }
}

#[test]
fn a_budget_that_is_said_to_be_enough_is() {
    let refused = run(&["serve", DEMO, "--port", "0", "--context", "256", "--memory", "1M"]);
    assert_eq!(refused.status.code(), Some(1));
    let text = String::from_utf8_lossy(&refused.stderr).into_owned();
    let (_, hint) = text.split_once("`--memory ").expect("a hint");
    let (enough, _) = hint.split_once('`').expect("a value");
    let mut service = serve(&["--memory", enough]);
    service.child.kill().expect("it runs");
    service.child.wait().expect("it ends");
}

#[cfg(unix)]
#[test]
fn signals_end_it_well() {
    for signal in ["-TERM", "-INT"] {
        let service = serve(&[]);
        assert!(get(&service.address, "/v1/models").contains("esker-moe-64m-small"));
        let (code, log) = service.end(signal);
        assert_eq!(code, Some(0), "{log}");
        assert!(log.contains("shutting down") && log.contains("ended"), "{log}");
    }
}

#[cfg(unix)]
#[test]
fn options_come_from_a_file_and_logs_can_be_json() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("esker.toml");
    std::fs::write(&path, "slots = 3\nname = \"from-file\"\nalias = [\"other\"]\nlog-format = \"json\"")
        .expect("written");
    let service = serve(&["--config", path.to_str().expect("UTF-8"), "--slots", "2"]);
    let state = get(&service.address, "/api/state");
    assert_eq!(state.matches("\"state\":\"idle\"").count(), 2, "{state}");
    let models = get(&service.address, "/v1/models");
    assert!(models.contains("\"from-file\"") && models.contains("\"other\""), "{models}");
    let (code, log) = service.end("-TERM");
    assert_eq!(code, Some(0), "{log}");
    for line in log.lines() {
        assert!(
            serde_json::from_str::<serde_json::Value>(line).is_ok_and(|v| v["level"].is_string()),
            "{line}"
        );
    }
}

#[test]
fn other_machines_need_a_key() {
    assert_run!(run(&["serve", DEMO, "--host", "0.0.0.0"]), @r#"
    exit code: 2
    --- stdout ---

    --- stderr ---
    error: 0.0.0.0:8080 can be reached from other machines: an API key is required

    hint: set `ESKER_API_KEY`, or `api-key` in a configuration file; without a key, `--host 127.0.0.1`
    "#);
}

#[test]
fn a_port_that_is_taken() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port().to_string();
    let output = run(&["serve", DEMO, "--port", &port, "-q"]);
    let text = String::from_utf8_lossy(&output.stderr).replace(&port, "[PORT]");
    insta::assert_snapshot!(text, @r#"
    error: cannot listen on 127.0.0.1:[PORT]
      caused by: Address already in use (os error 98)

    hint: `--port N` takes another port
    "#);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_configuration_file_that_is_wrong() {
    let directory = tempfile::Builder::new().prefix("esker-test-").tempdir().expect("a directory");
    let path = directory.path().join("esker.toml");
    std::fs::write(&path, "slotts = 3").expect("written");
    assert_run!(run(&["serve", "--config", path.to_str().expect("UTF-8")]), @r#"
    exit code: 2
    --- stdout ---

    --- stderr ---
    error: `slotts` is no option of `esker serve`
      file: `[DIR]/esker.toml`

    hint: `esker serve --print-config` shows all options as a configuration file
    "#);
    std::fs::write(&path, "slots = 3000").expect("written");
    assert_run!(run(&["serve", "--config", path.to_str().expect("UTF-8")]), @r#"
    exit code: 2
    --- stdout ---

    --- stderr ---
    error: invalid value '3000' for '--slots <N>': 3000 is not in 1..=64
      file: `[DIR]/esker.toml`

    hint: `esker serve --print-config` shows all options as a configuration file
    "#);
}

#[test]
fn all_options_as_a_configuration_file() {
    let printed =
        stdout(&["serve", "model.gguf", "--memory", "6G", "--alias", "a", "--alias", "b", "--print-config"]);
    insta::assert_snapshot!(printed, @r#"
    model = "model.gguf"
    host = "127.0.0.1"
    port = 8080
    # api-key =
    # allow-origin =
    # name =
    alias = ["a", "b"]
    log-format = "text"
    slots = 4
    queue = 64
    # max-tokens =
    prefill-share = 128
    body-limit = "4M"
    body-timeout = 30
    header-timeout = 30
    connections = 512
    shutdown-grace = 20
    # snapshot-memory =
    # snapshot-dir =
    snapshot-dir-size = "8G"
    # chat-template =
    # template-arg =
    # thinking-budget =
    answer-reserve = 512
    thinking-closing-sentence = """


    That is all the time there is for thinking. I answer now.
    """
    no-thinking-close = false
    temp = 0.7
    top-k = 40
    top-p = 0.95
    min-p = 0.05
    repeat-penalty = 1
    # threads =
    # cpu-mask =
    # context =
    # chunk =
    # kv-type =
    memory = "6G"
    policy = "protected-lru"
    no-read-ahead = false
    route-bias = 0
    route-protect = 3
    io = "auto"
    no-direct-io = false
    # reads-max =
    "#);
}
