// The conversation: sending, streaming, stop, regenerate, edit.

import { ServerError, chat } from "./api.js";
import { chosen, newConversation } from "./conversations.js";
import { announce, byId, setText } from "./dom.js";
import { AnswerView, UserView, figures } from "./message.js";

/// Repaints while text streams in: often enough to read along, seldom enough to leave the processor to the model.
const REPAINT_MS = 80;
/// How often a busy server is asked again.
const RETRIES_MAX = 6;

export class Chat {
  /// `settings.request()` gives the parameters, `model()` resolves to the name of the model.
  constructor({ conversations, settings, model, onChange, onBusy }) {
    Object.assign(this, { conversations, settings, model, onChange, onBusy });
    this.list = byId("messages");
    this.scroller = byId("scroller");
    this.form = byId("composer");
    this.field = byId("message");
    this.button = byId("send");
    this.live = byId("live");
    this.newest = byId("newest");
    this.views = [];
    this.running = null;
    this.pinned = true;
    this.listen();
    this.open(conversations.current());
  }

  get busy() {
    return this.running !== null;
  }

  listen() {
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.busy) this.stop();
      else this.send(this.field.value);
    });
    this.field.addEventListener("input", () => this.showComposer());
    this.field.addEventListener("keydown", (event) => {
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        if (!this.busy) this.send(this.field.value);
      }
    });
    document.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && this.busy && !document.querySelector("dialog[open], [popover]:popover-open")) this.stop();
      const typing = event.target.closest?.("input, textarea, select, [contenteditable]");
      if (event.key === "/" && !typing && !event.ctrlKey && !event.metaKey && !event.altKey && byId("chat").checkVisibility()) {
        event.preventDefault();
        this.field.focus();
      }
    });
    this.scroller.addEventListener("scroll", () => {
      const { scrollTop, scrollHeight, clientHeight } = this.scroller;
      this.pinned = scrollHeight - scrollTop - clientHeight < 48;
      this.newest.hidden = this.pinned;
    });
    this.newest.addEventListener("click", () => {
      this.pinned = true;
      this.follow();
    });
    for (const button of document.querySelectorAll("[data-prompt]")) {
      button.addEventListener("click", () => {
        this.field.value = button.dataset.prompt;
        this.showComposer();
        this.field.focus();
      });
    }
    // An answer that is cut off by closing the page is kept as far as it came.
    window.addEventListener("pagehide", () => this.running && !this.running.discard && this.save());
  }

  /// Shows a conversation; an answer that is being written to another is stopped.
  open(conversation) {
    this.stop();
    this.conversation = conversation;
    this.conversations.setCurrent(conversation.id);
    this.pinned = true;
    this.rebuild();
    this.onChange(conversation);
  }

  /// A new, empty one; if this one is empty it is as good as new.
  startNew() {
    if (this.conversation.messages.length > 0) this.open(newConversation());
    this.field.focus();
  }

  rebuild() {
    this.views = [];
    this.list.replaceChildren();
    this.conversation.messages.forEach((message) => this.append(message));
    this.showComposer();
    this.follow();
  }

  append(message) {
    const index = this.views.length;
    const view =
      message.role === "user"
        ? new UserView(message, { onEdit: (text) => this.resend(index, text) })
        : new AnswerView(message, {
            onRegenerate: () => this.regenerate(index),
            onChoose: (variant) => {
              message.chosen = Math.min(Math.max(variant, 0), message.variants.length - 1);
              this.save();
            },
          });
    this.views.push(view);
    this.list.append(view.element);
    return view;
  }

  /// Drops the messages from `index` on.
  cut(index) {
    this.conversation.messages.length = index;
    for (const view of this.views.splice(index)) view.element.remove();
  }

  send(text) {
    if (text.trim() === "" || this.busy) return;
    this.field.value = "";
    this.add({ role: "user", content: text });
    this.answer();
  }

  resend(index, text) {
    this.cut(index);
    this.add({ role: "user", content: text });
    this.answer();
    this.field.focus();
  }

  /// Another answer in place of the one at `index`; the old one stays as a variant.
  regenerate(index) {
    if (this.busy) return;
    this.cut(index + 1);
    const message = this.conversation.messages[index];
    // One that says nothing is not worth keeping.
    message.variants = message.variants.filter((variant) => variant.content !== "" || variant.reasoning !== "");
    this.answer(message);
    this.field.focus();
  }

  add(message) {
    this.conversation.messages.push(message);
    this.pinned = true;
    return this.append(message);
  }

  /// Has the model answer what stands there, as a new message or as a new variant of `message`.
  async answer(message = null) {
    const { system, parameters } = this.settings.request();
    const before = message ? this.conversation.messages.slice(0, -1) : this.conversation.messages;
    const body = {
      messages: [...(system ? [{ role: "system", content: system }] : []), ...before.filter(isSaid).map(toRequest)],
      stream: true,
      stream_options: { include_usage: true },
      ...parameters,
    };
    const variant = { content: "", reasoning: "", tokens: 0 };
    if (message) message.variants.push(variant);
    else message = { role: "assistant", variants: [variant], chosen: 0 };
    message.chosen = message.variants.length - 1;
    const view = this.conversation.messages.includes(message) ? this.views.at(-1) : this.add(message);
    const run = { abort: new AbortController(), conversation: this.conversation, view, variant, waitingFor: "Reading the conversation…" };
    this.begin(run);
    try {
      body.model = await this.model();
      await this.stream(run, body);
    } catch (error) {
      if (error.name === "AbortError") variant.finish = "stopped";
      else variant.error = error instanceof ServerError ? error.message : `Something went wrong in the page: ${error.message}`;
    }
    this.end(run);
  }

  async stream(run, body) {
    const { variant } = run;
    for (let attempt = 0; ; attempt += 1) {
      try {
        await this.read(run, body);
        return;
      } catch (error) {
        const busy = error instanceof ServerError && error.status === 429 && attempt < RETRIES_MAX;
        if (!busy || variant.tokens > 0) throw error;
        await this.waitForTurn(run, error.retryAfter ?? 2);
      }
    }
  }

  /// The server is full: counts down and tries again.
  async waitForTurn(run, seconds) {
    for (let left = Math.ceil(seconds); left > 0; left -= 1) {
      run.waitingFor = `The server is busy: trying again in ${left} s`;
      run.view.render(true, run.waitingFor);
      await sleep(1000, run.abort.signal);
    }
    run.waitingFor = "Reading the conversation…";
  }

  async read(run, body) {
    const { variant } = run;
    const start = performance.now();
    let first = null;
    for await (const part of chat(body, run.abort.signal)) {
      const now = performance.now();
      if (part.kind === "reasoning" || part.kind === "answer") {
        if (first === null) {
          first = now;
          variant.first_token_s = (now - start) / 1000;
          run.waitingFor = "";
        }
        // Until the server has counted: a part is a token, mostly.
        variant.tokens += 1;
        variant.decode_s = (now - first) / 1000;
        if (part.kind === "reasoning") {
          variant.reasoning += part.text;
          variant.reasoning_s = (now - first) / 1000;
        } else {
          variant.content += part.text;
        }
        this.repaint(run);
      } else if (part.kind === "finish") {
        variant.finish = part.reason;
        variant.injected = part.injected;
        // The server's clock does not count the way.
        if (part.decode_s > 0) variant.decode_s = part.decode_s;
      } else if (part.kind === "usage") {
        variant.usage = part.usage;
        variant.tokens = part.usage.completion_tokens ?? variant.tokens;
      }
    }
  }

  repaint(run) {
    if (run.timer) return;
    run.timer = setTimeout(() => {
      run.timer = null;
      if (this.running !== run) return;
      run.view.render(true, run.waitingFor);
      setText(this.live, figures(run.variant));
      this.follow();
    }, REPAINT_MS);
  }

  begin(run) {
    this.running = run;
    for (const view of this.views) view.setBusy(true);
    run.view.render(true, run.waitingFor);
    setText(this.live, "");
    this.save();
    this.showComposer();
    this.follow();
    this.onBusy(true);
    announce("The model is answering.");
  }

  end(run) {
    clearTimeout(run.timer);
    // The conversation may have been closed meanwhile: what was written is kept all the same, unless it was deleted.
    if (!run.discard) this.conversations.save(run.conversation);
    if (this.running === run) {
      this.running = null;
      run.view.render(false);
      for (const view of this.views) view.setBusy(false);
      setText(this.live, "");
      this.showComposer();
      this.follow();
      this.onBusy(false);
      this.onChange(this.conversation);
      announce(run.variant.error ?? `Answer finished. ${figures(run.variant)}`);
    }
  }

  stop() {
    this.running?.abort.abort();
  }

  /// Stops an answer and keeps nothing of it: its conversation is being deleted.
  discard() {
    if (!this.running) return;
    this.running.discard = true;
    this.stop();
  }

  save() {
    if (this.conversation.messages.length === 0) return;
    this.conversations.save(this.conversation);
    this.onChange(this.conversation);
  }

  follow() {
    if (this.pinned) this.scroller.scrollTop = this.scroller.scrollHeight;
    this.newest.hidden = this.pinned;
  }

  showComposer() {
    byId("welcome").hidden = this.conversation.messages.length > 0;
    this.list.hidden = this.conversation.messages.length === 0;
    setText(this.button, this.busy ? "Stop" : "Send");
    this.button.classList.toggle("stop", this.busy);
    this.button.disabled = !this.busy && this.field.value.trim() === "";
    // Grows with the text, up to what the style allows.
    this.field.style.height = "auto";
    this.field.style.height = `${this.field.scrollHeight + 2}px`;
  }
}

/// An answer that failed or was stopped before its first word is not part of the conversation.
function isSaid(message) {
  return message.role === "user" || chosen(message).content !== "";
}

/// A message as the server wants it.
function toRequest(message) {
  return message.role === "user"
    ? { role: "user", content: message.content }
    : { role: "assistant", content: chosen(message).content };
}

function sleep(ms, signal) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(new DOMException("stopped", "AbortError"));
    });
  });
}
