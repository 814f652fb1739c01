// The frame of the page: tabs, search, keys, theme, and the updates of a running process.

import { $, Gone, ask, complain, count, functionOf, make, modulesByTime, newest, note, on, percent, plural, say, select, state, tell, time } from "./common.js";
import { timeline } from "./timeline.js";
import { flame } from "./flame.js";
import { functions } from "./functions.js";
import { details } from "./details.js";

const VIEWS = { timeline, flame, functions };

function show(name) {
  // While a file is being read there is nothing to show.
  if (!state.summary) return;
  state.view = name;
  for (const view of Object.keys(VIEWS)) {
    const tab = $(`tab-${view}`);
    tab.setAttribute("aria-selected", view === name);
    tab.tabIndex = view === name ? 0 : -1;
    $(view).hidden = view !== name;
  }
  VIEWS[name].shown();
}

function byFunction(rows) {
  return new Map(rows.map(row => {
    const [f, name, module, calls, total, self, avg, min, max, p50, p90, p99, p999, states] = row;
    const [cpu, , blocked] = states || [-1, -1, -1];
    const short = state.summary.short?.[f] ?? name;
    return [f, { f, name, short, module, calls, total, self, avg, min, max, p50, p90, p99, p999, states, cpu, blocked, timed: row.length > 4 }];
  }));
}

async function load(fresh) {
  const [summary, rows] = [await ask("summary", fresh ? { fresh: 1 } : {}), await ask("functions")];
  state.summary = summary;
  state.functions = byFunction(rows);
  // A running process may have functions that its newest events do not have.
  for (const [f, name, module, rate, avg, max, share, is, partial] of state.live?.rows || []) {
    const known = state.functions.get(f) || { f, name, short: name, module, calls: 0, timed: false };
    state.functions.set(f, Object.assign(known, { rate, share, is, partial, nowAvg: avg, nowMax: max }));
  }
  document.title = `${summary.title} – calltap`;
  $("title").textContent = summary.command && !state.live ? summary.command : summary.title;
  facts();
  note("file", summary.notes.join("\n"));
  tell("data");
}

// What matters most stands first: a narrow window cuts the line, and the pointer shows it whole.
function facts() {
  const { summary, live } = state;
  const parts = [];
  if (live) {
    parts.push(`${count(live.events)} events/s`);
    if (live.cost != null) parts.push(`tracing costs ${percent(live.cost)}`);
    parts.push(`${count(live.on)} on, ${count(live.known - live.on)} off`);
  } else if (summary.command) {
    parts.push(summary.title);
  }
  if (state.base) parts.push(`compared with ${state.base.title}`);
  parts.push(plural(summary.events, "event"), plural(summary.threads.length, "thread"), plural(state.functions.size, "function"), time(summary.end));
  const lost = summary.lost + (live?.lost || 0);
  $("facts").replaceChildren(...(lost ? [make("span", { class: "lost" }, `${count(lost)} LOST`), "  ·  "] : []), parts.join("  ·  "));
  $("facts").title = $("facts").textContent;
}

// Tabs.
const names = Object.keys(VIEWS);
names.forEach((name, at) => {
  const tab = $(`tab-${name}`);
  tab.addEventListener("click", () => show(name));
  tab.addEventListener("keydown", event => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    const next = names[(at + step + names.length) % names.length];
    show(next);
    $(`tab-${next}`).focus();
  });
});

// Search.
const search = $("search");
const found = $("found");
let hits = [];
let hit = -1;

function find() {
  const text = search.value.trim().toLowerCase();
  state.filter = text;
  tell("filter");
  hits = [];
  if (text) {
    const rank = name => name === text ? 0 : name.startsWith(text) ? 1 : name.split(/[^a-z0-9]+/).some(word => word.startsWith(text)) ? 2 : 3;
    hits = [...state.functions.values()].filter(one => one.name.toLowerCase().includes(text));
    const all = hits.length;
    hits = hits.map(one => [rank(one.name.toLowerCase()), one]).sort((a, b) => a[0] - b[0] || (b[1].total || 0) - (a[1].total || 0)).slice(0, 14).map(pair => pair[1]);
    say(plural(all, "function") + " found");
  }
  hit = hits.length ? 0 : -1;
  list();
}

function list() {
  const rows = hits.map((one, at) => make("li", {
    id: `hit-${at}`, role: "option", "aria-selected": at === hit,
    onmousedown: event => { event.preventDefault(); choose(one); },
  }, make("span", { class: "name", title: one.name }, one.short), make("span", { class: "soft" }, one.timed ? time(one.total) : plural(one.calls, "call"))));
  if (!rows.length && search.value.trim()) rows.push(make("li", { class: "soft" }, "no function with this in its name"));
  found.replaceChildren(...rows);
  found.hidden = !rows.length || document.activeElement !== search;
  search.setAttribute("aria-expanded", !found.hidden);
  if (hit >= 0) search.setAttribute("aria-activedescendant", `hit-${hit}`);
  else search.removeAttribute("aria-activedescendant");
}

function choose(one) {
  search.value = "";
  find();
  select(one.f, "search");
  if (state.view === "timeline") $("scroller").focus();
  say(`${one.name}, ${plural(one.calls, "call")}`);
}

search.addEventListener("input", find);
search.addEventListener("focus", () => search.value && find());
search.addEventListener("blur", () => { found.hidden = true; });
search.addEventListener("keydown", event => {
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    if (hits.length) hit = (hit + (event.key === "ArrowDown" ? 1 : -1) + hits.length) % hits.length;
    list();
    event.preventDefault();
  } else if (event.key === "Enter" && hits[hit]) {
    choose(hits[hit]);
  } else if (event.key === "Escape") {
    search.value = "";
    find();
    search.blur();
  }
});

// Theme.
const theme = $("theme");
const THEMES = ["", "light", "dark"];
function setTheme(name) {
  if (name) document.documentElement.dataset.theme = name;
  else delete document.documentElement.dataset.theme;
  theme.textContent = { "": "Auto", light: "Light", dark: "Dark" }[name];
  theme.setAttribute("aria-label", `Theme: ${theme.textContent}`);
  try { localStorage.setItem("theme", name); } catch { /* not allowed to remember */ }
  tell("theme");
}
theme.addEventListener("click", () => setTheme(THEMES[(THEMES.indexOf(document.documentElement.dataset.theme || "") + 1) % 3]));

// The legend of colours by module.
const MODULES = 12;
function legend() {
  const all = state.byModule ? [...modulesByTime()] : [];
  const sum = all.reduce((sum, [, { weight }]) => sum + weight, 0);
  const timed = state.summary?.timed;
  const item = ([module, { weight, colour }]) => {
    const swatch = make("span", { class: "swatch" });
    swatch.style.background = colour;
    return make("li", { title: timed ? `${time(weight)} of its own` : plural(weight, "call") }, swatch, module || "[unknown]", make("span", { class: "soft" }, ` ${percent(weight / Math.max(sum, 1))}`));
  };
  const rest = all.length - MODULES;
  $("modules").replaceChildren(...all.slice(0, MODULES).map(item), ...(rest > 0 ? [make("li", { class: "soft" }, plural(rest, "more module"))] : []));
  $("modules").hidden = !all.length;
}
function colourBy(module) {
  state.byModule = module;
  $("colours").setAttribute("aria-pressed", module);
  $("colours").textContent = module ? "By module" : "By function";
  tell("theme");
}
$("colours").addEventListener("click", () => colourBy(!state.byModule));
on("theme", legend);
on("data", legend);

// Keys.
$("help").addEventListener("click", () => $("keys").showModal());
addEventListener("keydown", event => {
  const typing = ["INPUT", "TEXTAREA", "SELECT"].includes(event.target.tagName);
  if (!state.summary || typing || event.ctrlKey || event.metaKey || event.altKey || $("keys").open) return;
  const own = {
    "/": () => { search.focus(); search.select(); },
    "?": () => $("keys").showModal(),
    1: () => show("timeline"), 2: () => show("flame"), 3: () => show("functions"),
    "]": () => jump(false), "[": () => jump(true), t: () => scope(!state.scope), m: () => colourBy(!state.byModule),
  }[event.key];
  if (own) {
    own();
    event.preventDefault();
  } else if (event.key === " " && state.live && event.target.tagName !== "BUTTON") {
    follow(!state.following);
    event.preventDefault();
  } else if (event.key === "Escape" && state.selected != null) {
    select(null);
  } else if (state.view === "timeline" && !event.defaultPrevented && event.target.getAttribute("role") !== "slider") {
    timeline.key(event);
  }
});

// Moves to the next or previous call of the chosen function.
async function jump(back) {
  if (state.selected == null) return say("choose a function first");
  try {
    const moment = timeline.moment();
    const next = await ask("next", { f: state.selected, ...(moment > 0 ? { at: Math.round(moment) } : {}), ...(back ? { back: 1 } : {}) });
    if (!next) return say(back ? "there is no call before" : "there is no call after");
    const [thread, start, length, depth] = next;
    show("timeline");
    timeline.jump({ thread, start, length, depth, f: state.selected });
  } catch (error) {
    complain(error);
  }
}
on("jump", call => { follow(false); show("timeline"); timeline.jump(call); });
on("next", jump);
on("show", show);

// A running process: flame graph and functions of the window that the timeline shows.
const scopeButton = $("scope");
const askScoped = newest(scope => ask("functions", scope));
let shown = null;
let soon = 0;
async function scope(is) {
  if (state.saved) return say("a saved page has flame graph and functions of all time");
  const bounds = is && shown && { from: Math.max(0, Math.floor(shown.from)), to: Math.max(1, Math.ceil(shown.to)) };
  scopeButton.setAttribute("aria-pressed", !!bounds);
  scopeButton.textContent = bounds ? `${time(bounds.to - bounds.from, 1)} shown` : "All time";
  if (!bounds) [state.scope, state.scoped] = [null, null];
  else {
    const rows = await askScoped(bounds);
    if (!rows) return;
    // The button may have been released meanwhile.
    if (scopeButton.getAttribute("aria-pressed") !== "true") return;
    [state.scope, state.scoped] = [bounds, byFunction(rows)];
    say(`${plural(rows.length, "function")} called in the time that is shown`);
  }
  tell("scope");
}
scopeButton.addEventListener("click", () => scope(!state.scope));
on("window", view => {
  shown = { ...view };
  if (!state.scope) return;
  clearTimeout(soon);
  soon = setTimeout(() => scope(!!state.scope), 250);
});

const followButton = $("follow");
function follow(is) {
  if (!state.live) return;
  state.following = is && !state.live.ended;
  followButton.setAttribute("aria-pressed", state.following);
  followButton.textContent = state.following ? "Following" : "Follow";
  if (state.following) tell("follow");
}
followButton.addEventListener("click", () => follow(!state.following));
on("stay", () => follow(false));

async function turn(f, is) {
  await ask("switch", { f, on: is ? 1 : 0 }, "POST");
  const one = functionOf(f);
  one.is = is ? "on" : "off";
  say(`${one.name} is switched ${one.is}`);
  tell("live");
}
on("turn", (f, is) => turn(f, is).catch(complain));

async function watch() {
  for (;;) {
    await new Promise(done => setTimeout(done, 1000));
    try {
      const before = state.live.number;
      state.live = await ask("live");
      if (state.live.ended) {
        await load(true);
        follow(false);
        return note("ended", "The process is watched no more; what was seen of it last stays here until calltap ends.");
      }
      if (state.live.number === before) continue;
      if (state.following) await load(true);
      else {
        for (const [f, , , rate, avg, max, share, is, partial] of state.live.rows)
          if (state.functions.has(f)) Object.assign(state.functions.get(f), { rate, share, is, partial, nowAvg: avg, nowMax: max });
        facts();
      }
      tell("live");
    } catch (error) {
      complain(error);
      if (error instanceof Gone) return follow(false);
    }
  }
}

// Links to the pages of the processes, if there are several.
async function processes() {
  const all = await ask("processes");
  if (all.length < 2) return;
  const shown = new URLSearchParams(location.search).get("process") || String(all[0][0]);
  const option = ([pid, name]) => make("option", { value: pid, selected: String(pid) === shown ? "" : null }, `${name} (${pid})`);
  $("process").replaceChildren(...all.map(option));
  $("process").hidden = false;
  $("process").addEventListener("change", event => { location.search = `?process=${event.target.value}`; });
}

// Shows the progress while a large file is being read, until all of it can be shown.
async function reading() {
  for (let first = true; ; first = false) {
    const progress = await ask("progress");
    if (!progress) return;
    const { title, done, events } = progress;
    document.title = `${title} – calltap`;
    $("title").textContent = title;
    $("facts").textContent = done < events
      ? `reading: ${count(done)} of ${plural(events, "event")} (${percent(done / events)})`
      : `${plural(events, "event")} read, putting them together …`;
    if (first) note("reading", "The trace is being read. Nothing of it is shown before all of it is known.");
    await new Promise(done => setTimeout(done, 200));
  }
}

async function begin() {
  try { setTheme(localStorage.getItem("theme") || ""); } catch { setTheme(""); }
  await reading();
  note("reading", "");
  state.live = await ask("live");
  if (state.live) await processes();
  state.base = await ask("base");
  state.following = !!state.live;
  scopeButton.hidden = state.saved;
  await load(true);
  if (state.live) {
    followButton.hidden = false;
    follow(true);
    watch();
  }
  details.begin();
  show(state.live ? "functions" : state.base ? "flame" : "timeline");
  document.body.dataset.ready = "1";
}

begin().catch(complain);
