// A person at the page, played by a script: Debian's Chromium, headless.
//
// ESKER_SCREENSHOTS: folder for pictures that a person can look at. CHROMIUM: the browser, /usr/bin/chromium by default.

import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import path from "node:path";
import test, { after, before } from "node:test";
import { chromium } from "playwright-core";
import { key, url } from "./server.js";

const SCREENSHOTS = process.env.ESKER_SCREENSHOTS ?? "screenshots";
const FLAGS = [
  "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
  "--disable-background-networking", "--disable-component-update", "--disable-sync",
];
const SOON = 20_000;

let browser;
let page;
/// What may not happen on any page: errors, and requests to elsewhere.
const complaints = [];
/// Bodies of the chat completions that the page asked for.
const asked = [];

/// A page with storage of its own. `signedIn`: it has the key already.
async function open({ width = 1440, height = 900, scheme = "light", scale = 1, touch = false, signedIn = true } = {}) {
  const context = await browser.newContext({
    viewport: { width, height }, colorScheme: scheme, deviceScaleFactor: scale, hasTouch: touch, acceptDownloads: true, locale: "en-GB",
  });
  context.setDefaultTimeout(SOON);
  if (signedIn) await context.addInitScript((value) => sessionStorage.setItem("esker.api-key", value), key);
  const opened = await context.newPage();
  opened.on("console", (message) => {
    // The browser itself reports a refused key as an error.
    const refused = !signedIn && message.text().includes("401");
    if (["error", "warning"].includes(message.type()) && !refused) complaints.push(`console: ${message.text()}`);
  });
  opened.on("pageerror", (error) => complaints.push(`exception: ${error.message}`));
  opened.on("request", (request) => {
    if (new URL(request.url()).origin !== url && !request.url().startsWith(`blob:${url}`)) complaints.push(`request: ${request.url()}`);
    if (request.url().endsWith("/v1/chat/completions")) asked.push(request.postDataJSON());
  });
  await opened.goto(url);
  return opened;
}

async function send(text) {
  await page.getByLabel("Message", { exact: true }).fill(text);
  await page.keyboard.press("Enter");
}

const answers = () => page.locator(".message.answer");
const lastAnswer = () => answers().last();

/// Waits until the page is at rest again.
async function finished() {
  await page.locator("#send:not(.stop)").waitFor();
  await page.locator(".message.answer.streaming").waitFor({ state: "detached" });
}

/// Waits until `check()` is true.
async function until(check, what) {
  for (const end = Date.now() + SOON; Date.now() < end; ) {
    if (await check()) return;
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  assert.fail(`never: ${what}`);
}

async function picture(of, name) {
  await of.screenshot({ path: path.join(SCREENSHOTS, `${name}.png`) });
}

before(async () => {
  mkdirSync(SCREENSHOTS, { recursive: true });
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? "/usr/bin/chromium", args: FLAGS });
  page = await open();
});

after(async () => {
  await browser?.close();
});

test("the policy allows nothing inline and nothing from elsewhere", async () => {
  const response = await fetch(url);
  const policy = response.headers.get("content-security-policy");
  assert.match(policy, /default-src 'none'/);
  assert.doesNotMatch(policy, /unsafe|https?:|\*/);
  assert.match(response.headers.get("content-type"), /^text\/html/);
  const styled = await page.evaluate(() => getComputedStyle(document.querySelector(".composer textarea")).borderRadius);
  assert.notEqual(styled, "0px");
});

test("a key is asked for, a wrong one is refused, the right one is kept", { skip: key === "none" && "the server asks for no key" }, async () => {
  const stranger = await open({ signedIn: false });
  const field = stranger.getByLabel("Key", { exact: true });
  await stranger.getByRole("button", { name: "Cancel" }).click();
  await stranger.getByText("Needs a key").waitFor();
  // It is not asked for again and again, but when somebody wants something.
  await new Promise((resolve) => setTimeout(resolve, 3000));
  assert.equal(await field.isVisible(), false);
  await stranger.getByLabel("Message", { exact: true }).fill("Hello");
  await stranger.keyboard.press("Enter");
  await field.fill("wrong");
  await stranger.keyboard.press("Enter");
  await stranger.getByText("The server did not accept this key.").waitFor();
  await field.fill(key);
  await stranger.keyboard.press("Enter");
  await stranger.locator(".message.answer .actions .figures").filter({ hasText: "tok" }).waitFor();
  await stranger.reload();
  await stranger.locator(".pulse.ready, .pulse.work").waitFor();
  await stranger.context().close();
});

test("it shows the model, the memory, the slots", async () => {
  await page.locator(".pulse.ready").waitFor();
  assert.notEqual(await page.locator("#model-name").textContent(), "");
  assert.match(await page.locator("#memory-used").textContent(), /\d.* [KMG]iB/);
  assert.match(await page.locator("#memory-of").textContent(), /of .*iB budget/);
  const lines = await page.locator("#memory-lines tr").count();
  assert.ok(lines >= 5, `${lines} lines of the plan`);
  assert.equal(await page.locator("#memory-bar .part").count(), lines);
  assert.ok((await page.locator("#slots li").count()) >= 1);
  await picture(page, "welcome-light");
});

test("it chats, streaming, and tells what that cost", async () => {
  await send("Tell me about the river.");
  await page.locator("#send.stop").waitFor();
  await finished();
  assert.equal(await page.locator(".message.user .bubble").textContent(), "Tell me about the river.");
  assert.equal(await answers().count(), 1);
  assert.equal(await lastAnswer().locator(".problem").isHidden(), true);
  assert.notEqual((await lastAnswer().locator(".prose").last().textContent()).trim(), "");
  const figures = await lastAnswer().locator(".actions .figures").textContent();
  assert.match(figures, /\d+ tokens? · [\d.]+ tok\/s · first after/);
  assert.equal(asked.at(-1).stream, true);
});

test("it stops at once, by keyboard", async () => {
  // So free a draw seldom ends a text: there is time to stop it.
  await page.locator(".views [data-view=settings]").click();
  for (const [field, value] of [["Temperature", "2"], ["Top p", "1"], ["Top k", "0"], ["Min p", "0"], ["Longest answer", "2000"]]) {
    await page.getByLabel(field, { exact: field !== "Longest answer" }).fill(value);
  }
  // The model may end by itself all the same: then once more.
  for (let attempt = 0; ; attempt += 1) {
    assert.ok(attempt < 8, "no answer could be stopped");
    await send(`Write a long story about a river, number ${attempt}.`);
    await page.locator(".message.answer.streaming .prose > *, .message:last-child.answer:not(.streaming)").first().waitFor();
    await page.keyboard.press("Escape");
    await finished();
    if ((await lastAnswer().locator(".actions .figures").textContent()).includes("stopped")) break;
  }
  await page.locator(".pulse.ready").waitFor();
  await page.getByRole("button", { name: "Reset" }).click();
  await page.locator(".views [data-view=machine]").click();
});

test("it regenerates, and keeps the earlier answer", async () => {
  const count = await answers().count();
  const earlier = await lastAnswer().locator(".prose").last().textContent();
  await lastAnswer().getByRole("button", { name: "Regenerate" }).click();
  await finished();
  assert.equal(await answers().count(), count);
  assert.match(await lastAnswer().locator(".variants").textContent(), /2 of 2/);
  await lastAnswer().getByRole("button", { name: "Earlier answer" }).click();
  assert.equal(await lastAnswer().locator(".prose").last().textContent(), earlier);
});

test("a message can be edited, what followed is replaced", async () => {
  const first = page.locator(".message.user").first();
  await first.getByRole("button", { name: "Edit" }).click();
  await page.getByLabel("Your message").fill("Tell me about the stone.");
  await page.getByRole("button", { name: "Send again" }).click();
  await finished();
  assert.equal(await answers().count(), 1);
  assert.equal(asked.at(-1).messages.at(-1).content, "Tell me about the stone.");
});

test("the expert map changes as experts are read", async () => {
  await page.locator("#map-box").waitFor();
  // Whatever was just read has faded: what changes from here on is new.
  await new Promise((resolve) => setTimeout(resolve, 1500));
  const drawn = () => page.evaluate(() => document.getElementById("map").toDataURL());
  const colours = await page.evaluate(() => {
    const canvas = document.getElementById("map");
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    const seen = new Set();
    for (let i = 0; i < data.length; i += 4) seen.add((data[i] << 16) | (data[i + 1] << 8) | data[i + 2]);
    return seen.size;
  });
  assert.ok(colours > 4, "experts differ on the map");
  const still = await drawn();
  await send("Write about experts and memory.");
  await until(async () => (await drawn()) !== still, "the map changes");
  await picture(page, "machine-light");
  await finished();
  const share = parseFloat(await page.locator("#map-resident").textContent());
  assert.ok(share > 0 && share < 100, `${share} % in memory: the budget has to make experts stream`);
  const rate = parseFloat(await page.locator("#map-rate").textContent());
  assert.ok(rate > 0 && rate <= 100, `hit rate of ${rate} %`);
  await page.getByText("As a table").click();
  const rows = page.locator("#map-table tr");
  await until(async () => (await rows.count()) >= 2, "the table has its rows");
  assert.match(await rows.first().textContent(), /\d+ of \d+/);
  await page.getByText("As a table").click();
});

test("the whole page works by keyboard", async () => {
  await page.getByRole("button", { name: "New chat", exact: true }).focus();
  await page.keyboard.press("Enter");
  await page.keyboard.type("Only keys");
  await page.keyboard.press("Shift+Enter");
  await page.keyboard.type("were used");
  await page.keyboard.press("Enter");
  await finished();
  assert.equal(asked.at(-1).messages.at(-1).content, "Only keys\nwere used");

  // Everything that can be pressed is reached by Tab, and shows where the focus is.
  await page.evaluate(() => document.activeElement.blur());
  const reached = new Set();
  for (let i = 0; i < 60; i += 1) {
    await page.keyboard.press("Tab");
    const focus = await page.evaluate(() => {
      const element = document.activeElement;
      // After the last element the browser's own controls have the focus.
      if (element === document.body) return { id: "", outline: "" };
      return { id: element.id || element.textContent.trim(), outline: getComputedStyle(element).outlineStyle };
    });
    if (focus.id === "map") {
      assert.match(await page.locator("#map-readout").textContent(), /^Layer 0, expert 0/);
      await page.keyboard.press("ArrowDown");
      await page.keyboard.press("ArrowRight");
      await page.keyboard.press("ArrowRight");
      assert.match(await page.locator("#map-readout").textContent(), /^Layer 1, expert 2: (in memory|on disk)/);
      await page.keyboard.press("End");
      assert.match(await page.locator("#map-readout").textContent(), /^Layer 1, expert \d+/);
    }
    if (reached.has(focus.id) && focus.id === "message") break;
    if (focus.id !== "") {
      assert.notEqual(focus.outline, "none", `the focus on ${focus.id} is not seen`);
      reached.add(focus.id);
    }
  }
  for (const id of ["chats-open", "new", "message", "map", "theme", "Machine", "Settings", "Regenerate", "Edit"]) {
    assert.ok(reached.has(id), `${id} is not reached by Tab`);
  }

  await page.keyboard.press("Escape");
  await page.locator("#chats-open").focus();
  await page.keyboard.press("Enter");
  await page.locator("#chats").waitFor();
  await until(async () => (await page.locator("#chats-list li").count()) >= 2, "both chats are listed");
  await page.keyboard.press("Escape");
  await page.locator("#chats").waitFor({ state: "hidden" });
  await page.locator("#theme").focus();
  await page.keyboard.press("/");
  assert.equal(await page.evaluate(() => document.activeElement.id), "message");
});

test("every control has a name", async () => {
  for (const view of ["machine", "settings"]) {
    if ((await page.evaluate(() => document.body.dataset.view)) !== view) await page.locator(`.views [data-view=${view}]`).click();
    const nameless = await page.evaluate(() =>
      [...document.querySelectorAll("button, input, textarea, select, canvas, summary, [role]")]
        .filter((element) => element.checkVisibility())
        .filter((element) => {
          const labels = [...(element.labels ?? [])].map((label) => label.textContent).join("");
          return !(element.getAttribute("aria-label") || labels || element.textContent).trim() && element.getAttribute("role") !== "status";
        })
        .map((element) => element.outerHTML),
    );
    assert.deepEqual(nameless, []);
  }
});

test("settings are sent, wrong ones are said and are not", async () => {
  await page.getByLabel("Seed").fill("11");
  await page.getByLabel("Temperature", { exact: true }).fill("9");
  assert.match(await page.locator("#setting-temperature-hint").textContent(), /0 to 2/);
  await page.getByLabel("Top p", { exact: true }).fill("0.5");
  await page.getByLabel("Longest answer").fill("5");
  await page.getByLabel("System prompt").fill("You write stories.");
  await picture(page, "settings-light");
  await send("Again.");
  await finished();
  const { seed, top_p: topP, temperature, max_tokens: most, messages } = asked.at(-1);
  assert.deepEqual({ seed, topP, temperature, most }, { seed: 11, topP: 0.5, temperature: undefined, most: 5 });
  assert.deepEqual(messages[0], { role: "system", content: "You write stories." });
  assert.match(await lastAnswer().locator(".actions .figures").textContent(), /^[1-5] tokens?/);
  await page.getByRole("button", { name: "Reset" }).click();
  assert.equal(await page.getByLabel("Seed").inputValue(), "");
});

test("conversations stay, are exported, deleted, brought back", async () => {
  const title = await page.locator("#title").textContent();
  const text = await lastAnswer().locator(".prose").last().textContent();
  await page.reload();
  assert.equal(await page.locator("#title").textContent(), title);
  assert.equal(await lastAnswer().locator(".prose").last().textContent(), text);

  const downloading = page.waitForEvent("download");
  await page.getByRole("button", { name: "Export all chats" }).click();
  const file = await (await downloading).path();
  const exported = JSON.parse(readFileSync(file, "utf8"));
  assert.ok(exported.conversations.some((conversation) => conversation.title === title));

  await page.getByRole("button", { name: "Delete all chats" }).click();
  assert.equal(await answers().count(), 0);
  assert.equal(await page.evaluate(() => Object.keys(localStorage).some((name) => name.startsWith("esker.conversation."))), false);
  const copy = path.join(SCREENSHOTS, "chats.json");
  writeFileSync(copy, JSON.stringify(exported));
  await page.locator("#import-file").setInputFiles(copy);
  await page.getByText(/chats? imported/).waitFor();
  await page.locator("#chats-open").click();
  await page.locator("#chats-list button", { hasText: title }).first().click();
  assert.equal(await lastAnswer().locator(".prose").last().textContent(), text);
});

test("reasoning is folded, code can be copied", async () => {
  const chunk = (delta, rest = {}) => `data: ${JSON.stringify({ choices: [{ index: 0, delta, finish_reason: null, ...rest }] })}\n\n`;
  const body = [
    chunk({ role: "assistant", reasoning_content: "First *this*, then that." }),
    chunk({ content: "Here:\n\n```rust\nfn main() {}\n" }),
    chunk({ content: "```\n" }),
    chunk({}, { finish_reason: "stop", esker: { thinking: { limit: 9, injected: "Enough.", injected_tokens: 2 } } }),
    'data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":20}}\n\n',
    "data: [DONE]\n\n",
  ].join("");
  await page.route("**/v1/chat/completions", (route) => route.fulfill({ contentType: "text/event-stream", body }), { times: 1 });
  await page.context().grantPermissions(["clipboard-read", "clipboard-write"], { origin: url });
  await send("Think, then write code.");
  await finished();
  const reasoning = lastAnswer().locator("details.reasoning");
  assert.equal(await reasoning.evaluate((details) => details.open), false);
  assert.match(await reasoning.locator("summary").textContent(), /ended at its budget/);
  assert.equal(await reasoning.getByText("First").isVisible(), false);
  await reasoning.locator("summary").press("Enter");
  await reasoning.locator("em", { hasText: "this" }).waitFor();
  assert.equal(await lastAnswer().locator("pre code").textContent(), "fn main() {}");
  await lastAnswer().getByRole("button", { name: "Copy rust code" }).press("Enter");
  await until(async () => (await page.evaluate(() => navigator.clipboard.readText())) === "fn main() {}", "the code is in the clipboard");
});

test("text of the model stays text", async () => {
  const found = await page.evaluate(async () => {
    const { MarkdownView } = await import("/page/markdown.js");
    const show = (text) => {
      const element = document.createElement("div");
      new MarkdownView(element).update(text);
      return element;
    };
    const hostile = show(
      "<img src=x onerror=alert(1)> <script>alert(1)</script> [a](javascript:alert(1)) ![b](https://example.org/b.png)\n\n```html\n<b onclick=x>\n```",
    );
    const rich = show("# T\n\n**b** *i* `c` ~~d~~ [l](https://example.org/)\n\n1. x\n   - y\n\n| a | b |\n| - | -: |\n| 1 | 2 |\n\n> q\n\n```rust\nfn f() {}\n```");
    const times = ["*", "_", "[", "](", "`", "``a`", "> ", "- ", "**a ", "<", "| a ", "#", "~~", "![", "\\", "h", " \t", "1. "].map((part) => {
      const start = performance.now();
      show(part.repeat(Math.ceil(100_000 / part.length)));
      return [part, performance.now() - start];
    });
    return {
      active: hostile.querySelectorAll("img, script, [onclick], [onerror], b").length,
      links: [...hostile.querySelectorAll("a")].map((a) => a.href),
      text: hostile.textContent,
      tags: ["h3", "strong", "em", "code", "del", "a", "ol ul", "table td.to-right", "blockquote", "figure pre code .hl-k"].filter((tag) => !rich.querySelector(tag)),
      slow: times.filter(([, ms]) => ms > 2000),
    };
  });
  assert.equal(found.active, 0);
  assert.deepEqual(found.links, ["https://example.org/b.png"]);
  assert.ok(found.text.includes("<img src=x onerror=alert(1)>"));
  assert.deepEqual(found.tags, []);
  assert.deepEqual(found.slow, []);
});

test("a server that goes away is said, and comes back", async () => {
  await page.route("**/api/state", (route) => route.abort());
  await page.getByText("Not reachable").waitFor();
  await page.unroute("**/api/state");
  await page.locator(".pulse.ready").waitFor();
  complaints.splice(0, Infinity, ...complaints.filter((text) => !text.includes("net::ERR_FAILED")));
});

test("a busy server is asked again, an error is shown", async () => {
  let refusals = 0;
  const refuse = (route) => {
    refusals += 1;
    const body = JSON.stringify({ error: { message: "too many requests are waiting", type: "rate_limit_error", param: null, code: null } });
    return route.fulfill({ status: 429, headers: { "Retry-After": "1" }, contentType: "application/json", body });
  };
  await page.route("**/v1/chat/completions", refuse, { times: 1 });
  await send("Busy?");
  await page.getByText("The server is busy").waitFor();
  await finished();
  assert.equal(refusals, 1);
  assert.equal(await lastAnswer().locator(".problem").isHidden(), true);
  const fail = (route) => route.fulfill({ status: 500, contentType: "application/json", body: '{"error":{"message":"the disk is gone"}}' });
  await page.route("**/v1/chat/completions", fail, { times: 1 });
  await send("And now?");
  await page.locator(".problem", { hasText: "the disk is gone" }).waitFor();
  await finished();
  complaints.splice(0, Infinity, ...complaints.filter((text) => !/status of (429|500)/.test(text)));
});

test("pictures: dark, narrow", async () => {
  const wide = await open({ scheme: "dark" });
  await wide.getByLabel("Message", { exact: true }).fill("Tell me about the sea.");
  await wide.keyboard.press("Enter");
  await wide.locator(".message.answer .actions .figures").filter({ hasText: "tok/s" }).waitFor();
  await picture(wide, "machine-dark");
  await wide.context().close();

  const phone = await open({ width: 390, height: 844, scale: 2, touch: true });
  await phone.getByLabel("Message", { exact: true }).fill("Tell me about the sea.");
  await phone.getByRole("button", { name: "Send" }).tap();
  await phone.locator(".message.answer .actions .figures").filter({ hasText: "tok/s" }).waitFor();
  await picture(phone, "phone-chat");
  await phone.locator(".views [data-view=machine]").tap();
  await phone.locator("#map").waitFor();
  await picture(phone, "phone-machine");
  const overflow = await phone.evaluate(() => document.documentElement.scrollWidth - innerWidth);
  assert.ok(overflow <= 0, "nothing sticks out to the side");
  await phone.context().close();
});

test("no errors in the console, no requests to elsewhere", () => {
  assert.deepEqual(complaints, []);
});
