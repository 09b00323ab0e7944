// Requests to the server: API key, errors, server-sent events.

const KEY = "esker.api-key";

/// An answer of the server that is not a success, or no answer.
export class ServerError extends Error {
  constructor(message, { status = 0, type = null, param = null, retryAfter = null } = {}) {
    super(message);
    this.name = "ServerError";
    this.status = status;
    this.type = type;
    this.param = param;
    /// Seconds to wait, from `Retry-After`.
    this.retryAfter = retryAfter;
  }
}

let key = readKey();
let askForKey = null;
let asking = null;
/// The field was closed without a key: only what a person does brings it back.
let declined = false;

function readKey() {
  try {
    return sessionStorage.getItem(KEY) ?? localStorage.getItem(KEY) ?? "";
  } catch {
    return "";
  }
}

/// `ask()` shows the field and resolves to `{ key, remember }`, or to `null` if it was closed.
export function onKeyNeeded(ask) {
  askForKey = ask;
}

export function hasKey() {
  return key !== "";
}

export function forgetKey() {
  keepKey("", false);
}

function keepKey(value, remember) {
  key = value;
  try {
    sessionStorage.setItem(KEY, value);
    if (remember) localStorage.setItem(KEY, value);
    else localStorage.removeItem(KEY);
  } catch {
    // Without storage the key lasts until the page is closed.
  }
}

/// Asks once, however many requests were refused at the same time. Resolves to whether there is a new key.
function newKey() {
  asking ??= Promise.resolve(askForKey?.())
    .then((answer) => {
      declined = !answer;
      if (!answer) return false;
      keepKey(answer.key, answer.remember);
      return true;
    })
    .finally(() => {
      asking = null;
    });
  return asking;
}

/// `fetch` with the API key; asks for one if the server wants it, and again after it was refused one only if `insist`.
/// Throws `ServerError`, or `AbortError` when aborted.
export async function request(path, { method = "GET", body, signal, accept = "application/json", insist = false } = {}) {
  for (;;) {
    const headers = { Accept: accept };
    if (body !== undefined) headers["Content-Type"] = "application/json";
    const used = key;
    if (used) headers.Authorization = `Bearer ${used}`;
    let response;
    try {
      response = await fetch(path, {
        method,
        headers,
        body: body === undefined ? undefined : JSON.stringify(body),
        signal,
        cache: "no-store",
        credentials: "omit",
        redirect: "error",
      });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new ServerError("The server can't be reached.");
    }
    if (response.ok) return response;
    const error = await readError(response);
    if (response.status === 401 && askForKey && (insist || !declined)) {
      // Another request may have got a key meanwhile.
      if (used !== key || (await newKey())) continue;
    }
    throw error;
  }
}

async function readError(response) {
  let message = `The server answered ${response.status}.`;
  let detail = {};
  try {
    const body = await response.json();
    detail = body?.error ?? {};
    if (typeof detail.message === "string") message = detail.message;
  } catch {
    // No JSON: the status says what there is to say.
  }
  const retryAfter = Number(response.headers.get("Retry-After"));
  return new ServerError(message, {
    status: response.status,
    type: detail.type ?? null,
    param: detail.param ?? null,
    retryAfter: retryAfter > 0 ? retryAfter : null,
  });
}

/// The events of an SSE answer as `{ event, data }`, as they come.
export async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  let event = "message";
  let data = [];
  try {
    for (;;) {
      const { value, done } = await reader.read().catch((error) => {
        throw error.name === "AbortError" ? error : new ServerError("The connection broke off.");
      });
      if (done) return;
      rest += value;
      let start = 0;
      for (;;) {
        const end = rest.indexOf("\n", start);
        if (end < 0) break;
        const line = rest.slice(start, rest[end - 1] === "\r" ? end - 1 : end);
        start = end + 1;
        if (line === "") {
          if (data.length > 0) yield { event, data: data.join("\n") };
          event = "message";
          data = [];
        } else if (line.startsWith("data:")) {
          data.push(line.slice(line[5] === " " ? 6 : 5));
        } else if (line.startsWith("event:")) {
          event = line.slice(6).trim();
        }
      }
      rest = rest.slice(start);
    }
  } finally {
    // Ends the request when the caller stops reading.
    reader.cancel().catch(() => {});
  }
}

/// One answer of the chat, as parts: `{ kind: "reasoning" | "answer", text }`, `{ kind: "usage", usage }`,
/// `{ kind: "finish", reason, injected, decode_s }`: `injected` is what was said to the model to end its reasoning.
export async function* chat(body, signal) {
  const response = await request("/v1/chat/completions", { method: "POST", body, signal, accept: "text/event-stream", insist: true });
  for await (const { data } of events(response)) {
    if (data === "[DONE]") return;
    let chunk;
    try {
      chunk = JSON.parse(data);
    } catch {
      throw new ServerError("The server sent something that is not JSON.");
    }
    if (chunk.error) throw new ServerError(chunk.error.message ?? "The server broke off.", { type: chunk.error.type });
    const choice = chunk.choices?.[0];
    const reasoning = choice?.delta?.reasoning_content;
    if (reasoning) yield { kind: "reasoning", text: reasoning };
    if (choice?.delta?.content) yield { kind: "answer", text: choice.delta.content };
    if (choice?.finish_reason) {
      const { thinking, timings } = choice.esker ?? {};
      yield { kind: "finish", reason: choice.finish_reason, injected: thinking?.injected ?? null, decode_s: timings?.decode_s ?? null };
    }
    if (chunk.usage) yield { kind: "usage", usage: chunk.usage };
  }
  throw new ServerError("The connection ended before the answer did.");
}
