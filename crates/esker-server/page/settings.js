// Sampling settings. An empty field is not sent: the server's own setting applies.

import { byId, h } from "./dom.js";

const KEY = "esker.settings";

/// One number each, named as the request names it.
const FIELDS = [
  {
    name: "temperature", label: "Temperature", least: 0, most: 2, step: 0.05, slider: true, rest: 0.7,
    hint: "How freely words are drawn; 0 takes the likeliest always.",
  },
  { name: "top_p", label: "Top p", least: 0, most: 1, step: 0.01, slider: true, rest: 0.95, hint: "Keep the likeliest words up to this sum of probabilities." },
  { name: "min_p", label: "Min p", least: 0, most: 1, step: 0.01, slider: true, rest: 0.05, hint: "Drop words less likely than this share of the likeliest." },
  { name: "top_k", label: "Top k", least: 0, most: 100000, step: 1, hint: "Keep this many of the likeliest; 0 keeps all." },
  { name: "seed", label: "Seed", least: 0, most: Number.MAX_SAFE_INTEGER, step: 1, hint: "The same seed, settings and text give the same answer." },
  { name: "max_tokens", label: "Longest answer", unit: "tokens", least: 1, most: 10000000, step: 1, hint: "Reasoning counts too." },
  {
    name: "thinking_budget", label: "Thinking budget", unit: "tokens", least: 0, most: 10000000, step: 1,
    hint: "Reasoning is ended after so many tokens; 0 asks for none.",
  },
];

/// The settings form, filled from what the browser keeps.
export class Settings {
  constructor() {
    this.values = readKept();
    this.fields = byId("settings-fields");
    this.rows = new Map();
    for (const field of FIELDS) this.addRow(field);
    this.system = byId("setting-system");
    this.system.value = this.values.system ?? "";
    this.system.addEventListener("input", () => this.set("system", this.system.value));
    byId("settings-reset").addEventListener("click", () => this.reset());
    byId("settings").addEventListener("submit", (event) => event.preventDefault());
  }

  /// What is added to a request: `{ system, parameters }`.
  request() {
    const parameters = {};
    for (const { name } of FIELDS) {
      if (typeof this.values[name] === "number" && !this.rows.get(name).row.hidden) parameters[name] = this.values[name];
    }
    return { system: this.values.system?.trim() ? this.values.system : null, parameters };
  }

  /// Hides what this server does not honour. `honoured` and `defaults` are of `/props`, either may be absent.
  adapt(honoured, defaults) {
    for (const [name, { row, number }] of this.rows) {
      if (honoured) row.hidden = !honoured.includes(name);
      const value = defaults?.[name];
      if (typeof value !== "number") continue;
      number.placeholder = String(Math.round(value * 1000) / 1000);
      this.rows.get(name).field.rest = value;
      this.rest(name);
    }
  }

  addRow(field) {
    const id = `setting-${field.name}`;
    const about = `${id}-hint`;
    const number = h("input", {
      id, type: "number", inputmode: field.step < 1 ? "decimal" : "numeric", placeholder: "server’s", autocomplete: "off",
      min: field.least, max: field.most, step: field.step, "aria-describedby": about,
    });
    const slider =
      field.slider &&
      h("input", { type: "range", min: field.least, max: field.most, step: field.step, "aria-label": `${field.label}, slider` });
    const hint = h("p", { class: "hint", id: about }, field.hint);
    const row = h(
      "div",
      { class: "setting" },
      h("label", { for: id }, field.label, field.unit && h("span", { class: "unit" }, ` ${field.unit}`)),
      slider,
      number,
      hint,
    );
    this.rows.set(field.name, { row, number, slider, hint, field });
    this.fields.append(row);
    this.show(field.name);
    number.addEventListener("input", () => this.take(field.name, number));
    slider?.addEventListener("input", () => {
      number.value = slider.value;
      this.take(field.name, slider);
    });
  }

  /// Reads a field; a value that can't be is said and not used.
  take(name, source) {
    const { number, slider, hint, field } = this.rows.get(name);
    const text = number.value.trim();
    const value = Number(text);
    const empty = text === "" && !number.validity.badInput;
    const wrong =
      !empty && !(value >= field.least && value <= field.most && (field.step < 1 || Number.isInteger(value)) && !number.validity.badInput);
    number.toggleAttribute("aria-invalid", false);
    if (wrong) number.setAttribute("aria-invalid", "true");
    hint.classList.toggle("wrong", wrong);
    hint.textContent = wrong ? `${field.step < 1 ? "A number" : "A whole number"} of ${field.least} to ${field.most}, please.` : field.hint;
    this.set(name, empty || wrong ? undefined : value);
    if (slider && source !== slider && !wrong) slider.value = empty ? field.rest : value;
    this.rest(name);
  }

  /// A slider whose field is empty rests, pale, at the server's setting.
  rest(name) {
    const { slider, field } = this.rows.get(name);
    const unset = this.values[name] === undefined;
    if (slider && unset) slider.value = field.rest;
    slider?.classList.toggle("unset", unset);
  }

  show(name) {
    const { number, slider, field } = this.rows.get(name);
    const value = this.values[name];
    number.value = value ?? "";
    if (slider) slider.value = value ?? field.rest;
    this.rest(name);
  }

  set(name, value) {
    if (value === undefined || value === "") delete this.values[name];
    else this.values[name] = value;
    try {
      localStorage.setItem(KEY, JSON.stringify(this.values));
    } catch {
      // They last until the page is closed.
    }
  }

  reset() {
    for (const { name } of FIELDS) {
      this.rows.get(name).number.value = "";
      this.take(name, null);
    }
    this.system.value = "";
    this.set("system", undefined);
  }
}

/// Only what can be sent: storage may hold anything.
function readKept() {
  let kept;
  try {
    kept = JSON.parse(localStorage.getItem(KEY)) ?? {};
  } catch {
    return {};
  }
  const values = {};
  for (const { name, least, most } of FIELDS) {
    if (typeof kept[name] === "number" && kept[name] >= least && kept[name] <= most) values[name] = kept[name];
  }
  if (typeof kept.system === "string") values.system = kept.system;
  return values;
}
