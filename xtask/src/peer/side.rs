//! A side of a comparison: a child process that answers requests.
//!
//! A side ends by itself when its standard input closes, so it ends with this program however that ends: by an error,
//! by Ctrl-C, or killed.

use super::protocol::{Reply, Request};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Lines of standard error that are kept to be shown with a failure.
const STDERR_LINES: usize = 40;

/// What a side has to end by itself once its input is closed.
const LEAVE: Duration = Duration::from_secs(3);

/// Which side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Who {
    /// Us.
    Esker,
    /// Them.
    LlamaCpp,
}

impl Who {
    /// For sentences and tables.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Who::Esker => "Esker",
            Who::LlamaCpp => "llama.cpp",
        }
    }
}

/// A side did not answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SideError {
    /// The program is missing or cannot be run.
    #[error("cannot start {}'s side as `{program}`", who.name())]
    Start { who: Who, program: String, cause: std::io::Error },
    /// It ended, or closed its output.
    #[error("{}'s side ended ({}) while it was asked for `{request}`; its last words:\n{stderr}", who.name(), ended(*status))]
    Ended { who: Who, request: String, status: Option<ExitStatus>, stderr: String },
    /// It was asked and refused.
    #[error("{}'s side refused `{request}`: {message}", who.name())]
    Refused { who: Who, request: String, message: String },
    /// It took too long, and was ended.
    #[error("{}'s side gave no answer to `{request}` in {} s; its last words:\n{stderr}", who.name(), limit.as_secs())]
    TooLong { who: Who, request: String, limit: Duration, stderr: String },
    /// It said something else than was agreed.
    #[error("{}'s side answered `{request}` with `{line}`", who.name())]
    Reply { who: Who, request: String, line: String, cause: serde_json::Error },
}

fn ended(status: Option<ExitStatus>) -> String {
    status.map_or_else(|| "it had to be killed".to_owned(), |status| status.to_string())
}

/// What a process has of memory, in bytes, as the kernel counts it (`/proc/PID/status`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Resident {
    /// `VmHWM`: the most that was ever resident, mapped files included.
    pub(crate) peak: Option<u64>,
    /// `RssAnon` now: what the process has allocated.
    pub(crate) anonymous: Option<u64>,
    /// `RssFile` now: pages of mapped files, such as the model, that are in memory.
    pub(crate) file: Option<u64>,
}

/// A running side.
pub(crate) struct Side {
    who: Who,
    child: Child,
    stdin: Option<ChildStdin>,
    replies: Receiver<String>,
    stderr: Arc<Mutex<VecDeque<String>>>,
    limit: Duration,
}

impl Side {
    /// Starts `command`, whose standard streams are taken; it has `limit` for each answer.
    pub(crate) fn start(who: Who, mut command: Command, limit: Duration) -> Result<Side, SideError> {
        let program = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|cause| SideError::Start { who, program, cause })?;
        let (send, replies) = channel();
        if let Some(stdout) = child.stdout.take() {
            each_line(stdout, move |line| {
                // Nobody listens any more: the side is being dropped.
                let _ = send.send(line);
            });
        }
        let stderr = Arc::new(Mutex::new(VecDeque::new()));
        if let Some(pipe) = child.stderr.take() {
            let kept = stderr.clone();
            each_line(pipe, move |line| {
                let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
                if kept.len() == STDERR_LINES {
                    kept.pop_front();
                }
                kept.push_back(line);
            });
        }
        let stdin = child.stdin.take();
        Ok(Side { who, child, stdin, replies, stderr, limit })
    }

    /// Process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Asks and waits.
    pub(crate) fn ask<A: DeserializeOwned>(&mut self, request: &Request) -> Result<A, SideError> {
        let who = self.who;
        let mut line = serde_json::to_string(request).expect("requests are plain data");
        let name = shortened(&line);
        line.push('\n');
        let sent = self.stdin.as_mut().is_some_and(|pipe| pipe.write_all(line.as_bytes()).is_ok());
        let reply =
            if sent { self.replies.recv_timeout(self.limit) } else { Err(RecvTimeoutError::Disconnected) };
        let line = match reply {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => {
                let _ = self.child.kill();
                let (limit, stderr) = (self.limit, self.last_words());
                return Err(SideError::TooLong { who, request: name, limit, stderr });
            }
            Err(RecvTimeoutError::Disconnected) => {
                let status = self.leave();
                return Err(SideError::Ended { who, request: name, status, stderr: self.last_words() });
            }
        };
        let unexpected =
            |cause| SideError::Reply { who, request: name.clone(), line: shortened(&line), cause };
        match serde_json::from_str(&line).map_err(unexpected)? {
            Reply::Ok(answer) => serde_json::from_value(answer).map_err(unexpected),
            Reply::Error(message) => Err(SideError::Refused { who, request: name, message }),
        }
    }

    /// What it has of memory now; all `None` where there is no `/proc`.
    pub(crate) fn resident(&self) -> Resident {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).unwrap_or_default();
        parse_resident(&status)
    }

    /// Bytes that the kernel has read from disks on its behalf so far, page faults and reading ahead included; `None` where
    /// it does not tell.
    pub(crate) fn read_bytes(&self) -> Option<u64> {
        parse_read_bytes(&std::fs::read_to_string(format!("/proc/{}/io", self.pid())).ok()?)
    }

    fn last_words(&self) -> String {
        // The pipe's reader may be a moment behind the process's end.
        std::thread::sleep(Duration::from_millis(50));
        let kept = self.stderr.lock().unwrap_or_else(PoisonError::into_inner);
        kept.iter().map(|line| format!("  | {line}\n")).collect()
    }

    /// Closes its input and waits for its end; kills it if it does not come.
    fn leave(&mut self) -> Option<ExitStatus> {
        self.stdin = None;
        let asked = Instant::now();
        while asked.elapsed() < LEAVE {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) => std::thread::sleep(Duration::from_millis(10)),
                Err(_) => break,
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        None
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        self.leave();
    }
}

fn each_line(pipe: impl Read + Send + 'static, mut use_line: impl FnMut(String) + Send + 'static) {
    std::thread::spawn(move || {
        let mut lines = BufReader::new(pipe).split(b'\n');
        while let Some(Ok(line)) = lines.next() {
            use_line(String::from_utf8_lossy(&line).into_owned());
        }
    });
}

fn shortened(line: &str) -> String {
    let start: String = line.chars().take(100).collect();
    if start.len() < line.len() { start + "…" } else { start }
}

fn parse_resident(status: &str) -> Resident {
    let field = |name: &str| {
        let rest = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
        let kilobytes: u64 = rest.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(kilobytes * 1024)
    };
    Resident { peak: field("VmHWM"), anonymous: field("RssAnon"), file: field("RssFile") }
}

/// `read_bytes` of `/proc/PID/io` (proc(5)); `rchar` above it counts what came from the page cache, too.
fn parse_read_bytes(io: &str) -> Option<u64> {
    io.lines().find_map(|line| line.strip_prefix("read_bytes:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::protocol::{Facts, Loaded};

    fn shell(script: &str, limit: Duration) -> Side {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Side::start(Who::LlamaCpp, command, limit).expect("a shell")
    }

    #[test]
    fn memory_of_a_process() {
        let status = "Name:\tx\nVmHWM:\t  2048 kB\nRssAnon:\t     4 kB\nRssFile:\t  1024 kB\nThreads:\t2\n";
        let expected = Resident { peak: Some(2 << 20), anonymous: Some(4096), file: Some(1 << 20) };
        assert_eq!(parse_resident(status), expected);
        assert_eq!(parse_resident("VmHWM:\t many kB\n"), Resident::default());
    }

    #[test]
    fn bytes_that_a_process_had_read() {
        let io = "rchar: 77\nwchar: 5\nsyscr: 1\nread_bytes: 8192\nwrite_bytes: 4096\n";
        assert_eq!(parse_read_bytes(io), Some(8192));
        assert_eq!(parse_read_bytes("rchar: 77\n"), None);
    }

    #[test]
    fn answers_come_back_and_refusals_are_told() {
        let script =
            r#"read a; echo '{"ok":{"version":"v","isa":"i"}}'; read a; echo '{"error":"out of memory"}'"#;
        let mut side = shell(script, Duration::from_secs(20));
        let facts: Facts = side.ask(&Request::Facts).expect("an answer");
        assert_eq!(facts, Facts { version: "v".to_owned(), isa: "i".to_owned() });
        let refused = side.ask::<Loaded>(&Request::Facts).expect_err("a refusal");
        assert!(refused.to_string().contains("out of memory"), "{refused}");
    }

    #[test]
    fn a_side_that_ends_leaves_its_last_words() {
        let mut side = shell("read a; echo boom >&2; exit 3", Duration::from_secs(20));
        let error = side.ask::<Facts>(&Request::Facts).expect_err("no answer");
        let text = error.to_string();
        assert!(text.contains("boom") && text.contains('3') && text.contains("llama.cpp"), "{text}");
    }

    #[test]
    fn a_side_that_hangs_is_ended() {
        let mut side = shell("exec sleep 100", Duration::from_millis(50));
        let error = side.ask::<Facts>(&Request::Facts).expect_err("no answer");
        assert!(matches!(error, SideError::TooLong { .. }), "{error}");
        let (pid, dropped) = (side.pid(), Instant::now());
        drop(side);
        assert!(dropped.elapsed() < LEAVE, "it was killed at once, not waited for");
        assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "and is gone");
    }

    #[test]
    fn noise_is_not_an_answer() {
        let mut side = shell("read a; echo loading...", Duration::from_secs(20));
        let error = side.ask::<Facts>(&Request::Facts).expect_err("no answer");
        assert!(matches!(error, SideError::Reply { .. }), "{error}");
    }
}
