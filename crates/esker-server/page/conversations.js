// Conversations, kept in the browser: one entry of localStorage each, so that two windows do not overwrite each other's.
//
// A conversation: `{ id, title, created, updated, messages }`, times in milliseconds.
// A message: `{ role: "user", content }` or `{ role: "assistant", variants, chosen }`; every answer that was made again is a variant:
// `{ content, reasoning, finish, injected, error, usage, first_token_s, reasoning_s, decode_s, tokens }`.

const PREFIX = "esker.conversation.";
const CURRENT = "esker.current";
const FORMAT = "esker-conversations";
const TITLE_MAX = 60;

/// Storage that can't be used (forbidden, full) costs what would have been kept, not the conversation on screen.
export class Conversations {
  constructor(onProblem) {
    this.onProblem = onProblem;
  }

  /// `{ id, title, updated }` of all, newest first.
  list() {
    return this.all().map(({ id, title, updated }) => ({ id, title, updated }));
  }

  all() {
    const found = [];
    try {
      for (let i = 0; i < localStorage.length; i += 1) {
        const name = localStorage.key(i);
        const conversation = name.startsWith(PREFIX) && readConversation(localStorage.getItem(name));
        if (conversation) found.push(conversation);
      }
    } catch {
      // Nothing can be read: nothing is kept.
    }
    return found.sort((a, b) => b.updated - a.updated);
  }

  load(id) {
    try {
      return readConversation(localStorage.getItem(PREFIX + id));
    } catch {
      return null;
    }
  }

  /// The one that was open last, or a new one.
  current() {
    let id = null;
    try {
      id = localStorage.getItem(CURRENT);
    } catch {
      // As if there were none.
    }
    return (id && this.load(id)) || newConversation();
  }

  setCurrent(id) {
    try {
      localStorage.setItem(CURRENT, id);
    } catch {
      // The next visit starts with a new one.
    }
  }

  save(conversation) {
    conversation.updated = Date.now();
    conversation.title = titleOf(conversation);
    try {
      localStorage.setItem(PREFIX + conversation.id, JSON.stringify(conversation));
    } catch {
      this.onProblem("The browser has no room left (or may not keep anything): this conversation is not saved. Export it, or delete old ones.");
    }
  }

  remove(id) {
    try {
      localStorage.removeItem(PREFIX + id);
    } catch {
      // Nothing was kept.
    }
  }

  removeAll() {
    for (const { id } of this.list()) this.remove(id);
  }

  /// All of them as text of a JSON file.
  exportAll() {
    return JSON.stringify({ format: FORMAT, version: 1, conversations: this.all() }, null, 2);
  }

  /// Adds those of an exported file; one with the id of a kept one replaces it. Returns how many; throws with a reason.
  importAll(text) {
    let file;
    try {
      file = JSON.parse(text);
    } catch {
      throw new Error("The file is not JSON.");
    }
    if (file?.format !== FORMAT || !Array.isArray(file.conversations)) throw new Error("The file does not hold exported conversations.");
    const read = file.conversations.map((one) => readConversation(JSON.stringify(one)));
    if (read.includes(null)) throw new Error("A conversation in the file is not complete.");
    for (const conversation of read) localStorage.setItem(PREFIX + conversation.id, JSON.stringify(conversation));
    return read.length;
  }
}

export function newConversation() {
  const now = Date.now();
  const id = Array.from(crypto.getRandomValues(new Uint8Array(9)), (byte) => byte.toString(36).padStart(2, "0")).join("");
  return { id, title: "New chat", created: now, updated: now, messages: [] };
}

/// The answer that is shown of an assistant's message.
export function chosen(message) {
  return message.variants[message.chosen];
}

function titleOf({ messages }) {
  const first = messages.find((message) => message.role === "user")?.content.trim().split("\n")[0] ?? "";
  if (first === "") return "New chat";
  return first.length > TITLE_MAX ? `${first.slice(0, TITLE_MAX - 1).trimEnd()}…` : first;
}

/// One conversation as Markdown, for people.
export function toMarkdown(conversation) {
  const parts = [`# ${conversation.title}`];
  for (const message of conversation.messages) {
    if (message.role === "user") parts.push(`## You\n\n${message.content}`);
    else parts.push(`## Answer\n\n${chosen(message).content}`);
  }
  return `${parts.join("\n\n")}\n`;
}

/// What storage or a file holds, checked: anything may stand there.
function readConversation(text) {
  let value;
  try {
    value = JSON.parse(text);
  } catch {
    return null;
  }
  if (typeof value?.id !== "string" || !/^[a-z0-9]{1,64}$/.test(value.id) || !Array.isArray(value.messages)) return null;
  const messages = value.messages.map(readMessage);
  if (messages.includes(null)) return null;
  const created = Number(value.created) || 0;
  const conversation = { id: value.id, title: "", created, updated: Number(value.updated) || created, messages };
  conversation.title = titleOf(conversation);
  return conversation;
}

function readMessage(message) {
  if (message?.role === "user" && typeof message.content === "string") return { role: "user", content: message.content };
  if (message?.role !== "assistant" || !Array.isArray(message.variants) || message.variants.length === 0) return null;
  const variants = message.variants.map((variant) => ({
    ...variant,
    content: String(variant?.content ?? ""),
    reasoning: String(variant?.reasoning ?? ""),
  }));
  const index = Number.isInteger(message.chosen) ? message.chosen : variants.length - 1;
  return { role: "assistant", variants, chosen: Math.min(Math.max(index, 0), variants.length - 1) };
}
