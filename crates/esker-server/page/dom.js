// Making elements, and numbers for people.

/// `h("button", { class: "quiet", onclick: f, "aria-label": "Close" }, "×")`. Strings become text nodes, never markup.
/// `null`, `undefined` and `false` are left out, as attributes and as children.
export function h(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else element.setAttribute(key, value === true ? "" : String(value));
  }
  element.append(...children.filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

/// The element with this id, which `index.html` has.
export function byId(id) {
  const element = document.getElementById(id);
  if (!element) throw new Error(`no element #${id}`);
  return element;
}

/// Sets text only if it differs: a screen reader hears no change, a selection stays.
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB"];

/// `1536` → `1.50 KiB`: three digits, units of 1024, as the command line writes them.
export function bytes(n) {
  if (!Number.isFinite(n)) return "–";
  let unit = 0;
  while (Math.abs(n) >= 1024 && unit < UNITS.length - 1) {
    n /= 1024;
    unit += 1;
  }
  return `${unit === 0 ? n : digits(n)} ${UNITS[unit]}`;
}

/// Three digits that count: `4.07`, `40.7`, `407`.
export function digits(n) {
  if (!Number.isFinite(n)) return "–";
  const size = Math.abs(n);
  return n.toFixed(size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2);
}

/// `0.934` → `93.4 %`; without a number, a dash.
export function percent(share) {
  return Number.isFinite(share) ? `${(share * 100).toFixed(share >= 0.9995 || share === 0 ? 0 : 1)} %` : "–";
}

/// `1234567` → `1,234,567`.
export function count(n) {
  return Number.isFinite(n) ? n.toLocaleString("en-US") : "–";
}

/// `75` → `1 min 15 s`; below ten seconds with a decimal, below one in milliseconds.
export function duration(seconds) {
  if (!Number.isFinite(seconds)) return "–";
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60} s`;
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`;
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`;
}

/// `plural(1, "slot")` → `1 slot`.
export function plural(n, noun) {
  return `${count(n)} ${noun}${n === 1 ? "" : "s"}`;
}

let announcer = null;

/// Says something to screen readers once, without showing it.
export function announce(text) {
  announcer ??= byId("announcer");
  announcer.textContent = "";
  // A change in the next frame is heard even if the text is the same as before.
  requestAnimationFrame(() => {
    announcer.textContent = text;
  });
}

/// Copies text and says so on the button that was pressed.
export async function copyText(text, button) {
  const label = button.textContent;
  try {
    // Only pages from this machine, or over TLS, have a clipboard.
    if (navigator.clipboard) await navigator.clipboard.writeText(text);
    else copySelection(text);
    button.textContent = "Copied";
    announce("Copied");
  } catch {
    button.textContent = "Not allowed";
    announce("The browser did not allow copying");
  }
  setTimeout(() => {
    button.textContent = label;
  }, 1600);
}

function copySelection(text) {
  const field = h("textarea", { class: "unseen", "aria-hidden": "true", tabindex: "-1" });
  const focused = document.activeElement;
  field.value = text;
  document.body.append(field);
  field.select();
  const done = document.execCommand("copy");
  field.remove();
  focused?.focus();
  if (!done) throw new Error("not copied");
}

/// Offers `text` as a file.
export function download(name, type, text) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  const link = h("a", { href: address, download: name });
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
