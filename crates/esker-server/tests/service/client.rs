//! A small blocking HTTP client: requests as bytes, responses and event streams as they come. No library in between, so
//! that malformed requests can be sent and connections dropped at any moment.

use serde_json::Value;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Nothing takes longer in a test.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A response, its body still to be read.
pub struct Response {
    pub status: u16,
    headers: Vec<(String, String)>,
    reader: BufReader<TcpStream>,
    chunked: bool,
    /// Bytes of the body, or of the current chunk, that are left; `None`: until the connection ends.
    left: Option<usize>,
    ended: bool,
}

/// An event of a stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    pub name: String,
    pub data: String,
}

impl Event {
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.data).unwrap_or_else(|e| panic!("event data is JSON: {e}: {}", self.data))
    }
}

/// Sends bytes as they are and reads the head of the response.
pub fn send(address: SocketAddr, bytes: &[u8]) -> io::Result<Response> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.set_write_timeout(Some(TIMEOUT))?;
    stream.set_nodelay(true)?;
    // A server may refuse a request before all of it has come, and close.
    let written = stream.write_all(bytes);
    match Response::read(stream) {
        Ok(response) => Ok(response),
        Err(e) => Err(written.err().unwrap_or(e)),
    }
}

/// A request with a body, ready to be sent.
pub fn request(method: &str, path: &str, headers: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
    let mut out = format!("{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n");
    for (name, value) in headers {
        out += &format!("{name}: {value}\r\n");
    }
    if !body.is_empty() || method == "POST" {
        out += &format!("content-length: {}\r\n", body.len());
    }
    out += "\r\n";
    let mut out = out.into_bytes();
    out.extend_from_slice(body);
    out
}

/// GETs a path.
pub fn get(address: SocketAddr, path: &str) -> io::Result<Response> {
    send(address, &request("GET", path, &[], &[]))
}

/// POSTs JSON.
pub fn post(address: SocketAddr, path: &str, body: &Value) -> io::Result<Response> {
    let headers = [("content-type", "application/json")];
    send(address, &request("POST", path, &headers, body.to_string().as_bytes()))
}

impl Response {
    fn read(stream: TcpStream) -> io::Result<Response> {
        let mut reader = BufReader::new(stream);
        let invalid = |what: &str| io::Error::new(io::ErrorKind::InvalidData, what.to_owned());
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let status = line.split(' ').nth(1).and_then(|s| s.parse().ok());
        let status = status.ok_or_else(|| invalid(&format!("no status line: {line:?}")))?;
        let mut headers = Vec::new();
        loop {
            line.clear();
            reader.read_line(&mut line)?;
            let line = line.trim_end();
            if line.is_empty() {
                break;
            }
            let (name, value) = line.split_once(':').ok_or_else(|| invalid("a header without a colon"))?;
            headers.push((name.to_ascii_lowercase(), value.trim().to_owned()));
        }
        let header = |name: &str| headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str());
        let chunked = header("transfer-encoding") == Some("chunked");
        let left = match (chunked, header("content-length")) {
            (true, _) => Some(0),
            (false, length) => length.and_then(|n| n.parse().ok()),
        };
        Ok(Response { status, headers, reader, chunked, left, ended: false })
    }

    /// A header by its name in lower case.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    /// The rest of the body.
    pub fn bytes(&mut self) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        while let Some(piece) = self.piece()? {
            out.extend(piece);
        }
        Ok(out)
    }

    /// The body as JSON.
    pub fn json(&mut self) -> Value {
        let bytes = self.bytes().expect("a body");
        serde_json::from_slice(&bytes)
            .unwrap_or_else(|e| panic!("the body is JSON: {e}: {}", String::from_utf8_lossy(&bytes)))
    }

    /// The body as text.
    pub fn text(&mut self) -> String {
        String::from_utf8(self.bytes().expect("a body")).expect("UTF-8")
    }

    /// The events of the body, as they come.
    pub fn events(self) -> Events {
        Events { response: self, text: String::new() }
    }

    /// Some more of the body.
    fn piece(&mut self) -> io::Result<Option<Vec<u8>>> {
        if self.ended {
            return Ok(None);
        }
        if self.chunked && self.left == Some(0) {
            let mut line = String::new();
            self.reader.read_line(&mut line)?;
            let size = usize::from_str_radix(line.trim(), 16)
                .map_err(|_| io::Error::new(io::ErrorKind::UnexpectedEof, "the body ended early"))?;
            if size == 0 {
                self.ended = true;
                return Ok(None);
            }
            self.left = Some(size);
        }
        let most = self.left.unwrap_or(64 << 10).min(64 << 10);
        let mut buffer = vec![0; most];
        let n = if most == 0 { 0 } else { self.reader.read(&mut buffer)? };
        buffer.truncate(n);
        if let Some(left) = &mut self.left {
            *left -= n;
            if self.chunked && *left == 0 {
                let mut end = [0; 2];
                self.reader.read_exact(&mut end)?;
            } else if *left == 0 {
                self.ended = true;
            }
        }
        if n == 0 {
            self.ended = true;
            return if self.left.unwrap_or(0) > 0 {
                Err(io::ErrorKind::UnexpectedEof.into())
            } else {
                Ok(None)
            };
        }
        Ok(Some(buffer))
    }
}

/// Events as they come; comments are left out.
pub struct Events {
    response: Response,
    text: String,
}

impl Iterator for Events {
    type Item = Event;

    fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(end) = self.text.find("\n\n") {
                let block: String = self.text.drain(..end + 2).collect();
                let mut event = Event::default();
                for line in block.lines() {
                    if let Some(name) = line.strip_prefix("event: ") {
                        event.name = name.to_owned();
                    } else if let Some(data) = line.strip_prefix("data: ") {
                        event.data.push_str(data);
                    }
                }
                if event != Event::default() {
                    return Some(event);
                }
                continue;
            }
            match self.response.piece() {
                Ok(Some(piece)) => self.text.push_str(&String::from_utf8(piece).expect("UTF-8")),
                Ok(None) | Err(_) => return None,
            }
        }
    }
}
