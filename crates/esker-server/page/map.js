// The expert map: a picture of layers × experts, kept up to date by the server's events.

import { events, request } from "./api.js";
import { byId, count, h, percent, plural, setText } from "./dom.js";

/// Shades of a ramp: more could not be told apart.
const SHADES = 20;
/// How long a cell shows that it was just read, and in how many steps that fades.
const FLASH_MS = 900;
const FLASHES = 3;
const FADE_MS = FLASH_MS / FLASHES;
/// Span of the rate that is called recent.
const RECENT_MS = 10_000;
const RETRY_MS = [500, 1000, 2000, 5000, 10_000];

// Geometry in CSS pixels.
const LABELS = 26;
const BARS = 72;
const GAP = 10;
const CELL_MIN = 3;
const CELL_HIGH = 15;
const MAP_HIGH = 150;

export class ExpertMap {
  constructor() {
    this.canvas = byId("map");
    this.context = this.canvas.getContext("2d");
    this.frame = byId("map-frame");
    this.cursor = byId("map-cursor");
    this.readout = byId("map-readout");
    this.table = byId("map-table");
    this.tableBox = byId("map-table-box");
    this.state = null;
    this.chosen = null;
    this.recent = [];
    this.timer = null;
    this.stream = null;
    new ResizeObserver(() => this.layout()).observe(this.frame);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.repaint());
    this.listen();
    document.addEventListener("visibilitychange", () => (document.hidden ? this.disconnect() : this.connect()));
    this.connect();
  }

  // The connection

  /// Listens as long as the page is seen; after a break tries again, ever less often.
  async connect() {
    if (this.stream || document.hidden) return;
    const stream = new AbortController();
    this.stream = stream;
    for (let failures = 0; !stream.signal.aborted; ) {
      try {
        const response = await request("/api/map", { signal: stream.signal, accept: "text/event-stream" });
        for await (const { event, data } of events(response)) {
          failures = 0;
          if (event === "map") this.take(JSON.parse(data));
        }
      } catch (error) {
        if (stream.signal.aborted) return;
        if (error.status === 404) {
          this.none("This server shows no map.");
          return;
        }
      }
      await new Promise((resolve) => setTimeout(resolve, RETRY_MS[Math.min(failures, RETRY_MS.length - 1)]));
      failures += 1;
    }
  }

  disconnect() {
    this.stream?.abort();
    this.stream = null;
  }

  /// Takes one event of the server.
  take(map) {
    if (!(map.n_expert > 0) || !(map.n_layer > 0)) {
      this.none("This model has no experts: every token uses all of its weights, and all of them are in memory.");
      return;
    }
    const { n_layer: layers, n_expert: experts } = map;
    const cells = layers * experts;
    const first = this.state === null || this.state.layers !== layers || this.state.experts !== experts;
    if (first) {
      this.state = {
        layers,
        experts,
        resident: new Uint8Array(cells),
        hot: new Uint8Array(cells),
        readAt: new Float64Array(cells).fill(-Infinity),
        shade: new Uint8Array(cells),
      };
      this.recent = [];
    }
    const { state } = this;
    state.all = map.all_resident === true;
    // Not every layer has experts, or as many.
    state.count = map.experts?.length === layers ? numbers(map.experts, layers) : new Array(layers).fill(experts);
    unpackBits(map.resident, state);
    const hot = fromBase64(map.hot ?? "");
    if (hot.length === cells) state.hot.set(hot);
    state.hits = numbers(map.hits, layers);
    state.ahead = numbers(map.read_ahead_hits, layers);
    state.misses = numbers(map.misses, layers);
    const now = performance.now();
    if (!first) {
      for (const [layer, expert] of map.read ?? []) {
        if (layer < layers && expert < experts) state.readAt[layer * experts + expert] = now;
      }
    }
    byId("map-box").hidden = false;
    byId("map-none").hidden = true;
    if (first) this.layout();
    else this.paint();
    this.showRates(now);
    this.showReadout();
    this.showTable();
  }

  none(text) {
    this.state = null;
    byId("map-box").hidden = true;
    byId("map-none").hidden = false;
    setText(byId("map-none"), text);
  }

  // The picture

  /// Sizes: a layer takes as many lines as its experts need to be told apart.
  layout() {
    const { state } = this;
    const width = this.frame.clientWidth;
    if (!state || width === 0) return;
    const room = Math.max(60, width - LABELS - GAP - BARS);
    const lines = Math.ceil((state.experts * CELL_MIN) / room);
    const columns = Math.ceil(state.experts / lines);
    const cell = Math.floor((room / columns) * 4) / 4;
    const high = Math.max(Math.min(CELL_HIGH, MAP_HIGH / (state.layers * lines)), Math.min(cell, CELL_HIGH));
    const between = lines > 1 ? 3 : high > 5 ? 2 : 1;
    const ratio = Math.max(1, window.devicePixelRatio || 1);
    const whole = (n) => Math.max(1, Math.round(n * ratio)) / ratio;
    this.size = { width, lines, columns, cell, high: whole(high), pitch: whole(high) * lines + whole(between), ratio };
    this.size.mapWidth = columns * cell;
    this.size.height = Math.ceil(this.size.pitch * state.layers);
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(this.size.height * ratio);
    this.canvas.style.height = `${this.size.height}px`;
    this.repaint();
    this.showCursor();
  }

  /// Everything anew: after a change of size or of colours.
  repaint() {
    if (!this.state || !this.size) return;
    this.readColours();
    const { context, size, state } = this;
    context.setTransform(size.ratio, 0, 0, size.ratio, 0, 0);
    context.clearRect(0, 0, size.width, size.height);
    context.fillStyle = this.colours.text;
    context.font = `10px ${getComputedStyle(this.canvas).fontFamily}`;
    context.textAlign = "right";
    context.textBaseline = "middle";
    const every = Math.ceil(12 / size.pitch);
    for (let layer = 0; layer < state.layers; layer += every) {
      context.fillText(String(layer), LABELS - 6, Math.max(6, layer * size.pitch + Math.min(size.pitch, 14) / 2));
    }
    state.shade.fill(255);
    this.paint();
  }

  /// Draws cells whose shade changed, and the bars. While something fades, comes back.
  paint() {
    const { state, size, context } = this;
    if (!size || !this.colours) return;
    const now = performance.now();
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    // Cells begin on whole pixels of the screen; small ones touch, since a gap would take most of their colour.
    const gap = size.cell * size.ratio < 5 ? 0 : Math.max(1, Math.round(size.ratio * 0.75)) / size.ratio;
    const snap = (n) => Math.round(n * size.ratio) / size.ratio;
    let fading = false;
    for (let i = 0; i < state.shade.length; i += 1) {
      if (!this.exists(i)) continue;
      const age = now - state.readAt[i];
      let shade;
      if (age < FLASH_MS) {
        fading = true;
        // What was read and has lost its place again is seen, but paler.
        shade = 2 * SHADES + (state.resident[i] ? 0 : FLASHES) + (still ? 0 : Math.min(FLASHES - 1, Math.floor(age / FADE_MS)));
      } else {
        shade = (state.resident[i] ? SHADES : 0) + Math.floor((state.hot[i] * SHADES) / 256);
      }
      if (shade === state.shade[i]) continue;
      state.shade[i] = shade;
      const { x, y } = this.place(i);
      context.fillStyle = this.colours.shades[shade];
      const left = snap(x);
      context.fillRect(left, y, snap(x + size.cell) - left - gap, size.high);
    }
    this.paintBars();
    clearTimeout(this.timer);
    if (fading) this.timer = setTimeout(() => this.state && this.paint(), FADE_MS);
  }

  /// Beside each layer how its lookups went: found, read ahead in time, waited for.
  paintBars() {
    const { state, size, context, colours } = this;
    const left = LABELS + size.mapWidth + GAP;
    const wide = size.width - left;
    context.clearRect(left - 1, 0, wide + 1, size.height);
    for (let layer = 0; layer < state.layers; layer += 1) {
      const total = state.hits[layer] + state.ahead[layer] + state.misses[layer];
      const y = layer * size.pitch;
      const high = Math.max(1, size.pitch - (size.pitch > 4 ? 2 : 1));
      context.fillStyle = colours.track;
      context.fillRect(left, y, wide, high);
      if (total === 0) continue;
      const hit = (wide * state.hits[layer]) / total;
      const ahead = (wide * state.ahead[layer]) / total;
      context.fillStyle = colours.hit;
      context.fillRect(left, y, hit, high);
      context.fillStyle = colours.ahead;
      context.fillRect(left + hit, y, ahead, high);
      context.fillStyle = colours.miss;
      context.fillRect(left + hit + ahead, y, wide - hit - ahead, high);
    }
  }

  /// Colours are those of the legend, so that both always agree, in every theme.
  readColours() {
    const of = (id) => rgb(getComputedStyle(byId(id)).backgroundColor);
    const disk = of("key-disk");
    const cold = of("key-cold");
    const hot = of("key-hot");
    const read = of("key-read");
    const shades = [];
    for (let i = 0; i < SHADES; i += 1) shades.push(mix(disk, hot, (i / (SHADES - 1)) * 0.22));
    for (let i = 0; i < SHADES; i += 1) shades.push(mix(cold, hot, (i / (SHADES - 1)) ** 0.8));
    for (let i = 0; i < FLASHES; i += 1) shades.push(mix(read, cold, (i / FLASHES) * 0.6));
    for (let i = 0; i < FLASHES; i += 1) shades.push(mix(disk, read, 0.4 * (1 - i / FLASHES)));
    const css = (id) => getComputedStyle(byId(id)).backgroundColor;
    this.colours = {
      shades,
      text: getComputedStyle(this.readout).color,
      track: css("key-disk"),
      hit: css("key-hit"),
      ahead: css("key-ahead"),
      miss: css("key-miss"),
    };
  }

  /// Whether the layer has this expert.
  exists(i) {
    const { state } = this;
    return i % state.experts < state.count[Math.floor(i / state.experts)];
  }

  /// Where a cell is drawn.
  place(i) {
    const { state, size } = this;
    const layer = Math.floor(i / state.experts);
    const expert = i % state.experts;
    const line = Math.floor(expert / size.columns);
    return { x: LABELS + (expert % size.columns) * size.cell, y: layer * size.pitch + line * size.high };
  }

  // Pointing at it

  listen() {
    this.canvas.addEventListener("pointermove", (event) => this.choose(this.at(event.offsetX, event.offsetY)));
    this.canvas.addEventListener("pointerdown", (event) => this.choose(this.at(event.offsetX, event.offsetY)));
    this.canvas.addEventListener("pointerleave", (event) => event.pointerType === "mouse" && this.choose(null));
    this.canvas.addEventListener("focus", () => this.chosen ?? this.choose({ layer: 0, expert: 0 }));
    this.canvas.addEventListener("blur", () => this.choose(null));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.tableBox.addEventListener("toggle", () => this.showTable());
  }

  at(x, y) {
    const { state, size } = this;
    if (!state || !size || y < 0) return null;
    const layer = Math.floor(y / size.pitch);
    if (layer >= state.layers) return null;
    const line = Math.min(size.lines - 1, Math.floor((y - layer * size.pitch) / size.high));
    const column = Math.floor((x - LABELS) / size.cell);
    const expert = line * size.columns + column;
    const inside = x >= LABELS && column < size.columns && expert < state.count[layer];
    return { layer, expert: inside ? expert : null };
  }

  key(event) {
    if (!this.state) return;
    const { layers, experts } = this.state;
    let { layer, expert } = this.chosen ?? { layer: 0, expert: 0 };
    expert ??= 0;
    const moves = {
      ArrowRight: [0, 1],
      ArrowLeft: [0, -1],
      ArrowDown: [1, 0],
      ArrowUp: [-1, 0],
      PageDown: [8, 0],
      PageUp: [-8, 0],
      Home: [0, -experts],
      End: [0, experts],
    };
    const move = moves[event.key];
    if (!move) return;
    event.preventDefault();
    layer = Math.min(Math.max(layer + move[0], 0), layers - 1);
    const last = this.state.count[layer] - 1;
    expert = last < 0 ? null : Math.min(Math.max(expert + move[1], 0), last);
    this.choose({ layer, expert });
  }

  choose(place) {
    this.chosen = place;
    this.showCursor();
    this.showReadout();
  }

  showCursor() {
    const { chosen, size, state, cursor } = this;
    cursor.hidden = !chosen || !size || !state;
    if (cursor.hidden) return;
    const whole = chosen.expert === null;
    const { x, y } = this.place(chosen.layer * state.experts + (chosen.expert ?? 0));
    cursor.style.left = `${x - 2}px`;
    cursor.style.top = `${y - 2}px`;
    cursor.style.width = `${(whole ? size.mapWidth : size.cell) + 3}px`;
    cursor.style.height = `${(whole ? size.pitch : size.high) + 3}px`;
  }

  showReadout() {
    const { chosen, state } = this;
    if (!chosen || !state || chosen.layer >= state.layers) {
      setText(this.readout, "Point at the map, or focus it and use the arrow keys.");
      return;
    }
    const { layer, expert } = chosen;
    const parts = [];
    if (state.count[layer] === 0) {
      parts.push(`Layer ${layer}: no experts, always in memory`);
    } else if (expert === null) {
      parts.push(`Layer ${layer}: ${count(this.residentOf(layer))} of ${count(state.count[layer])} in memory`);
    } else {
      const i = layer * state.experts + expert;
      const use = state.hot[i] === 0 ? "not used of late" : state.hot[i] < 86 ? "used at times" : state.hot[i] < 171 ? "used often" : "used very often";
      const read = performance.now() - state.readAt[i] < RECENT_MS ? ", just read" : "";
      parts.push(`Layer ${layer}, expert ${expert}: ${state.resident[i] ? "in memory" : "on disk"}, ${use}${read}`);
    }
    const total = state.hits[layer] + state.ahead[layer] + state.misses[layer];
    if (total > 0) {
      parts.push(`layer found ${percent(state.hits[layer] / total)}, read ahead ${percent(state.ahead[layer] / total)} of ${plural(total, "lookup")}`);
    }
    setText(this.readout, parts.join(" · "));
  }

  // The numbers

  residentOf(layer) {
    const { resident, experts } = this.state;
    let n = 0;
    for (let i = layer * experts; i < (layer + 1) * experts; i += 1) n += resident[i];
    return n;
  }

  showRates(now) {
    const { state } = this;
    const sums = { at: now, hits: sum(state.hits), ahead: sum(state.ahead), misses: sum(state.misses) };
    // The counts of the server begin anew when it does.
    if (this.recent.length > 0 && this.recent.at(-1).hits > sums.hits) this.recent = [];
    this.recent.push(sums);
    while (this.recent.length > 2 && now - this.recent[1].at > RECENT_MS) this.recent.shift();
    const total = sums.hits + sums.ahead + sums.misses;
    const before = this.recent[0];
    const lately = {
      found: sums.hits + sums.ahead - before.hits - before.ahead,
      total: total - before.hits - before.ahead - before.misses,
    };
    const resident = state.resident.reduce((n, bit) => n + bit, 0);
    const cells = sum(state.count);
    setText(byId("map-rate"), total > 0 ? percent((sums.hits + sums.ahead) / total) : "–");
    setText(byId("map-recent"), lately.total > 0 ? percent(lately.found / lately.total) : "–");
    setText(byId("map-ahead"), total > 0 ? percent(sums.ahead / total) : "–");
    setText(byId("map-resident"), state.all ? "all" : percent(resident / cells));
    setText(byId("map-size"), `${plural(state.layers, "layer")} × ${plural(state.experts, "expert")}`);
    const rate = total > 0 ? `, ${percent((sums.hits + sums.ahead) / total)} of lookups found in memory` : "";
    this.canvas.setAttribute(
      "aria-label",
      `Expert map: ${plural(state.layers, "layer")} of ${plural(state.experts, "expert")}, ${count(resident)} of ${count(cells)} in memory${rate}. Arrow keys move from expert to expert.`,
    );
  }

  /// The same as text; only while it is open.
  showTable() {
    const { state } = this;
    if (!this.tableBox.open || !state) return;
    if (this.table.rows.length !== state.layers) {
      const cells = () => Array.from({ length: 5 }, () => h("td"));
      this.table.replaceChildren(
        ...Array.from({ length: state.layers }, (_, layer) => h("tr", {}, h("th", { scope: "row" }, String(layer)), ...cells())),
      );
    }
    for (let layer = 0; layer < state.layers; layer += 1) {
      const total = state.hits[layer] + state.ahead[layer] + state.misses[layer];
      const texts = [
        state.count[layer] === 0 ? "no experts" : `${count(this.residentOf(layer))} of ${count(state.count[layer])}`,
        count(state.hits[layer]),
        count(state.ahead[layer]),
        count(state.misses[layer]),
        total > 0 ? percent((state.hits[layer] + state.ahead[layer]) / total) : "–",
      ];
      texts.forEach((text, i) => setText(this.table.rows[layer].cells[i + 1], text));
    }
  }
}

const sum = (list) => list.reduce((a, b) => a + b, 0);

/// A list of the length that is needed, whatever came.
function numbers(list, n) {
  return Array.from({ length: n }, (_, i) => Number(list?.[i]) || 0);
}

function fromBase64(text) {
  return Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
}

/// Bits, least significant first, each layer padded to whole bytes.
function unpackBits(text, { layers, experts, resident }) {
  const packed = fromBase64(text);
  const stride = Math.ceil(experts / 8);
  for (let layer = 0; layer < layers; layer += 1) {
    for (let expert = 0; expert < experts; expert += 1) {
      resident[layer * experts + expert] = (packed[layer * stride + (expert >> 3)] >> (expert & 7)) & 1;
    }
  }
}

function rgb(css) {
  return (css.match(/[\d.]+/g) ?? [0, 0, 0]).slice(0, 3).map(Number);
}

function mix(a, b, share) {
  return `rgb(${a.map((value, i) => Math.round(value + (b[i] - value) * share)).join(" ")})`;
}
