// The chosen function: its numbers, how long its calls take, the slow ones, callers and callees.

import { $, ask, colour, count, functionOf, make, newest, on, percent, plural, select, state, tell, threadOf, time, when } from "./common.js";
import { parts } from "./states.js";
import { heatmap } from "./heat.js";
import { values } from "./values.js";
import { explain } from "./why.js";

const panel = $("details");
const load = newest(async f => [f, await ask("function", { f })]);
const loadCell = newest(query => ask("cell", query));
const loadSource = newest(async f => [f, await ask("source", { f })]);
const loadBar = newest((f, bar) => ask("calls", { f, bar }));

// Loads the states of a call's thread.
const loadStates = newest(async call => [call, await ask("states", { thread: call.thread, from: call.start, to: call.start + call.length })]);

let call = null;
let shown = null;
let bar = null;
// The call that was described last.
let seen = null;

function numbers(one) {
  const all = [["calls", count(one.calls)]];
  if (one.timed) all.push(["total", time(one.total)], ["self", time(one.self)], ["average", time(one.avg)], ["shortest", time(one.min)], ["longest", time(one.max)],
    ["p50", time(one.p50)], ["p90", time(one.p90)], ["p99", time(one.p99)]);
  return make("dl", {}, ...all.map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
}

// Shows the call that is chosen in the timeline.
async function drawCall() {
  const place = panel.querySelector("#call");
  if (!place) return;
  const mine = call && call.f === state.selected ? call : null;
  if (!mine || !state.summary.timed) return place.replaceChildren();
  const [, states] = (state.summary.switched && await loadStates(mine)) || [mine, null];
  if (call !== mine) return;
  const length = `${mine.cut ? "at least " : ""}${time(mine.length)}`;
  place.replaceChildren(make("h3", {}, "This call"), make("p", { class: "took" }, make("b", {}, length), make("span", { class: "soft" }, ` from ${when(mine.start)}`)), ...(states ? parts(states) : []), ...(shown?.values ? [values(mine)] : []), ...explain(mine));
  // A call that is chosen in the list below is described above it.
  if (mine !== seen) place.scrollIntoView({ block: "nearest" });
  seen = mine;
}

// Draws bars on a logarithmic scale of time; heights are square roots, so that few slow calls are
// visible.
function histogram(f, bars) {
  const [w, h, bottom] = [344, 118, 98];
  const most = Math.max(...bars.map(([, , calls]) => calls));
  const wide = w / bars.length;
  const all = bars.reduce((sum, [, , calls]) => sum + calls, 0);
  const svg = make("svg", { id: "histogram", viewBox: `0 0 ${w} ${h}`, role: "group", "aria-label": "Durations: how many calls took how long. Every bar shows its slowest calls." });
  svg.append(make("line", { x1: 0, x2: w, y1: bottom + 0.5, y2: bottom + 0.5 }));
  bars.forEach(([from, to, calls], at) => {
    if (!calls) return;
    const high = Math.max(2, Math.sqrt(calls / most) * (bottom - 8));
    const label = `${plural(calls, "call")} (${percent(calls / all)}) of ${time(from)} to ${time(to)}`;
    const act = () => inBar(f, at, at === bar);
    svg.append(make("g", {
      class: "button", role: "button", tabindex: 0, "aria-label": label, "aria-pressed": at === bar, "data-bar": at, onclick: act,
      onkeydown: event => { if (event.key === "Enter" || event.key === " ") { act(); event.preventDefault(); } },
    },
      make("title", {}, label),
      make("rect", { class: "hit", x: at * wide, y: 0, width: wide, height: bottom }),
      make("rect", { class: "bar", x: at * wide + 0.5, y: bottom - high, width: Math.max(wide - 1, 1), height: high, rx: 1.5 })));
  });
  const ends = [[0, "start", bars[0][0]], [w / 2, "middle", bars[bars.length >> 1][0]], [w, "end", bars.at(-1)[1]]];
  for (const [x, anchor, ns] of bars.length > 4 ? ends : [ends[0], ends[2]]) svg.append(make("text", { x, y: h - 6, "text-anchor": anchor }, time(ns, 1)));
  return svg;
}

async function inBar(f, at, again) {
  bar = again ? null : at;
  panel.querySelectorAll("[data-bar]").forEach(one => one.setAttribute("aria-pressed", Number(one.dataset.bar) === bar));
  const calls = again ? shown.slowest : await loadBar(f, at);
  if (!calls) return;
  const [from, to] = shown.bars[at];
  panel.querySelector("#slow").replaceWith(slow(f, calls, again ? "Slowest calls" : `Calls of ${time(from)} to ${time(to)}`));
}

// Lists the calls of a cell of the heatmap in place of the slowest ones.
async function inCell(f, query, title) {
  bar = query ? -1 : null;
  panel.querySelectorAll("[data-bar]").forEach(one => one.setAttribute("aria-pressed", false));
  const calls = query ? await loadCell({ f, ...query }) : shown.slowest;
  if (calls && panel.dataset.f === String(f)) panel.querySelector("#slow").replaceWith(slow(f, calls, query ? title : "Slowest calls"));
}

function slow(f, calls, title) {
  const rows = calls.map(([thread, start, length, depth]) => {
    const { name, tid } = threadOf(thread) || { name: "?", tid: "" };
    const go = () => tell("jump", { thread, start, length, depth, f });
    return make("tr", {}, make("td", {}, make("button", { onclick: go, title: "show it in the timeline" }, time(length))),
      make("td", {}, when(start)), make("td", { class: "soft" }, `${name} ${tid}`));
  });
  const table = rows.length ? make("table", {}, make("tr", {}, make("th", { scope: "col" }, "took"), make("th", { scope: "col" }, "began at"), make("th", { scope: "col" }, "thread")), ...rows.slice(0, 20)) : make("p", { class: "soft" }, "None has a duration.");
  const more = rows.length > 20 ? [make("button", { onclick: event => { table.append(...rows.slice(20)); event.target.remove(); } }, `${rows.length - 20} more`)] : [];
  return make("div", { id: "slow" }, make("h3", {}, title), table, ...more);
}

function relatives(title, list, none) {
  const rows = list.slice(0, 30).map(([f, calls, total]) => {
    const swatch = make("span", { class: "swatch" });
    swatch.style.background = colour(f);
    const { name, short } = functionOf(f);
    return make("tr", {}, make("td", { title: name }, make("button", { onclick: () => select(f, "details") }, swatch, short)), make("td", {}, state.summary.timed ? time(total, 1) : ""), make("td", { class: "soft" }, `${count(calls)}×`));
  });
  return make("div", {}, make("h3", {}, title), rows.length ? make("table", {}, ...rows) : make("p", { class: "soft" }, none));
}

async function draw() {
  const f = state.selected;
  panel.hidden = f == null;
  if (f == null) {
    bar = null;
    delete panel.dataset.f;
    return;
  }
  const one = functionOf(f);
  const answer = one.calls ? await load(f) : [f, { bars: [], slowest: [], callers: [], callees: [] }];
  if (!answer || state.selected !== answer[0]) return;
  shown = answer[1];
  bar = null;
  const swatch = make("span", { class: "swatch" });
  swatch.style.background = colour(f);
  const at = panel.dataset.f === String(f) ? panel.scrollTop : 0;
  panel.dataset.f = f;
  const act = (text, what, ...about) => make("button", { onclick: () => tell(what, ...about) }, text);
  const live = state.live ? [make("button", {
    role: "switch", "aria-checked": (one.is || "on") === "on", "aria-label": `${one.name} is traced`, onclick: () => tell("turn", f, (one.is || "on") !== "on"),
  })] : [];
  const full = one.short === one.name ? [] : [make("details", { class: "full soft" }, make("summary", {}, "Full name"), one.name)];
  panel.replaceChildren(
    make("div", { class: "head" }, make("div", {}, make("h2", { title: one.name }, swatch, one.short), ...full, make("span", { class: "soft" }, one.module), make("p", { id: "source", class: "soft" })), ...live, make("button", { onclick: () => select(null), "aria-label": "Close", title: "Close ( Esc )" }, "✕")),
    make("div", { class: "actions" }, act("‹ Previous call", "next", true), act("Next call ›", "next", false),
      make("button", { onclick: () => { tell("show", "flame"); tell("flame", "callees"); } }, "What it calls"),
      make("button", { onclick: () => { tell("show", "flame"); tell("flame", "callers"); } }, "Who calls it")),
    make("div", { id: "call" }),
    make("h3", {}, "All calls"),
    numbers(one),
    ...(one.states ? parts(one.states) : []),
    ...(shown.bars.length && state.summary.timed ? [make("h3", {}, "How long its calls take"), histogram(f, shown.bars), heatmap(f, (query, title) => inCell(f, query, title))] : []),
    slow(f, state.summary.timed ? shown.slowest : [], "Slowest calls"),
    relatives("Called by", shown.callers, "No traced function."),
    relatives("Calls", shown.callees, "Nothing that is traced."));
  panel.scrollTop = at;
  loadSource(f).then(found => { if (found?.[1] && found[0] === state.selected) $("source").textContent = found[1]; });
  drawCall();
}

export const details = {
  begin() {
    // While the keyboard focus is in the panel, new data do not redraw it.
    on("select", () => { if (panel.dataset.f !== String(state.selected)) draw(); });
    on("data", () => { if (bar == null && !panel.contains(document.activeElement)) draw(); });
    on("theme", draw);
    on("call", chosen => { call = chosen; drawCall(); });
    on("live", () => {
      const own = panel.querySelector('[role="switch"]');
      if (own && state.selected != null) own.setAttribute("aria-checked", (functionOf(state.selected).is || "on") === "on");
    });
  },
};
