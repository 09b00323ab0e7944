// One message on screen.

import { chosen } from "./conversations.js";
import { copyText, count, digits, duration, h, plural, setText } from "./dom.js";
import { MarkdownView } from "./markdown.js";

const FINISH = {
  length: "ended by the length limit",
  stopped: "stopped",
  content_filter: "ended by the server",
};

/// A message of the person: text as it was typed, and a way to change it.
export class UserView {
  /// `onEdit(text)` is called with the new text.
  constructor(message, { onEdit }) {
    this.message = message;
    this.onEdit = onEdit;
    this.text = h("div", { class: "bubble" }, message.content);
    this.edit = h("button", { type: "button", class: "quiet small", onclick: () => this.startEdit() }, "Edit");
    const copy = h("button", { type: "button", class: "quiet small", onclick: () => copyText(message.content, copy) }, "Copy");
    this.actions = h("div", { class: "actions" }, copy, this.edit);
    this.element = h("li", { class: "message user" }, h("h3", { class: "unseen" }, "You"), this.text, this.actions);
  }

  setBusy(busy) {
    this.edit.disabled = busy;
  }

  startEdit() {
    const field = h("textarea", { rows: Math.min(12, this.message.content.split("\n").length + 1), "aria-label": "Your message" });
    field.value = this.message.content;
    const close = () => {
      form.replaceWith(this.text);
      this.actions.hidden = false;
    };
    const form = h(
      "form",
      { class: "edit" },
      field,
      h("p", { class: "hint" }, "Everything after this message is replaced."),
      h(
        "div",
        { class: "row end" },
        h("button", { type: "button", class: "quiet", onclick: () => (close(), this.edit.focus()) }, "Cancel"),
        h("button", { type: "submit", class: "primary" }, "Send again"),
      ),
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      if (field.value.trim() === "" || this.edit.disabled) return;
      close();
      this.onEdit(field.value);
    });
    form.addEventListener("keydown", (event) => {
      if (event.key === "Escape") {
        event.stopPropagation();
        close();
        this.edit.focus();
      } else if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
        form.requestSubmit();
      }
    });
    this.text.replaceWith(form);
    this.actions.hidden = true;
    field.focus();
  }
}

/// An answer: reasoning folded, text, what it cost, what can be done with it.
export class AnswerView {
  /// `onRegenerate()`, `onChoose(index)`.
  constructor(message, { onRegenerate, onChoose }) {
    this.message = message;
    this.onChoose = onChoose;
    this.thought = h("div", { class: "prose" });
    this.thoughtView = new MarkdownView(this.thought);
    this.summary = h("span");
    this.reasoning = h("details", { class: "reasoning", hidden: true }, h("summary", {}, this.summary), this.thought);
    // Folded reasoning is not laid out until somebody looks.
    this.reasoning.addEventListener("toggle", () => this.renderThought());
    this.body = h("div", { class: "prose" });
    this.view = new MarkdownView(this.body);
    this.waiting = h("p", { class: "waiting", hidden: true }, h("span", { class: "dots", "aria-hidden": "true" }, h("i"), h("i"), h("i")), h("span"));
    this.problem = h("p", { class: "problem", hidden: true });
    this.again = h("button", { type: "button", class: "quiet small again", onclick: onRegenerate }, "Regenerate");
    const copy = h("button", { type: "button", class: "quiet small", onclick: () => copyText(chosen(message).content, copy) }, "Copy");
    this.previous = h("button", { type: "button", class: "quiet small", "aria-label": "Earlier answer", onclick: () => this.step(-1) }, "‹");
    this.next = h("button", { type: "button", class: "quiet small", "aria-label": "Later answer", onclick: () => this.step(1) }, "›");
    this.which = h("span");
    this.variants = h("span", { class: "variants", hidden: true }, this.previous, this.which, this.next);
    this.figures = h("span", { class: "figures" });
    this.actions = h("div", { class: "actions" }, this.variants, copy, this.again, this.figures);
    this.element = h(
      "li",
      { class: "message answer" },
      h("h3", { class: "unseen" }, "Answer"),
      this.reasoning,
      this.body,
      this.waiting,
      this.problem,
      this.actions,
    );
    this.render(false);
  }

  setBusy(busy) {
    for (const button of [this.again, this.previous, this.next]) button.disabled = busy;
    if (!busy) this.showVariants();
  }

  step(by) {
    this.onChoose(this.message.chosen + by);
    this.render(false);
  }

  /// Shows the chosen variant; `streaming`: it is still being written. `waitingFor` says what for, before the first token.
  render(streaming, waitingFor = "") {
    const answer = chosen(this.message);
    this.element.classList.toggle("streaming", streaming);
    this.element.setAttribute("aria-busy", String(streaming));
    this.reasoning.hidden = !answer.reasoning;
    if (answer.reasoning) setText(this.summary, reasoningTitle(answer, streaming));
    this.renderThought(streaming);
    this.view.update(answer.content, streaming);
    this.waiting.hidden = !(streaming && answer.content === "" && (answer.reasoning === "" || waitingFor !== ""));
    setText(this.waiting.lastChild, waitingFor);
    this.problem.hidden = !answer.error;
    setText(this.problem, answer.error ?? "");
    this.actions.hidden = streaming;
    setText(this.figures, streaming ? "" : figures(answer));
    this.showVariants();
  }

  renderThought(streaming = false) {
    if (this.reasoning.open) this.thoughtView.update(chosen(this.message).reasoning, streaming);
  }

  showVariants() {
    const { variants, chosen: index } = this.message;
    this.variants.hidden = variants.length < 2;
    setText(this.which, `${index + 1} of ${variants.length}`);
    this.previous.disabled = index === 0;
    this.next.disabled = index === variants.length - 1;
  }
}

function reasoningTitle(answer, streaming) {
  if (streaming && answer.content === "") return `Thinking… ${duration(answer.reasoning_s ?? 0)}`;
  const took = answer.reasoning_s ? `Thought for ${duration(answer.reasoning_s)}` : "Reasoning";
  return answer.injected ? `${took}, ended at its budget` : took;
}

/// Tokens, speed, time to the first token: of a finished answer, or of one that is being written.
export function figures(answer) {
  const parts = [];
  if (answer.tokens) parts.push(plural(answer.tokens, "token"));
  if (answer.tokens > 1 && answer.decode_s > 0) parts.push(`${digits((answer.tokens - 1) / answer.decode_s)} tok/s`);
  if (answer.first_token_s !== undefined) parts.push(`first after ${duration(answer.first_token_s)}`);
  const prompt = answer.usage?.prompt_tokens;
  const cached = answer.usage?.prompt_tokens_details?.cached_tokens;
  if (prompt) parts.push(`prompt of ${count(prompt)}${cached ? `, ${count(cached)} reused` : ""}`);
  if (FINISH[answer.finish]) parts.push(FINISH[answer.finish]);
  return parts.join(" · ");
}
