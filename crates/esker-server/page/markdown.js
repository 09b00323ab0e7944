// Markdown of a model to DOM nodes. Text stays text: there is no way from a character of the model to markup or to a request.
//
// The usual subset: headings, paragraphs, lists, quotes, fenced code, tables, rules; code, emphasis, links. Images become
// links, HTML is shown as it is written. Time is linear in the text, nesting has a limit: the text may be hostile.

import { copyText, h } from "./dom.js";
import { highlight } from "./highlight.js";
import { NESTING_MAX, inline } from "./inline.js";

/// A view of one growing text: blocks that did not change keep their nodes, so that a selection, a scroll position
/// inside code and the focus survive while text streams in.
export class MarkdownView {
  constructor(element) {
    this.element = element;
    this.blocks = [];
  }

  /// Shows `text`. While `streaming`, code that is still open is not coloured.
  update(text, streaming = false) {
    const next = parseBlocks(text.split("\n"), 0);
    if (streaming && next.at(-1)?.kind === "code") next.at(-1).open = !next.at(-1).closed;
    let same = 0;
    while (same < next.length && same < this.blocks.length && isSame(this.blocks[same].block, next[same])) same += 1;
    const growing = this.blocks[same];
    if (growing && this.blocks.length === same + 1 && next.length > same && growsInPlace(growing.block, next[same])) {
      growing.node.querySelector("code").textContent = next[same].text;
      growing.block = next[same];
      same += 1;
    }
    for (const { node } of this.blocks.splice(same)) node.remove();
    for (const block of next.slice(same)) {
      const node = renderBlock(block);
      this.blocks.push({ block, node });
      this.element.append(node);
    }
  }
}

function isSame(a, b) {
  return a.kind === b.kind && a.raw === b.raw && a.open === b.open;
}

function growsInPlace(a, b) {
  return a.kind === "code" && b.kind === "code" && a.open && b.open && a.language === b.language;
}

// Blocks

// No expression may take more than linear time on a line that a model made to be slow.
const FENCE = /^( {0,3})(`{3,}|~{3,})([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+|$)/;
const RULE = /^ {0,3}(?:(?:\*\s*){3,}|(?:-\s*){3,}|(?:_\s*){3,})$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])(?: +|$)/;
const TABLE_RULE = /^\|? *:?-+:? *(?:\| *:?-+:? *)*\|?$/;

/// Lines to blocks, each with `kind` and with the lines it came from as `raw`.
export function parseBlocks(lines, depth) {
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    if (lines[at].trim() === "") {
      at += 1;
      continue;
    }
    const start = at;
    const block = parseBlock(lines, at, depth);
    at = block.end;
    block.raw = lines.slice(start, at).join("\n");
    blocks.push(block);
  }
  return blocks;
}

function parseBlock(lines, at, depth) {
  const line = lines[at];
  const fence = FENCE.exec(line);
  if (fence) return parseCode(lines, at, fence);
  const heading = HEADING.exec(line);
  if (heading) return { kind: "heading", level: heading[1].length, text: headingText(line.slice(heading[0].length)), end: at + 1 };
  if (RULE.test(line)) return { kind: "rule", end: at + 1 };
  if (depth < NESTING_MAX) {
    if (QUOTE.test(line)) return parseQuote(lines, at, depth);
    if (ITEM.test(line)) return parseList(lines, at, depth);
  }
  if (line.includes("|") && at + 1 < lines.length && TABLE_RULE.test(lines[at + 1].trim())) {
    const table = parseTable(lines, at);
    if (table) return table;
  }
  return parseParagraph(lines, at, depth);
}

/// Without the `#` that may close a heading.
function headingText(text) {
  const trimmed = text.trim();
  let end = trimmed.length;
  while (trimmed[end - 1] === "#") end -= 1;
  return end === 0 || trimmed[end - 1] === " " ? trimmed.slice(0, end).trim() : trimmed;
}

function parseCode(lines, at, [, indent, marks, info]) {
  const text = [];
  let end = at + 1;
  let closed = false;
  for (; end < lines.length; end += 1) {
    const line = lines[end].trim();
    if (line.length >= marks.length && line === marks[0].repeat(line.length)) {
      closed = true;
      end += 1;
      break;
    }
    text.push(lines[end].startsWith(indent) ? lines[end].slice(indent.length) : lines[end]);
  }
  // The line that is still being written, while it is empty.
  if (!closed && text.at(-1) === "") text.pop();
  const language = info.trim().split(/[\s{]/)[0].slice(0, 32);
  return { kind: "code", language, text: text.join("\n"), closed, open: false, end };
}

function parseQuote(lines, at, depth) {
  const inner = [];
  let end = at;
  while (end < lines.length && QUOTE.test(lines[end])) {
    inner.push(lines[end].replace(QUOTE, ""));
    end += 1;
  }
  return { kind: "quote", blocks: parseBlocks(inner, depth + 1), end };
}

/// A list goes on over blank lines as long as indented lines or items of the same sort follow.
function parseList(lines, at, depth) {
  const first = ITEM.exec(lines[at]);
  const ordered = /\d/.test(first[2]);
  const items = [];
  let loose = false;
  let end = at;
  while (end < lines.length) {
    const item = ITEM.exec(lines[end]);
    if (!item || item[1].length > first[1].length + 3 || /\d/.test(item[2]) !== ordered || RULE.test(lines[end])) break;
    const width = item[0].length === lines[end].length ? item[1].length + item[2].length + 1 : item[0].length;
    const inner = [lines[end].slice(item[0].length)];
    end += 1;
    let blank = false;
    while (end < lines.length) {
      const line = lines[end];
      if (line.trim() === "") {
        blank = true;
        inner.push("");
      } else {
        const indent = line.length - line.trimStart().length;
        const enough = indent >= Math.min(width, first[1].length + 2);
        if (!enough && (blank || ITEM.test(line) || startsBlock(line))) break;
        if (blank && enough) loose ||= indent < width + 4;
        inner.push(line.slice(Math.min(indent, width)));
        blank = false;
      }
      end += 1;
    }
    while (inner.at(-1) === "") inner.pop();
    if (blank && end < lines.length && ITEM.test(lines[end])) loose = true;
    const task = /^\[([ xX])\] /.exec(inner[0]);
    if (task) inner[0] = inner[0].slice(4);
    items.push({ done: task ? task[1] !== " " : null, blocks: parseBlocks(inner, depth + 1) });
  }
  return { kind: "list", ordered, first: ordered ? parseInt(first[2], 10) : 1, items, loose, end };
}

function startsBlock(line) {
  return FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line);
}

function parseTable(lines, at) {
  const head = cells(lines[at]);
  const rule = cells(lines[at + 1]);
  if (head.length !== rule.length) return null;
  const align = rule.map((cell) => (cell.endsWith(":") ? (cell.startsWith(":") ? "center" : "right") : "left"));
  const rows = [];
  let end = at + 2;
  while (end < lines.length && lines[end].includes("|")) {
    const row = cells(lines[end]);
    rows.push(head.map((_, column) => row[column] ?? ""));
    end += 1;
  }
  return { kind: "table", head, align, rows, end };
}

/// Splits at `|` that is neither escaped nor inside code.
function cells(line) {
  const out = [];
  let cell = "";
  let code = false;
  const text = line.trim();
  for (let i = text[0] === "|" ? 1 : 0; i < text.length; i += 1) {
    const c = text[i];
    if (c === "\\" && text[i + 1] === "|") {
      cell += "|";
      i += 1;
    } else if (c === "|" && !code) {
      out.push(cell.trim());
      cell = "";
    } else {
      if (c === "`") code = !code;
      cell += c;
    }
  }
  if (cell.trim() !== "" || text.at(-1) !== "|") out.push(cell.trim());
  return out;
}

function parseParagraph(lines, at, depth) {
  let end = at + 1;
  while (end < lines.length) {
    const line = lines[end];
    if (line.trim() === "" || FENCE.test(line) || HEADING.test(line) || RULE.test(line)) break;
    if (depth < NESTING_MAX && QUOTE.test(line)) break;
    const item = depth < NESTING_MAX && ITEM.exec(line);
    // A number other than 1 inside a sentence is no list.
    if (item && item[0].length < line.length && (!/\d/.test(item[2]) || parseInt(item[2], 10) === 1)) break;
    if (line.includes("|") && end + 1 < lines.length && TABLE_RULE.test(lines[end + 1].trim())) break;
    end += 1;
  }
  const text = lines.slice(at, end).map((line) => line.trimStart()).join("\n");
  return { kind: "paragraph", text, end };
}

// Blocks to nodes

function renderBlock(block) {
  switch (block.kind) {
    case "heading":
      // The page has h1 and h2 of its own.
      return h(`h${Math.min(6, block.level + 2)}`, { class: `md-h${block.level}` }, ...inline(block.text));
    case "rule":
      return h("hr");
    case "quote":
      return h("blockquote", {}, ...block.blocks.map(renderBlock));
    case "list":
      return renderList(block);
    case "table":
      return renderTable(block);
    case "code":
      return renderCode(block);
    default:
      return h("p", {}, ...inline(block.text.trimEnd()));
  }
}

function renderList(block) {
  const items = block.items.map(({ done, blocks }) => {
    const children = blocks.flatMap((child) =>
      child.kind === "paragraph" && !block.loose ? inline(child.text.trimEnd()) : [renderBlock(child)],
    );
    if (done === null) return h("li", {}, ...children);
    const box = h("input", { type: "checkbox", disabled: true, "aria-label": done ? "done" : "to do" });
    box.checked = done;
    return h("li", { class: "task" }, box, ...children);
  });
  return block.ordered ? h("ol", { start: block.first }, ...items) : h("ul", {}, ...items);
}

function renderTable({ head, align, rows }) {
  const row = (name, texts) => h("tr", {}, ...texts.map((text, i) => h(name, { class: `to-${align[i]}` }, ...inline(text))));
  // Wide tables scroll by themselves; a focus lets the keyboard scroll them.
  return h(
    "div",
    { class: "md-table", tabindex: "0", role: "region", "aria-label": "Table" },
    h("table", {}, h("thead", {}, row("th", head)), h("tbody", {}, ...rows.map((texts) => row("td", texts)))),
  );
}

function renderCode({ language, text, open }) {
  const code = h("code", {}, ...(open ? [text] : highlight(text, language)));
  const copy = h("button", { type: "button", class: "quiet small", onclick: () => copyText(code.textContent, copy) }, "Copy");
  copy.setAttribute("aria-label", language ? `Copy ${language} code` : "Copy code");
  return h(
    "figure",
    { class: "code" },
    h("figcaption", {}, h("span", {}, language || "text"), copy),
    h("pre", { tabindex: "0", "aria-label": language ? `${language} code` : "code" }, code),
  );
}
