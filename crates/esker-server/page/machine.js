// What the machine does: memory against the budget, slots and queue, speeds.

import { ServerError, request } from "./api.js";
import { byId, bytes, count, digits, duration, h, percent, plural, setText } from "./dom.js";

/// How often the server is asked: while it works, while it rests.
const BUSY_MS = 700;
const IDLE_MS = 2500;
/// Samples of the speed that are drawn.
const SAMPLES = 90;

/// Lines of the memory plan in words; one that is not here is shown by its own name.
const LINES = {
  process: "Program and vocabulary",
  dense_weights: "Dense weights",
  sequence_state: "Sequences (KV cache, states)",
  decode_scratch: "Decode scratch",
  prompt_scratch: "Prompt scratch",
  table_rows: "Embedding rows",
  disk: "Read buffers",
  expert_cache: "Expert cache tables",
  expert_arena: "Experts",
  snapshots: "Kept prefixes",
};
const WORK = { idle: "free", prefill: "reading the prompt", decode: "answering" };

export class Machine {
  /// `onState(state)` for every answer of the server, `onProblem(error)` when there was none.
  constructor({ onState, onProblem }) {
    this.onState = onState;
    this.onProblem = onProblem;
    this.speeds = [];
    this.busy = false;
    this.last = null;
    document.addEventListener("visibilitychange", () => !document.hidden && this.poll());
    this.poll();
  }

  /// The page began or ended an answer: look at once.
  setBusy(busy) {
    this.busy = busy;
    this.poll();
  }

  async poll() {
    clearTimeout(this.timer);
    const turn = {};
    this.turn = turn;
    let pause = IDLE_MS;
    try {
      const state = await (await request("/api/state")).json();
      if (turn !== this.turn) return;
      this.show(state);
      this.onState(state);
      if (this.busy || state.slots?.some((slot) => slot.state !== "idle")) pause = BUSY_MS;
    } catch (error) {
      if (turn !== this.turn) return;
      this.onProblem(error instanceof ServerError ? error : new ServerError(error.message));
    }
    if (!document.hidden) this.timer = setTimeout(() => this.poll(), pause);
  }

  show(state) {
    this.showMemory(state.memory ?? {});
    this.showSlots(state.slots ?? [], state.queue ?? {});
    this.showNumbers(state);
  }

  showMemory({ budget_bytes: budget, planned_bytes: planned, used_bytes: used, peak_bytes: peak, lines }) {
    // Until the model is loaded there is no plan.
    if (!lines) return;
    const whole = budget || Math.max(planned ?? 0, used ?? 0, peak ?? 0, 1);
    setText(byId("memory-used"), bytes(used));
    setText(byId("memory-of"), budget ? `of ${bytes(budget)} budget` : "no budget: the model is all in memory");
    setText(byId("memory-peak"), peak ? `at most so far ${bytes(peak)}` : "");
    const bar = byId("memory-bar");
    const legend = byId("memory-lines");
    const key = lines.map((line) => `${line.name} ${line.bytes}`).join(",") + whole;
    if (key !== this.memoryKey) {
      this.memoryKey = key;
      // Largest first: colours go to what matters, and the eye finds it at the left.
      const sorted = [...lines].sort((a, b) => b.bytes - a.bytes);
      bar.replaceChildren(
        ...sorted.map(({ name, bytes: size }, i) => {
          const part = h("span", { class: `part tint-${Math.min(i, 7)}`, title: `${lineName(name)}: ${bytes(size)}` });
          part.style.width = `${(100 * size) / whole}%`;
          return part;
        }),
      );
      legend.replaceChildren(
        ...sorted.map(({ name, bytes: size, what }, i) =>
          h(
            "tr",
            { title: what },
            h("th", { scope: "row" }, h("i", { class: `swatch tint-${Math.min(i, 7)}`, "aria-hidden": "true" }), lineName(name)),
            h("td", {}, bytes(size)),
            h("td", {}, percent(size / whole)),
          ),
        ),
      );
    }
    place(byId("memory-now"), used / whole);
    place(byId("memory-top"), peak / whole);
    bar.setAttribute("aria-label", `Memory: ${bytes(used)} used of ${bytes(whole)}${peak ? `, at most ${bytes(peak)} so far` : ""}`);
  }

  showSlots(slots, { waiting = 0, max = null }) {
    const working = slots.filter((slot) => slot.state !== "idle").length;
    setText(byId("slots-sum"), `${working} of ${plural(slots.length, "slot")} at work`);
    setText(byId("queue"), waiting > 0 ? `${count(waiting)} waiting` : "nobody waiting");
    byId("queue").classList.toggle("warm", waiting > 0);
    byId("queue").title = max === null ? "" : `At most ${count(max)} may wait; more are refused.`;
    const list = byId("slots");
    while (list.children.length > slots.length) list.lastChild.remove();
    while (list.children.length < slots.length) {
      list.append(h("li", {}, h("i", { class: "dot", "aria-hidden": "true" }), h("span"), h("span", { class: "figures" })));
    }
    slots.forEach((slot, i) => {
      const item = list.children[i];
      item.className = slot.state;
      setText(item.children[1], `${slot.id}  ${WORK[slot.state] ?? slot.state}`);
      const parts = [];
      if (slot.state !== "idle") {
        const reading = slot.state === "prefill" && Number.isFinite(slot.prefilled_tokens);
        parts.push(reading ? `${count(slot.prefilled_tokens)} of ${count(slot.prompt_tokens)} in` : `${count(slot.prompt_tokens)} in`);
        if (!reading) parts.push(`${count(slot.generated_tokens)} out`);
        if (slot.tokens_per_s > 0) parts.push(`${digits(slot.tokens_per_s)} tok/s`);
      }
      setText(item.children[2], parts.join(" · "));
    });
  }

  showNumbers({ stats = {}, slots = [], uptime_s: uptime, version }) {
    const now = performance.now();
    const speed = slots.reduce((all, slot) => all + (slot.state === "decode" ? (slot.tokens_per_s ?? 0) : 0), 0);
    this.speeds.push(speed);
    if (this.speeds.length > SAMPLES) this.speeds.shift();
    this.drawSpeeds();
    let reading = "";
    if (this.last && stats.bytes_read > this.last.bytes) {
      reading = ` · ${bytes(((stats.bytes_read - this.last.bytes) * 1000) / (now - this.last.at))}/s`;
    }
    this.last = { bytes: stats.bytes_read, at: now };
    setText(byId("stat-now"), speed > 0 ? digits(speed) : "–");
    setText(byId("stat-decode"), digits(stats.decode_tokens_per_s));
    setText(byId("stat-prefill"), digits(stats.prefill_tokens_per_s));
    setText(byId("stat-hit"), percent(stats.hit_rate ?? NaN));
    setText(byId("stat-read"), Number.isFinite(stats.bytes_read) ? bytes(stats.bytes_read) + reading : "–");
    setText(byId("stat-uptime"), duration(uptime));
    setText(byId("version"), version ? `Esker ${version}` : "");
  }

  drawSpeeds() {
    const top = Math.max(...this.speeds, 1);
    const step = 300 / (SAMPLES - 1);
    const from = SAMPLES - this.speeds.length;
    const points = this.speeds.map((speed, i) => `${((from + i) * step).toFixed(1)},${(39 - (37 * speed) / top).toFixed(1)}`);
    byId("speed-line").setAttribute("points", points.join(" "));
    byId("speed-area").setAttribute("points", `${(from * step).toFixed(1)},40 ${points.join(" ")} 300,40`);
  }
}

function lineName(name) {
  return Object.hasOwn(LINES, name) ? LINES[name] : name.replaceAll("_", " ");
}

function place(mark, share) {
  mark.hidden = !(share > 0);
  mark.style.left = `${Math.min(100, share * 100)}%`;
}
