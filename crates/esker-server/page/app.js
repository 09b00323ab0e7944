// Start of the page: views, header, menus, and what ties the parts together.

import { forgetKey, hasKey, onKeyNeeded, request } from "./api.js";
import { Chat } from "./chat.js";
import { Conversations, toMarkdown } from "./conversations.js";
import { byId, bytes, count, digits, download, h, setText } from "./dom.js";
import { Machine } from "./machine.js";
import { ExpertMap } from "./map.js";
import { Settings } from "./settings.js";

const WIDE = matchMedia("(min-width: 62rem)");
const THEMES = { system: "as the system", light: "light", dark: "dark" };
const NOTICE_MS = 9000;

let modelName = null;

// Views

function showView(name, focus = false) {
  document.body.dataset.view = name;
  for (const button of document.querySelectorAll(".views button")) {
    button.setAttribute("aria-pressed", String(button.dataset.view === name));
  }
  if (focus && name !== "chat") byId(name === "machine" ? "machine" : "settings-panel").focus({ preventScroll: true });
}

for (const button of document.querySelectorAll(".views button")) {
  button.addEventListener("click", () => {
    const { view } = button.dataset;
    // Beside the chat, a panel is closed by the button that opened it.
    const closes = WIDE.matches && document.body.dataset.view === view;
    showView(closes ? "chat" : view, !closes);
    remember("esker.view", document.body.dataset.view);
  });
}
showView(WIDE.matches ? (recall("esker.view") ?? "machine") : "chat");

// Theme

const themeButton = byId("theme");

function showTheme() {
  themeButton.setAttribute("aria-label", `Theme: ${THEMES[document.documentElement.dataset.theme ?? "system"]}`);
  themeButton.title = themeButton.getAttribute("aria-label");
}

themeButton.addEventListener("click", () => {
  const names = Object.keys(THEMES);
  const next = names[(names.indexOf(document.documentElement.dataset.theme ?? "system") + 1) % names.length];
  if (next === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  remember("esker.theme", next);
  showTheme();
  map.repaint();
});
showTheme();

function remember(name, value) {
  try {
    localStorage.setItem(name, value);
  } catch {
    // It holds until the page is closed.
  }
}

function recall(name) {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

// Notices

let noticeTimer = null;

/// Says something in passing, perhaps with a button.
function notice(text, action = null, act = null) {
  clearTimeout(noticeTimer);
  const box = byId("notice");
  const button = byId("notice-action");
  setText(byId("notice-text"), text);
  button.hidden = !action;
  setText(button, action ?? "");
  button.onclick = () => {
    box.hidden = true;
    act?.();
  };
  box.hidden = false;
  noticeTimer = setTimeout(() => {
    box.hidden = true;
  }, NOTICE_MS);
}

// API key

onKeyNeeded(() => {
  const dialog = byId("key-dialog");
  byId("key-problem").hidden = !hasKey();
  byId("key").value = "";
  dialog.showModal();
  return new Promise((resolve) => {
    const submit = (event) => {
      event.preventDefault();
      done({ key: byId("key").value.trim(), remember: byId("key-remember").checked });
    };
    const cancel = () => done(null);
    function done(answer) {
      byId("key-form").removeEventListener("submit", submit);
      byId("key-cancel").removeEventListener("click", cancel);
      dialog.removeEventListener("close", cancel);
      dialog.close();
      byId("forget-key").hidden = answer === null;
      resolve(answer);
    }
    byId("key-form").addEventListener("submit", submit);
    byId("key-cancel").addEventListener("click", cancel);
    dialog.addEventListener("close", cancel);
  });
});
byId("forget-key").hidden = !hasKey();
byId("forget-key").addEventListener("click", () => {
  forgetKey();
  byId("forget-key").hidden = true;
  notice("The key is forgotten.");
});

// The parts

const settings = new Settings();
const conversations = new Conversations((text) => notice(text));
const map = new ExpertMap();
const machine = new Machine({ onState: showState, onProblem: showProblem });
const chat = new Chat({
  conversations,
  settings,
  model: async () => modelName ?? (await (await request("/v1/models", { insist: true })).json()).data[0].id,
  onChange: (conversation) => {
    const empty = conversation.messages.length === 0;
    setText(byId("title"), empty ? "Chats" : conversation.title);
    document.title = empty ? "Esker" : `${conversation.title} · Esker`;
  },
  onBusy: (busy) => machine.setBusy(busy),
});
learnParameters();

/// What the server honours, and its own settings.
async function learnParameters() {
  try {
    const props = await (await request("/props")).json();
    const { sampling, thinking } = props.defaults ?? {};
    settings.adapt(props.endpoints?.["/v1/chat/completions"]?.honoured, { ...sampling, seed: null, thinking_budget: thinking?.budget });
  } catch {
    // All settings are offered; the server refuses by name what it does not honour.
  }
}

function showState(state) {
  const { model = {}, slots = [] } = state;
  modelName = model.name ?? modelName;
  setText(byId("model-name"), model.name ?? "");
  const facts = [model.architecture, model.file_bytes && bytes(model.file_bytes), model.context && `context ${count(model.context)}`];
  setText(byId("model-facts"), facts.filter(Boolean).join(" · "));
  const working = slots.filter((slot) => slot.state !== "idle");
  const speed = working.reduce((all, slot) => all + (slot.tokens_per_s ?? 0), 0);
  const answering = working.some((slot) => slot.state === "decode");
  if (state.health === "loading") pulse("wait", "Loading the model");
  else if (state.health === "failed") pulse("bad", "The model can’t be loaded");
  else if (state.health === "stopping") pulse("wait", "Ending");
  else if (working.length === 0) pulse("ready", "Ready");
  else if (answering) pulse("work", speed > 0 ? `${digits(speed)} tok/s` : "Answering");
  else pulse("work", "Reading");
}

function showProblem(error) {
  if (error.status === 401) pulse("bad", "Needs a key");
  else if (error.status === 503) pulse("wait", "Loading the model");
  else if (error.status === 0) pulse("bad", "Not reachable");
  else pulse("bad", `Error ${error.status}`);
  byId("pulse").title = error.message;
}

function pulse(kind, text) {
  const element = byId("pulse");
  element.className = `pulse ${kind}`;
  element.title = "";
  // A rate changes all the time: a screen reader is told only that the model answers.
  element.setAttribute("aria-label", kind === "work" ? "The model is working" : text);
  element.setAttribute("aria-live", kind === "work" ? "off" : "polite");
  setText(byId("pulse-text"), text);
}

// The menu of chats

const menu = byId("chats");

menu.addEventListener("toggle", (event) => {
  if (event.newState !== "open") return;
  const list = conversations.list();
  const current = chat.conversation.id;
  byId("chats-list").replaceChildren(
    ...list.map(({ id, title, updated }) =>
      h(
        "li",
        {},
        h(
          "button",
          { type: "button", "aria-current": id === current ? "true" : null, onclick: () => openChat(id) },
          h("span", { class: "name" }, title),
          h("time", { datetime: new Date(updated).toISOString() }, whenText(updated)),
        ),
      ),
    ),
  );
  if (list.length === 0) byId("chats-list").append(h("li", { class: "hint" }, "No chats yet."));
  const empty = chat.conversation.messages.length === 0;
  byId("delete").disabled = empty;
  byId("save-markdown").disabled = empty;
  byId("chats-list").querySelector("button")?.focus();
});

function whenText(time) {
  const date = new Date(time);
  const today = new Date().toDateString() === date.toDateString();
  return today
    ? date.toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" })
    : date.toLocaleDateString([], { day: "numeric", month: "short", year: "numeric" });
}

function openChat(id) {
  const conversation = conversations.load(id);
  menu.hidePopover();
  if (!conversation) notice("This chat is no longer there.");
  else if (id !== chat.conversation.id) chat.open(conversation);
  byId("message").focus();
}

byId("new").addEventListener("click", () => chat.startNew());
byId("save-markdown").addEventListener("click", () => {
  menu.hidePopover();
  download(`${fileName(chat.conversation.title)}.md`, "text/markdown", toMarkdown(chat.conversation));
});
byId("delete").addEventListener("click", () => {
  menu.hidePopover();
  const removed = chat.conversation;
  chat.discard();
  conversations.remove(removed.id);
  chat.startNew();
  notice("Deleted.", "Undo", () => {
    conversations.save(removed);
    chat.open(removed);
  });
});

byId("export").addEventListener("click", () => {
  const day = new Date().toISOString().slice(0, 10);
  download(`esker-chats-${day}.json`, "application/json", conversations.exportAll());
});
byId("import").addEventListener("click", () => byId("import-file").click());
byId("import-file").addEventListener("change", async ({ target }) => {
  const file = target.files[0];
  target.value = "";
  if (!file) return;
  try {
    const n = conversations.importAll(await file.text());
    notice(`${n === 1 ? "One chat" : `${n} chats`} imported.`);
    const again = conversations.load(chat.conversation.id);
    if (again && !chat.busy) chat.open(again);
  } catch (error) {
    notice(`Nothing was imported. ${error.message}`);
  }
});
byId("clear").addEventListener("click", () => {
  const removed = conversations.all();
  chat.discard();
  conversations.removeAll();
  chat.startNew();
  notice("All chats are deleted.", "Undo", () => {
    for (const conversation of removed.reverse()) conversations.save(conversation);
    if (removed.length > 0) chat.open(removed.at(-1));
  });
});

function fileName(title) {
  return title.replace(/[^\p{L}\p{N}]+/gu, "-").replace(/^-|-$/g, "").slice(0, 60) || "chat";
}
