// The flame graph: the time by call path, callers above, callees below.

import { $, FONT, ask, colour, count, fit, functionOf, ink, isDark, make, newest, on, percent, plural, say, select, sharpen, state, time, tip } from "./common.js";
import { waits } from "./states.js";

const ROW = 19;
const [canvas, flames, crumbs] = ["boxes", "flames", "crumbs"].map($);
const modes = [...document.querySelectorAll("[data-mode]")];
const times = [...document.querySelectorAll("[data-by]")];
const sides = [...document.querySelectorAll("[data-against]")];

let mode = "all";
let by = "wall";
// "own": changes since the base, with the widths of this trace; "base": with those of the base.
let against = "own";
let root = 0;
let graph = null;
let asked = "";
let chosen = null;
let hover = null;

const load = newest(query => ask(compares() ? "compare" : "flame", query));
const compares = () => !!state.base && against !== "none";

async function refresh(force) {
  modes.forEach(button => {
    button.setAttribute("aria-checked", button.dataset.mode === mode);
    button.tabIndex = button.dataset.mode === mode ? 0 : -1;
    if (button.dataset.mode !== "all") button.disabled = state.selected == null;
  });
  times.forEach(button => {
    button.setAttribute("aria-checked", button.dataset.by === by);
    button.tabIndex = button.dataset.by === by ? 0 : -1;
  });
  sides.forEach(button => {
    button.setAttribute("aria-checked", button.dataset.against === against);
    button.tabIndex = button.dataset.against === against ? 0 : -1;
  });
  $("against").hidden = !state.base;
  $("by").hidden = compares() ? !state.base.switched : !state.summary?.switched;
  if ($("by").hidden) by = "wall";
  if (state.selected == null && mode !== "all") return setMode("all");
  if (state.view !== "flame") return;
  const of = compares() ? { base: against === "base" ? 1 : 0 } : state.scope;
  const query = { by, ...of, ...(mode === "all" ? { root } : { f: state.selected, callers: mode === "callers" ? 1 : 0 }) };
  const now = JSON.stringify([query, against]);
  if (force || asked !== now) {
    asked = now;
    const answer = await load(query);
    if (!answer) return;
    graph = answer;
    graph.levels = [];
    graph.boxes = graph.boxes.map(([node, f, left, width, level, calls, weight, own, states, called]) => ({ node, f, left, width, level, calls, weight, own, called, ...(compares() ? { old: states } : { states }) }));
    for (const box of graph.boxes) (graph.levels[box.level] ||= []).push(box);
    graph.levels.forEach(level => level.sort((a, b) => a.left - b.left));
    chosen = hover = null;
    trail();
  }
  draw();
}

function setMode(to) {
  mode = to;
  refresh();
}

const name = (box, form = "name") => box.f == null ? box.called ?? (mode === "all" ? "all" : functionOf(state.selected)[form]) : functionOf(box.f)[form];
const weight = ns => graph.timed ? time(ns) : plural(ns, "call");

// Returns a change, with its sign and its share of the base.
function change(now, old) {
  const sign = now < old ? "\u2212" : "+";
  const share = old ? ` (${sign}${percent(Math.abs(now - old) / old)})` : "";
  return now === old ? "no change" : `${sign}${weight(Math.abs(now - old))}${share}`;
}

// Returns the colour of a change: red for more, blue for less, paler for a smaller part of the
// larger of both times.
function changed({ weight: now, old: [, old] }) {
  const part = Math.abs(now - old) / Math.max(now, old, 1);
  const hue = now > old ? 6 : 214;
  return isDark() ? `hsl(${hue} ${8 + 52 * part}% ${26 + 16 * part}%)` : `hsl(${hue} ${10 + 80 * part}% ${93 - 23 * part}%)`;
}

function trailOfChanges() {
  const [gone, fresh] = graph.alone;
  const parts = [`red: more than in ${state.base.title}, blue: less, paler: a smaller change`];
  if (fresh) parts.push(`  ·  ${weight(fresh)} on new paths`);
  if (gone) parts.push(`  ·  ${weight(gone)} on paths that are gone${against === "base" ? "" : ", which have no width here"}`);
  if (state.scope) parts.push("  ·  differences are of all time");
  if (graph.merged.some(Boolean)) parts.push(`  ·  calls by further paths are part of their callers: ${count(graph.merged[1])} here, ${count(graph.merged[0])} in the base`);
  return parts;
}

function trail() {
  const parts = [];
  if (mode === "all") {
    const last = graph.boxes[0];
    for (const [node, f] of graph.below) parts.push(make("button", { onclick: () => zoom(node) }, compares() ? f ?? "all" : f == null ? "all" : functionOf(f).short), " › ");
    if (graph.below.length) parts.push(name(last, "short"));
    else parts.push(graph.merged && !compares() ? `${count(graph.merged)} calls by further paths are part of their callers` : "a click zooms in");
  } else parts.push(mode === "callers" ? `callers of ${functionOf(state.selected).short}, innermost first` : `callees of ${functionOf(state.selected).short}, over all its callers`);
  $("changes").hidden = !compares();
  $("changes").textContent = compares() ? trailOfChanges().join("") : "";
  if (graph.unknown) parts.push(`  ·  of ${time(graph.unknown)} it is not known whether threads ran${by === "wall" ? "" : "; it is left out"}`);
  crumbs.replaceChildren(...parts);
}

function zoom(node) {
  if (mode !== "all") return;
  root = node;
  refresh();
}

function draw() {
  if (state.view !== "flame" || !graph) return;
  const w = flames.clientWidth;
  const h = Math.max(graph.levels.length * ROW + 12, flames.clientHeight - 1);
  const c = sharpen(canvas, w, h);
  const inks = ink();
  c.fillStyle = inks.paper;
  c.fillRect(0, 0, w, h);
  c.font = FONT;
  c.textBaseline = "middle";
  for (const box of graph.boxes) {
    const [a, wide, y] = [box.left * w, box.width * w, box.level * ROW + 6];
    const matches = state.filter ? name(box).toLowerCase().includes(state.filter) : state.selected == null || mode !== "all" || box.f === state.selected;
    c.globalAlpha = matches ? 1 : 0.5;
    c.fillStyle = box.old ? changed(box) : box.f == null ? inks.line : colour(box.f);
    c.fillRect(a, y, Math.max(wide - 0.7, 0.5), ROW - 1.5);
    if (wide > 28) {
      c.fillStyle = inks.ink;
      const label = fit(name(box, "short"), wide - 8);
      c.fillText(label, a + 4, y + ROW / 2 - 0.5);
      const room = wide - 8 - c.measureText(label).width;
      const share = box.old ? change(box.weight, box.old[1]) : `${weight(box.weight)}  ${percent(box.width)}`;
      if (room > c.measureText(share).width + 16) {
        c.globalAlpha *= 0.6;
        c.textAlign = "right";
        c.fillText(share, a + wide - 5, y + ROW / 2 - 0.5);
        c.textAlign = "left";
      }
    }
  }
  c.globalAlpha = 1;
  for (const [box, line] of [[hover, 1], [chosen, 2]]) {
    if (!box) continue;
    c.strokeStyle = inks.ink;
    c.lineWidth = line;
    c.strokeRect(box.left * w + 0.5, box.level * ROW + 6.5, Math.max(box.width * w - 1, 2), ROW - 2.5);
  }
}

function hit(event) {
  if (!graph) return null;
  const area = canvas.getBoundingClientRect();
  const [share, y] = [(event.clientX - area.left) / area.width, event.clientY - area.top - 6];
  return graph.levels[Math.floor(y / ROW)]?.find(box => box.left <= share && share <= box.left + box.width) || null;
}

function describeChange({ calls, weight: now, own, old: [oldCalls, old, oldOwn] }) {
  if (!calls) return `gone: ${weight(old)} and ${plural(oldCalls, "call")} in the base`;
  const both = `${weight(now)}, ${weight(old)} in the base: ${change(now, old)}`;
  const ofOwn = mode === "callers" ? "" : `; of its own ${weight(own)}: ${change(own, oldOwn)}`;
  return `${oldCalls ? both : `new: ${weight(now)}`}${oldCalls ? ofOwn : ""}; ${plural(calls, "call")}, ${count(oldCalls)} in the base`;
}

function describe(box) {
  // The whole has no calls of its own.
  if (box.old && box.node) return describeChange(box);
  if (box.old) return `${weight(box.weight)}, ${weight(box.old[1])} in the base: ${change(box.weight, box.old[1])}`;
  const own = mode === "callers" ? "" : `, ${weight(box.own)} of its own`;
  const waited = box.states ? waits(box.states) : "";
  return `${weight(box.weight)} (${percent(box.width)} of the shown time)${own}; ${plural(box.calls, "call")}${waited ? `; ${waited}` : ""}`;
}

canvas.addEventListener("pointermove", event => {
  hover = hit(event);
  if (hover) tip(event, make("b", {}, name(hover)), make("br"), describe(hover));
  else tip(event);
  draw();
});
canvas.addEventListener("pointerleave", event => { hover = null; tip(event); draw(); });
canvas.addEventListener("click", event => {
  const box = hit(event);
  if (!box) return;
  tip(event);
  chosen = box;
  if (box.f != null) select(box.f, "flame");
  if (mode === "all") zoom(box.node);
});
flames.addEventListener("keydown", event => {
  if (!graph?.boxes.length) return;
  const from = chosen || graph.boxes[0];
  const level = graph.levels[from.level];
  const near = (boxes, test) => boxes?.find(test);
  let next;
  switch (event.key) {
    case "ArrowDown": next = chosen ? near(graph.levels[from.level + 1], box => box.left >= from.left - 1e-9 && box.left < from.left + from.width) : from; break;
    case "ArrowUp": next = near(graph.levels[from.level - 1], box => box.left <= from.left + 1e-9 && from.left < box.left + box.width + 1e-9); break;
    case "ArrowRight": next = level[level.indexOf(from) + 1]; break;
    case "ArrowLeft": next = level[level.indexOf(from) - 1]; break;
    case "Enter": if (from.f != null) select(from.f, "flame"); zoom(from.node); break;
    case "Escape": if (root) { zoom(graph.below.at(-1)[0]); event.stopPropagation(); } return;
    default: return;
  }
  event.preventDefault();
  if (!next) return;
  chosen = next;
  say(`${name(next)}: ${describe(next)}`);
  const y = next.level * ROW;
  if (y < flames.scrollTop || y > flames.scrollTop + flames.clientHeight - ROW) flames.scrollTop = y - flames.clientHeight / 2;
  draw();
});
modes.forEach((button, at) => {
  button.addEventListener("click", () => setMode(button.dataset.mode));
  button.addEventListener("keydown", event => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const next = step && modes[(at + step + 3) % 3];
    if (next && !next.disabled) { setMode(next.dataset.mode); next.focus(); }
  });
});
times.forEach((button, at) => {
  button.addEventListener("click", () => { by = button.dataset.by; refresh(); });
  button.addEventListener("keydown", event => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const next = step && times[(at + step + times.length) % times.length];
    if (next) { by = next.dataset.by; refresh(); next.focus(); }
  });
});
sides.forEach((button, at) => {
  const choose = to => {
    against = to.dataset.against;
    root = 0;
    refresh();
  };
  button.addEventListener("click", () => choose(button));
  button.addEventListener("keydown", event => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const next = step && sides[(at + step + sides.length) % sides.length];
    if (next) { choose(next); next.focus(); }
  });
});
on("select", () => refresh());
on("filter", draw);
on("theme", draw);
on("data", () => { asked = ""; refresh(true); });
on("scope", () => { root = 0; refresh(); });
on("flame", to => setMode(to));
new ResizeObserver(draw).observe(flames);

export const flame = { shown: () => refresh() };
