// Text inside a block of Markdown to nodes: code, emphasis, links. Linear in the text.

import { h } from "./dom.js";

/// How deep blocks, and marks of emphasis, may lie in each other.
export const NESTING_MAX = 16;

const URL_START = /https?:\/\/[^\s<>"'`]{1,2048}/y;
const TARGET = /\(\s*<?([^\s<>()]*(?:\([^\s<>()]*\)[^\s<>()]*)*)>?(?:\s+(?:"[^"]{0,512}"|'[^']{0,512}'))?\s*\)/y;
const ESCAPABLE = /[!-/:-@[-`{-~]/;
const WORD = /[\p{L}\p{N}_]/u;
const SPECIAL = /[\\`*_~[\]!<hH\n]/g;

/// Text to nodes: strings and elements.
export function inline(text) {
  return new Inline(text).run();
}

class Inline {
  constructor(text) {
    this.text = text;
    /// Nodes so far; an opener that is still open stands here as the text that it is.
    this.out = [];
    /// Openers: `{ mark, length, index }`, `index` into `out`.
    this.openers = [];
    this.openCounts = new Map();
  }

  run() {
    const { text } = this;
    let at = 0;
    while (at < text.length) {
      SPECIAL.lastIndex = at;
      const found = SPECIAL.exec(text);
      const next = found ? found.index : text.length;
      if (next > at) this.push(text.slice(at, next));
      if (!found) break;
      at = this.special(next);
    }
    return this.out;
  }

  push(node) {
    const last = this.out.length - 1;
    const opener = this.openers.at(-1)?.index === last;
    if (typeof node === "string" && typeof this.out[last] === "string" && !opener) this.out[last] += node;
    else this.out.push(node);
  }

  /// Handles the character at `at`; returns where to go on.
  special(at) {
    const { text } = this;
    const c = text[at];
    switch (c) {
      case "\\":
        if (text[at + 1] === "\n") {
          this.push(h("br"));
          return at + 2;
        }
        if (at + 1 < text.length && ESCAPABLE.test(text[at + 1])) {
          this.push(text[at + 1]);
          return at + 2;
        }
        break;
      case "\n":
        // A model's line break is meant as one.
        this.push(h("br"));
        return at + 1;
      case "`":
        return this.code(at);
      case "*":
      case "_":
      case "~":
        return this.emphasis(at, c);
      case "!":
        if (text[at + 1] !== "[") break;
        this.open("[", 1, "![");
        return at + 2;
      case "[":
        this.open("[", 1, "[");
        return at + 1;
      case "]":
        return this.link(at);
      case "<":
        return this.angle(at);
      default:
        return this.bareLink(at);
    }
    this.push(c);
    return at + 1;
  }

  open(mark, length, shown) {
    if (this.openers.length >= NESTING_MAX) {
      this.push(shown);
      return;
    }
    this.openers.push({ mark, length, index: this.out.length });
    this.openCounts.set(mark, (this.openCounts.get(mark) ?? 0) + 1);
    this.out.push(shown);
  }

  /// The innermost opener of this mark; what was opened after it stays text.
  close(mark) {
    if (!this.openCounts.get(mark)) return null;
    for (;;) {
      const opener = this.openers.pop();
      this.openCounts.set(opener.mark, this.openCounts.get(opener.mark) - 1);
      if (opener.mark === mark) return opener;
    }
  }

  code(at) {
    const { text } = this;
    let length = 1;
    while (text[at + length] === "`") length += 1;
    this.runs ??= backtickRuns(text);
    const end = this.runs.next(length, at + length);
    if (end === null) {
      this.push(text.slice(at, at + length));
      return at + length;
    }
    let inside = text.slice(at + length, end).replaceAll("\n", " ");
    if (inside.startsWith(" ") && inside.endsWith(" ") && inside.trim() !== "") inside = inside.slice(1, -1);
    this.push(h("code", {}, inside));
    return end + length;
  }

  emphasis(at, mark) {
    const { text } = this;
    let length = 1;
    while (text[at + length] === mark) length += 1;
    const end = at + length;
    const before = text[at - 1] ?? " ";
    const after = text[end] ?? " ";
    const blankBefore = before.trim() === "";
    const blankAfter = after.trim() === "";
    const insideWord = mark === "_" && WORD.test(before) && WORD.test(after);
    const fits = mark === "~" ? length === 2 : length <= 3;
    let canClose = fits && !blankBefore && !insideWord;
    const canOpen = fits && !blankAfter && !insideWord;
    if (mark === "_" && WORD.test(after)) canClose = false;
    let left = length;
    while (canClose && left > 0) {
      const opener = this.close(mark);
      if (!opener) break;
      const used = opener.length >= 2 && left >= 2 ? 2 : 1;
      if (mark === "~" && used < 2) break;
      const children = this.out.splice(opener.index + 1);
      this.out.pop();
      if (opener.length > used) this.open(mark, opener.length - used, mark.repeat(opener.length - used));
      this.out.push(h(mark === "~" ? "del" : used === 2 ? "strong" : "em", {}, ...children));
      left -= used;
    }
    if (left > 0) {
      if (canOpen) this.open(mark, left, mark.repeat(left));
      else this.push(mark.repeat(left));
    }
    return end;
  }

  link(at) {
    const opener = this.close("[");
    TARGET.lastIndex = at + 1;
    const target = opener && this.text[at + 1] === "(" && TARGET.exec(this.text);
    if (!target) {
      this.push("]");
      return at + 1;
    }
    const children = this.out.splice(opener.index + 1);
    const image = this.out.pop() === "![";
    if (image && children.length === 0) children.push("image");
    const link = anchor(target[1], children);
    if (link) this.push(link);
    else for (const child of [...children, ` (${target[1]})`]) this.push(child);
    return TARGET.lastIndex;
  }

  angle(at) {
    const near = this.text.slice(at + 1, at + 2048);
    const address = near.slice(0, Math.max(0, near.indexOf(">")));
    const link = anchor(address, [address]);
    if (link) {
      this.push(link);
      return at + address.length + 2;
    }
    this.push("<");
    return at + 1;
  }

  bareLink(at) {
    URL_START.lastIndex = at;
    const found = !WORD.test(this.text[at - 1] ?? " ") && URL_START.exec(this.text);
    if (found) {
      // Punctuation at the end belongs to the sentence, and so do the marks around the link.
      let address = found[0].replace(/[.,;:!?*_~\]]+$/, "");
      if (address.endsWith(")") && !address.includes("(")) address = address.slice(0, -1);
      const link = anchor(address, [address]);
      if (link) {
        this.push(link);
        return at + address.length;
      }
    }
    this.push(this.text[at]);
    return at + 1;
  }
}

/// Only these schemes: a link of the model is followed when a person clicks it, and never runs anything.
function anchor(address, children) {
  if (!/^(?:https?:\/\/|mailto:)/i.test(address)) return null;
  try {
    new URL(address);
  } catch {
    return null;
  }
  return h("a", { href: address, target: "_blank", rel: "noopener noreferrer nofollow" }, ...children);
}

/// Where runs of backticks start, by length; asked for in increasing positions, so that all questions together are linear.
function backtickRuns(text) {
  const starts = new Map();
  for (const run of text.matchAll(/`+/g)) {
    const list = starts.get(run[0].length) ?? { at: 0, positions: [] };
    list.positions.push(run.index);
    starts.set(run[0].length, list);
  }
  return {
    next(length, from) {
      const list = starts.get(length);
      if (!list) return null;
      while (list.at < list.positions.length && list.positions[list.at] < from) list.at += 1;
      return list.positions[list.at] ?? null;
    },
  };
}
