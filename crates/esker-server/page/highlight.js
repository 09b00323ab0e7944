// Colours for code: comments, strings, numbers, keywords. One pass, no grammar: a mistake costs a colour and nothing else.

import { h } from "./dom.js";

/// Longer code is shown without colours.
const LENGTH_MAX = 60_000;

const words = (text) => new Set(text.split(" "));

const C_WORDS = words(
  "abstract auto bool break case catch char class const constexpr continue default delete do double else enum extern false final float for goto if import int interface long namespace new null nullptr override package private protected public return short signed sizeof static struct super switch template this throw throws true try typedef typename union unsigned using var virtual void volatile while",
);

const C_LIKE = { line: "//", block: ["/*", "*/"], strings: `"'`, keywords: C_WORDS };
const SCRIPT = {
  line: "//",
  block: ["/*", "*/"],
  strings: `"'\``,
  keywords: words(
    "as async await break case catch class const continue debugger default delete do else enum export extends false finally for from function if implements import in instanceof interface let new null of private public readonly return static super switch this throw true try type typeof undefined var void while yield",
  ),
};
const LANGUAGES = new Map(Object.entries({
  rust: {
    line: "//",
    block: ["/*", "*/"],
    strings: `"`,
    keywords: words(
      "as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod move mut pub ref return self Self static struct super trait true type unsafe use where while",
    ),
  },
  python: {
    line: "#",
    strings: `"'`,
    triple: true,
    keywords: words(
      "and as assert async await break case class continue def del elif else except False finally for from global if import in is lambda match None nonlocal not or pass raise return True try while with yield",
    ),
  },
  go: {
    line: "//",
    block: ["/*", "*/"],
    strings: `"'\``,
    keywords: words(
      "break case chan const continue default defer else false fallthrough for func go goto if import interface map nil package range return select struct switch true type var",
    ),
  },
  shell: {
    line: "#",
    strings: `"'`,
    keywords: words("case do done elif else esac export fi for function if in local return set then until while"),
  },
  sql: {
    line: "--",
    block: ["/*", "*/"],
    strings: `"'`,
    anyCase: true,
    keywords: words(
      "add all alter and as asc between by case create delete desc distinct drop else end exists from group having if in index inner insert into is join key left like limit not null on or order outer primary references right select set table then union unique update values view when where with",
    ),
  },
  data: { line: "#", strings: `"'`, keywords: words("true false null yes no on off") },
  style: { block: ["/*", "*/"], strings: `"'`, keywords: words("") },
  javascript: SCRIPT,
  c: C_LIKE,
}));
const NAMES = new Map(Object.entries({
  rs: "rust", py: "python", python3: "python", golang: "go",
  js: "javascript", jsx: "javascript", ts: "javascript", tsx: "javascript", typescript: "javascript", mjs: "javascript", json: "javascript",
  sh: "shell", bash: "shell", zsh: "shell", console: "shell", dockerfile: "shell", make: "shell", makefile: "shell", ruby: "python", rb: "python",
  yaml: "data", yml: "data", toml: "data", ini: "data", css: "style", scss: "style",
  cpp: "c", "c++": "c", cc: "c", h: "c", hpp: "c", java: "c", cs: "c", csharp: "c", kotlin: "c", swift: "c", scala: "c", php: "c", zig: "c", dart: "c", glsl: "c", cuda: "c",
}));

const NUMBER = /(?:0[xXbBoO][\da-fA-F_]+|\d[\d_]*(?:\.\d[\d_]*)?(?:[eE][+-]?\d+)?)[a-zA-Z\d]*/y;
const NAME = /[\p{L}_$][\p{L}\p{N}_$]*/uy;

/// Code to nodes: strings, and spans with the classes `c` (comment), `s` (string), `n` (number), `k` (keyword).
export function highlight(text, name) {
  const lower = name.toLowerCase();
  const language = LANGUAGES.get(NAMES.get(lower) ?? lower);
  if (!language || text.length > LENGTH_MAX) return [text];
  const out = [];
  let plain = 0;
  let at = 0;
  const colour = (kind, end) => {
    if (at > plain) out.push(text.slice(plain, at));
    out.push(h("span", { class: `hl-${kind}` }, text.slice(at, end)));
    at = end;
    plain = end;
  };
  while (at < text.length) {
    const c = text[at];
    if (language.line && text.startsWith(language.line, at)) {
      const end = text.indexOf("\n", at);
      colour("c", end < 0 ? text.length : end);
    } else if (language.block && text.startsWith(language.block[0], at)) {
      const end = text.indexOf(language.block[1], at + 2);
      colour("c", end < 0 ? text.length : end + language.block[1].length);
    } else if (language.strings.includes(c)) {
      colour("s", stringEnd(text, at, language));
    } else if (c >= "0" && c <= "9") {
      NUMBER.lastIndex = at;
      NUMBER.exec(text);
      colour("n", NUMBER.lastIndex);
    } else {
      NAME.lastIndex = at;
      const word = NAME.exec(text)?.[0];
      if (word && language.keywords.has(language.anyCase ? word.toLowerCase() : word)) colour("k", at + word.length);
      else at += word?.length ?? 1;
    }
  }
  if (plain < text.length) out.push(text.slice(plain));
  return out;
}

function stringEnd(text, at, language) {
  const quote = text[at];
  if (language.triple && text.startsWith(quote.repeat(3), at)) {
    const end = text.indexOf(quote.repeat(3), at + 3);
    return end < 0 ? text.length : end + 3;
  }
  for (let i = at + 1; i < text.length; i += 1) {
    if (text[i] === "\\") i += 1;
    else if (text[i] === quote) return i + 1;
    else if (text[i] === "\n" && quote !== "`") return i;
  }
  return text.length;
}
