// The timeline: calls by thread and depth. The server sends the blocks that can be drawn at the
// zoom level; blocks that were sent before are drawn until the new ones arrive.
// More than 500 lines: all of it draws from, or moves, the few variables (view, lanes, data).

import { $, ask, colour, count, firstAt, fit, FONT, functionOf, ink, make, newest, on, percent, plural, say, select, sharpen, state, tell, threadOf, time, tip, when } from "./common.js";
import { BAND, band, hatch, markAt, marks, tellAt, waits, within } from "./states.js";
import { light } from "./why.js";

const GUTTER = 190;
const RULER = 24;
const HEAD = 24;
const ROW = 17;
const GAP = 8;
// Height of a strip above the calls, with those of the chosen function.
const STRIP = 7;
// Number of levels to which a thread is folded until it is opened.
const LEVELS = 40;
const SHORTEST = 20;
// Numbers of a block in an answer.
const NUMBERS = 7;
// Width in pixels over which a call without a known end fades out.
const FADE = 14;
const AROUND = 2000;
// Nanoseconds of a running process that are shown at first.
const NEWEST = 3e9;

const [canvas, scroller, heads, spacer, overview] = ["lanes", "scroller", "heads", "spacer", "overview"].map($);

let view = { from: 0, to: 1 };
let lanes = [];
let data = null;
let skyline = null;
let chosen = null;
let hover = null;
let range = null;
let pointer = null;
let wanted = false;

const whole = () => Math.max(state.summary.end, 1);
const width = () => Math.max(1, scroller.clientWidth - GUTTER);
const x = at => GUTTER + (at - view.from) / (view.to - view.from) * width();
const at = px => view.from + (px - GUTTER) / width() * (view.to - view.from);

function layout() {
  const before = new Map(lanes.map(lane => [lane.thread, lane]));
  const processes = new Set(state.summary.threads.map(thread => thread.pid)).size;
  let top = RULER;
  lanes = state.summary.threads.map(({ id, name, tid, pid, process, depth, deeper }) => {
    const { open = true, all = false } = before.get(id) || {};
    const shown = open ? Math.min(depth, all ? depth : LEVELS) : Math.min(depth, 1);
    const lane = { thread: id, name, tid, depth, deeper, open, all, shown, top };
    lane.label = processes > 1 ? `${process}[${pid}]` : "";
    // The band of states is between the name and the calls.
    lane.rows = top + HEAD + (state.summary.switched ? BAND + 3 : 0);
    top = lane.rows + shown * ROW + GAP;
    return lane;
  });
  heads.replaceChildren(...lanes.map(lane => {
    const title = `${lane.name} ${lane.tid}${lane.label ? `, process ${lane.label}` : ""}: ${plural(lane.depth, "level")}${lane.deeper ? `; ${count(lane.deeper)} deeper calls are not shown` : ""}`;
    const head = make("button", { "aria-expanded": lane.open, title, onclick: () => fold(lane) }, make("b", {}, lane.name), ` ${lane.tid}`, lane.label ? ` · ${lane.label}` : "");
    head.style.top = `${lane.top}px`;
    return head;
  }));
  spacer.style.height = `${Math.max(0, top - scroller.clientHeight)}px`;
}

function fold(lane) {
  // A click opens a folded thread, then shows all its levels, then folds it again.
  if (!lane.open) lane.open = true;
  else if (lane.depth > LEVELS && !lane.all) lane.all = true;
  else [lane.open, lane.all] = [false, false];
  layout();
  change();
}

function visible() {
  const [top, bottom] = [scroller.scrollTop, scroller.scrollTop + scroller.clientHeight];
  return lanes.filter(lane => lane.rows + lane.shown * ROW >= top && lane.top <= bottom).map(lane => {
    const first = Math.max(0, Math.floor((top - lane.rows) / ROW));
    const last = Math.min(lane.shown - 1, Math.ceil((bottom - lane.rows) / ROW));
    return { lane, first, last: Math.max(first, last) };
  });
}

// Draws the blocks that are there after a change of the view, and requests missing ones.
function change() {
  clampView();
  draw();
  fetchSoon();
  tell("window", view);
}

function clampView() {
  let length = Math.min(Math.max(view.to - view.from, SHORTEST), whole() * 1.04);
  const room = whole() * 0.02;
  const from = Math.min(Math.max(view.from, -room), whole() + room - length);
  view = { from, to: from + length };
}

let pending = 0;
function fetchSoon() {
  if (!state.summary || state.view !== "timeline" || pending) return;
  scroller.setAttribute("aria-busy", true);
  pending = requestAnimationFrame(async () => {
    pending = 0;
    await load();
    scroller.setAttribute("aria-busy", busy || !!pending);
  });
}

let busy = false;
async function load() {
  if (busy) { wanted = true; return; }
  const span = view.to - view.from;
  const shown = visible();
  const resolution = Math.max(0, Math.floor(span / width()));
  const enough = data && data.version === version && data.from <= view.from && data.to >= view.to
    && data.resolution <= resolution * 1.01 && data.resolution * 3 >= resolution
    && data.focus === state.selected
    && shown.every(({ lane, first, last }) => { const has = data.lanes.get(lane.thread); return has && has.first <= first && has.last >= last; });
  if (enough || !shown.length) return;
  busy = true;
  const from = Math.max(0, Math.floor(view.from - span / 2));
  const to = Math.max(from + 1, Math.ceil(view.to + span / 2));
  const query = { from, to, resolution, lanes: shown.map(({ lane, first, last }) => `${lane.thread}.${Math.max(0, first - 8)}.${last + 8}`).join(",") };
  const [focus, mine] = [state.selected, version];
  if (focus != null && functionOf(focus).calls) query.focus = focus;
  try {
    const answer = await ask("timeline", query);
    data = { from, to, resolution, focus, version: mine, lanes: new Map() };
    answer.forEach((lane, at) => {
      const first = Math.max(0, shown[at].first - 8);
      data.lanes.set(lane.thread, { ...lane, first, last: shown[at].last + 8 });
    });
  } catch (error) {
    // A later change requests the blocks again.
    console.error(error);
    data ||= { from: 0, to: 0, resolution: 0, lanes: new Map() };
  }
  busy = false;
  draw();
  if (wanted) {
    wanted = false;
    await load();
  }
}
let version = 0;

function draw() {
  if (state.view !== "timeline" || !state.summary) return;
  const [w, h] = [scroller.clientWidth, scroller.clientHeight];
  const c = sharpen(canvas, w, h);
  const inks = ink();
  const top = scroller.scrollTop;
  c.fillStyle = inks.paper;
  c.fillRect(0, 0, w, h);
  c.font = FONT;
  c.textBaseline = "middle";
  const steps = ruler();
  c.strokeStyle = inks.line;
  c.beginPath();
  for (const step of steps) {
    const px = Math.round(x(step)) + 0.5;
    if (px > GUTTER) { c.moveTo(px, RULER); c.lineTo(px, h); }
  }
  c.stroke();
  c.save();
  c.beginPath();
  c.rect(GUTTER, 0, w, h);
  c.clip();
  const drawn = [];
  for (const { lane, first, last } of visible()) {
    const has = data?.lanes.get(lane.thread);
    if (!has) continue;
    strip(c, has, lane, top, inks);
    if (has.states) band(c, has.states, lane.rows - BAND - 3 - top, scale());
    marks(c, has.incidents, lane.rows - BAND - 3 - top, scale());
    for (let row = first; row <= last; row++) {
      const track = has.tracks[row - has.first];
      if (track) blocks(c, track, lane.rows + row * ROW - top, drawn, chosen?.thread === lane.thread && row >= chosen.depth ? chosen : null, has.states);
    }
  }
  // Texts are drawn last: that needs one change of colour instead of thousands.
  c.fillStyle = inks.ink;
  for (const [text, px, py, dim] of drawn) {
    c.globalAlpha = dim ? 0.55 : 1;
    c.fillText(text, px, py);
  }
  c.globalAlpha = 1;
  outline(c, chosen, top, inks.ink, 2);
  outline(c, hover, top, inks.ink, 1);
  light(c, lanes, { ...scale(), band: lane => lane.rows - BAND - 3 - top, low: lane => lane.rows + lane.shown * ROW - top });
  if (range) {
    const [a, b] = [x(range.from), x(range.to)].sort((a, b) => a - b);
    c.fillStyle = inks.accent;
    c.globalAlpha = 0.18;
    c.fillRect(a, 0, b - a, h);
    c.globalAlpha = 1;
    c.fillText(time(Math.abs(range.to - range.from)), a + 5, RULER + 12);
  }
  c.restore();
  // The gutter and the ruler are drawn above the rest.
  c.fillStyle = inks.panel;
  c.fillRect(0, 0, GUTTER - 1, h);
  c.fillStyle = inks.line;
  c.fillRect(GUTTER - 1, 0, 1, h);
  for (const lane of lanes) c.fillRect(0, lane.top - top - GAP / 2 + 1, w, 1);
  c.fillStyle = inks.panel;
  c.fillRect(GUTTER, 0, w, RULER - 1);
  c.fillStyle = inks.line;
  c.fillRect(0, RULER - 1, w, 1);
  c.fillStyle = inks.soft;
  const length = steps.length > 1 ? steps[1] - steps[0] : whole();
  for (const step of steps) if (x(step) >= GUTTER) c.fillText(label(step, length), x(step) + 4, RULER / 2);
  c.fillText(`${time(view.to - view.from, 2)} shown`, 10, RULER / 2);
  for (const lane of lanes.filter(lane => lane.open && lane.depth > lane.shown)) {
    c.fillText(`${count(lane.depth - lane.shown)} more levels`, 24, lane.rows + lane.shown * ROW - ROW / 2 - top);
  }
  minimap();
}

// Draws blocks. Calls of other functions than the chosen one are paler, except calls within the
// chosen call.
function blocks(c, track, y, texts, around, states) {
  const focus = state.selected;
  const drawn = scale();
  for (let i = firstAt(track, NUMBERS, view.from); i < track.length && track[i] <= view.to; i += NUMBERS) {
    const [start, length, f, calls, inside, cut] = [track[i], track[i + 1], track[i + 2], track[i + 3], track[i + 5], track[i + 6]];
    const a = Math.max(x(start), GUTTER - 2);
    const b = Math.min(x(start + length), scroller.clientWidth + 2);
    const wide = Math.max(b - a, 1);
    c.fillStyle = colour(f);
    const dim = focus != null && f !== focus && !(around && start >= around.start && start + length <= around.start + around.length);
    c.globalAlpha = (calls > 1 ? 0.4 + 0.6 * Math.min(1, inside / (length || 1)) : 1) * (dim ? 0.42 : 1);
    const solid = cut ? wide - Math.min(FADE, wide / 2) : wide;
    c.fillRect(a, y, solid > 3 && !cut ? solid - 0.6 : solid, ROW - 1.5);
    if (cut) for (let px = a + solid + 1; px < a + wide; px += 3) c.fillRect(px, y, 1, ROW - 1.5);
    if (states && calls === 1 && wide > 3) {
      c.globalAlpha = 1;
      hatch(c, states, [start, length], y, ROW - 1.5, drawn);
    }
    if (wide > 26) {
      const text = (cut ? "~" : "") + (calls > 1 ? `${count(calls)} calls` : functionOf(f).short);
      texts.push([fit(text, wide - 8), Math.max(a, GUTTER) + 4, y + ROW / 2 - 0.5, dim]);
    }
  }
  c.globalAlpha = 1;
}

const scale = () => ({ x, left: GUTTER, right: scroller.clientWidth, from: view.from, to: view.to, end: whole() });

// Draws the calls of the chosen function, and the times of missing events.
function strip(c, has, lane, top, inks) {
  const y = lane.top + HEAD - STRIP - 2 - top;
  c.fillStyle = inks.accent;
  for (let i = firstAt(has.focus, NUMBERS, view.from); i < has.focus.length && has.focus[i] <= view.to; i += NUMBERS)
    c.fillRect(x(has.focus[i]), y, Math.max(1.2, x(has.focus[i] + has.focus[i + 1]) - x(has.focus[i])), STRIP);
  c.fillStyle = inks.bad;
  for (let i = firstAt(has.lost, NUMBERS, view.from); i < has.lost.length && has.lost[i] <= view.to; i += NUMBERS)
    c.fillRect(x(has.lost[i]) - 1, lane.top + 2 - top, Math.max(2, x(has.lost[i] + has.lost[i + 1]) - x(has.lost[i])), HEAD + lane.shown * ROW);
}

function outline(c, call, top, style, line) {
  const lane = call && lanes.find(lane => lane.thread === call.thread);
  if (!lane || call.depth >= lane.shown) return;
  c.strokeStyle = style;
  c.lineWidth = line;
  const a = Math.max(x(call.start), GUTTER - 4);
  const b = Math.min(x(call.start + call.length), scroller.clientWidth + 4);
  c.strokeRect(a, lane.rows + call.depth * ROW - top, Math.max(b - a, 2), ROW - 1.5);
}

// Draws the ruler, with marks at round times.
function ruler() {
  const about = (view.to - view.from) / Math.max(2, width() / 110);
  const power = 10 ** Math.floor(Math.log10(Math.max(about, 1)));
  const step = [1, 2, 5, 10].map(n => n * power).find(step => step >= about);
  const steps = [];
  const { begin } = state.summary;
  for (let at = Math.ceil((Math.max(view.from, 0) + begin) / step) * step; at <= view.to + begin; at += step) steps.push(at - begin);
  return steps;
}

function label(moment, step) {
  const at = moment + state.summary.begin;
  if (!state.summary.timed) return count(at);
  const [size, unit] = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]].find(([size]) => at >= size) || [1, "ns"];
  const digits = Math.max(0, Math.ceil(Math.log10(size / step) - 0.001));
  return `${(at / size).toFixed(Math.min(digits, 9))} ${unit}`;
}

// Draws the overview of the whole time, with a frame around the shown part.
const loadSkyline = newest(async () => ask("overview", { columns: Math.max(1, Math.min(4096, overview.clientWidth - GUTTER)) }));
function minimap() {
  const [w, h] = [overview.clientWidth, overview.clientHeight];
  const c = sharpen(overview, w, h);
  const inks = ink();
  c.fillStyle = inks.paper;
  c.fillRect(0, 0, w, h);
  c.fillStyle = inks.panel;
  c.fillRect(0, 0, GUTTER - 1, h);
  c.font = FONT;
  c.textBaseline = "middle";
  c.fillStyle = inks.soft;
  c.fillText("depth of all threads", 10, h / 2 - 8);
  c.fillText(time(whole(), 2), 10, h / 2 + 8);
  const px = at => GUTTER + at / whole() * (w - GUTTER);
  if (skyline) {
    const each = Math.max(2, h / skyline.length);
    skyline.slice(0, Math.floor(h / each)).forEach(({ thread, depths }, at) => {
      const most = Math.max(1, ...state.summary.threads.map(one => Math.min(one.depth, 512)));
      const bottom = (at + 1) * each;
      const column = (w - GUTTER) / depths.length;
      c.fillStyle = inks.accent;
      c.globalAlpha = at % 2 ? 0.5 : 0.75;
      c.beginPath();
      depths.forEach((depth, i) => { if (depth) c.rect(GUTTER + i * column, bottom - Math.max(1, (each - 1) * depth / most), column + 0.5, Math.max(1, (each - 1) * depth / most)); });
      c.fill();
    });
    c.globalAlpha = 1;
  }
  const [a, b] = [Math.max(GUTTER, px(view.from)), Math.min(w, px(view.to))];
  c.fillStyle = inks.paper;
  c.globalAlpha = 0.62;
  c.fillRect(GUTTER, 0, a - GUTTER, h);
  c.fillRect(b, 0, w - b, h);
  c.globalAlpha = 1;
  c.strokeStyle = inks.accent;
  c.lineWidth = 1.5;
  c.strokeRect(a, 1, Math.max(b - a, 3), h - 2);
  const middle = Math.round((view.from + view.to) / 2 / whole() * 100);
  overview.setAttribute("aria-valuenow", Math.min(100, Math.max(0, middle)));
  overview.setAttribute("aria-valuetext", `${when(Math.max(0, view.from), 2)} to ${when(Math.min(whole(), view.to), 2)}`);
}

// Returns the block at a point: a call, or several that are too short to be told apart.
function hit(event) {
  const box = scroller.getBoundingClientRect();
  const [px, y] = [event.clientX - box.left, event.clientY - box.top + scroller.scrollTop];
  if (px < GUTTER || event.clientY - box.top < RULER) return null;
  const lane = lanes.find(lane => y >= lane.rows && y < lane.rows + lane.shown * ROW);
  const has = lane && data?.lanes.get(lane.thread);
  if (!has) return null;
  const depth = Math.floor((y - lane.rows) / ROW);
  const track = has.tracks[depth - has.first];
  if (!track) return null;
  const near = (view.to - view.from) / width() * 1.5;
  for (let i = firstAt(track, NUMBERS, at(px) - near); i < track.length && track[i] <= at(px) + near; i += NUMBERS)
    if (track[i] + track[i + 1] >= at(px) - near) return block(lane.thread, depth, track, i);
  return null;
}

const block = (thread, depth, track, i) => ({ thread, depth, start: track[i], length: track[i + 1], f: track[i + 2], calls: track[i + 3], longest: track[i + 4], busy: track[i + 5], cut: track[i + 6] });

function describe(call) {
  const { name, module } = functionOf(call.f);
  const cut = call.cut ? `; the end of ${count(call.cut)} is not known` : "";
  if (call.calls > 1) return [`${count(call.calls)} short calls in ${time(call.length)}`, `the longest: ${name}, ${time(call.longest)}; ${percent(call.busy / (call.length || 1))} within calls${cut}`];
  const states = within(data?.lanes.get(call.thread)?.states, call.start, call.length);
  const waited = states ? waits(states) : "";
  return [name, `${waited ? `${waited} · ` : ""}${call.cut ? "end not known, at least " : ""}${time(call.length)}, from ${when(call.start)}; ${module}, depth ${call.depth}`];
}

function choose(call, fitted) {
  chosen = call;
  if (call) {
    const thread = threadOf(call.thread);
    say(`${describe(call).join(", ")}; thread ${thread.name} ${thread.tid}`);
    if (call.calls <= 1 || call.calls == null) select(call.f, "timeline");
    if (fitted) fitTo(call);
  }
  tell("call", call && (call.calls <= 1 || call.calls == null) ? call : null);
  change();
}

function fitTo(call) {
  const length = Math.max(call.length, SHORTEST);
  view = { from: call.start - length * 0.1, to: call.start + length * 1.1 };
  change();
}

function intoView(call) {
  const lane = lanes.find(lane => lane.thread === call.thread);
  if (!lane) return;
  if (!lane.open || call.depth >= lane.shown) {
    [lane.open, lane.all] = [true, call.depth >= LEVELS];
    layout();
  }
  const again = lanes.find(lane => lane.thread === call.thread);
  const y = again.rows + call.depth * ROW;
  if (y < scroller.scrollTop + RULER || y + ROW > scroller.scrollTop + scroller.clientHeight)
    scroller.scrollTop = Math.max(0, y - scroller.clientHeight / 2);
}

// Zooms by a key, around the pointer if it is above the timeline.
function zoom(factor, around = pointer ?? (view.from + view.to) / 2) {
  tell("stay");
  const length = Math.min(Math.max((view.to - view.from) * factor, SHORTEST), whole() * 1.04);
  const share = (around - view.from) / (view.to - view.from);
  view = { from: around - share * length, to: around + (1 - share) * length };
  change();
}

function pan(share) {
  tell("stay");
  const by = (view.to - view.from) * share;
  view = { from: view.from + by, to: view.to + by };
  change();
}

// Moves from call to call by a key.
function step(key) {
  if (!chosen) {
    const shown = visible().find(({ lane }) => data?.lanes.get(lane.thread)?.tracks[0]?.length);
    if (!shown) return;
    const track = data.lanes.get(shown.lane.thread).tracks[0];
    return choose(block(shown.lane.thread, data.lanes.get(shown.lane.thread).first, track, Math.min(firstAt(track, NUMBERS, view.from), track.length - NUMBERS)));
  }
  const has = data?.lanes.get(chosen.thread);
  if (!has) return;
  const depth = chosen.depth + ({ ArrowUp: -1, ArrowDown: 1 }[key] || 0);
  const track = has.tracks[depth - has.first];
  if (!track) return;
  let i = firstAt(track, NUMBERS, chosen.start);
  if (key === "ArrowLeft") i -= NUMBERS;
  if (key === "ArrowRight") while (i < track.length && track[i] <= chosen.start) i += NUMBERS;
  if (key === "ArrowDown") while (i < track.length && track[i] < chosen.start) i += NUMBERS;
  if (i < 0 || i >= track.length || (key === "ArrowDown" && track[i] > chosen.start + chosen.length)) return say("no further call here");
  const next = block(chosen.thread, depth, track, i);
  intoView(next);
  if (next.start > view.to || next.start + next.length < view.from) view = { from: next.start - (view.to - view.from) / 2, to: next.start + (view.to - view.from) / 2 };
  choose(next);
}

export const timeline = {
  shown() { layout(); change(); },
  // Returns the moment from which the next call is searched.
  moment: () => chosen && chosen.f === state.selected ? chosen.start : view.from,

  jump(call) {
    tell("stay");
    intoView(call);
    // A call that fits keeps the zoom level; a short one is shown with its surroundings.
    const span = view.to - view.from;
    const length = span > call.length * 40 || span < call.length * 1.2 ? Math.max(call.length * 2.5, AROUND) : span;
    view = { from: call.start + call.length / 2 - length / 2, to: call.start + call.length / 2 + length / 2 };
    choose({ calls: 1, longest: call.length, busy: call.length, ...call });
  },

  key(event) {
    if (event.shiftKey && event.key.startsWith("Arrow")) step(event.key);
    else switch (event.key) {
      case "ArrowLeft": case "a": pan(-0.15); break;
      case "ArrowRight": case "d": pan(0.15); break;
      case "w": case "+": case "=": zoom(1 / 1.5); break;
      case "s": case "-": zoom(1.5); break;
      case "ArrowUp": scroller.scrollTop -= 3 * ROW; break;
      case "ArrowDown": scroller.scrollTop += 3 * ROW; break;
      case "0": case "Home": view = { from: 0, to: whole() }; change(); break;
      case "f": if (chosen) fitTo(chosen); break;
      case "Enter": if (event.target === scroller) step("Enter"); return;
      default: return;
    }
    event.preventDefault();
  },
};

// Pointer: drag, wheel and click.
let drag = null;
scroller.addEventListener("pointerdown", event => {
  if (event.button || event.target.closest("#heads") || event.offsetX < 0) return;
  const box = scroller.getBoundingClientRect();
  if (event.clientX - box.left < GUTTER || event.clientX > box.left + scroller.clientWidth) return;
  const moment = at(event.clientX - box.left);
  const ranged = event.shiftKey || event.clientY - box.top < RULER;
  drag = { x: event.clientX, y: event.clientY, top: scroller.scrollTop, view: { ...view }, moved: false, ranged, moment };
  canvas.setPointerCapture(event.pointerId);
});
canvas.addEventListener("pointermove", event => {
  const px = event.clientX - scroller.getBoundingClientRect().left;
  pointer = px > GUTTER ? at(px) : null;
  if (!drag) {
    hover = hit(event);
    if (hover) {
      const [first, second] = describe(hover);
      tip(event, make("b", {}, first), make("br"), second);
    } else tipOfBand(event);
    return draw();
  }
  if (Math.abs(event.clientX - drag.x) + Math.abs(event.clientY - drag.y) > 3) drag.moved = true;
  if (!drag.moved) return;
  tip(event);
  tell("stay");
  if (drag.ranged) {
    range = { from: drag.moment, to: at(event.clientX - scroller.getBoundingClientRect().left) };
    return draw();
  }
  document.body.classList.add("dragging");
  const by = (event.clientX - drag.x) / width() * (drag.view.to - drag.view.from);
  view = { from: drag.view.from - by, to: drag.view.to - by };
  scroller.scrollTop = drag.top - (event.clientY - drag.y);
  change();
});
// Shows the state of a thread at a point of its band.
function tipOfBand(event) {
  const box = scroller.getBoundingClientRect();
  const [px, y] = [event.clientX - box.left, event.clientY - box.top + scroller.scrollTop];
  const lane = lanes.find(lane => y >= lane.rows - BAND - 4 && y < lane.rows);
  const states = lane && data?.lanes.get(lane.thread)?.states;
  if (!states || px < GUTTER || event.clientY - box.top < RULER || at(px) < 0 || at(px) > whole()) return tip(event);
  const pixel = (view.to - view.from) / width();
  const [first, second] = tellAt(states, at(px), pixel);
  const lines = [second, markAt(data.lanes.get(lane.thread).incidents, at(px), 3 * pixel)].filter(line => line);
  tip(event, make("b", {}, `${lane.name} ${lane.tid}: ${first}`), ...lines.flatMap(line => [make("br"), line]));
}
function drop(event) {
  document.body.classList.remove("dragging");
  const was = drag;
  drag = null;
  if (range) {
    const { from, to } = range;
    range = null;
    if (Math.abs(to - from) >= SHORTEST) view = { from: Math.min(from, to), to: Math.max(from, to) };
    return change();
  }
  if (was && !was.moved && event.type === "pointerup") {
    const call = hit(event);
    choose(call);
    if (!call) select(null);
  }
}
canvas.addEventListener("pointerup", drop);
canvas.addEventListener("pointercancel", drop);
canvas.addEventListener("dblclick", event => { const call = hit(event); if (call) fitTo(call); });
canvas.addEventListener("pointerleave", event => { hover = null; pointer = null; tip(event); draw(); });
scroller.addEventListener("wheel", event => {
  const box = scroller.getBoundingClientRect();
  if (event.ctrlKey || event.metaKey) {
    zoom(Math.exp(Math.max(-1, Math.min(1, event.deltaY / 200))), at(event.clientX - box.left));
  } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey) {
    pan((event.deltaX || event.deltaY) / width());
  } else return;
  event.preventDefault();
}, { passive: false });
scroller.addEventListener("scroll", change);

let brush = null;
const moment = event => Math.min(Math.max((event.clientX - overview.getBoundingClientRect().left - GUTTER) / Math.max(1, overview.clientWidth - GUTTER), 0), 1) * whole();
overview.addEventListener("pointerdown", event => {
  overview.setPointerCapture(event.pointerId);
  const here = moment(event);
  const inside = here > view.from && here < view.to && view.to - view.from < whole() * 0.98;
  brush = { here, view: { ...view }, inside };
});
overview.addEventListener("pointermove", event => {
  if (!brush) return;
  tell("stay");
  const here = moment(event);
  if (brush.inside) view = { from: brush.view.from + here - brush.here, to: brush.view.to + here - brush.here };
  else if (Math.abs(here - brush.here) > whole() / 400) view = { from: Math.min(here, brush.here), to: Math.max(here, brush.here) };
  change();
});
overview.addEventListener("pointerup", event => {
  if (brush && !brush.inside && Math.abs(moment(event) - brush.here) <= whole() / 400) {
    const length = view.to - view.from;
    view = { from: brush.here - length / 2, to: brush.here + length / 2 };
    change();
  }
  brush = null;
});
overview.addEventListener("keydown", event => {
  const share = { ArrowLeft: -0.25, ArrowRight: 0.25, PageUp: -1, PageDown: 1 }[event.key];
  if (share) pan(share);
  else if (event.key === "ArrowUp") zoom(1 / 1.5);
  else if (event.key === "ArrowDown") zoom(1.5);
  else return;
  event.preventDefault();
});

let first = true;
on("data", () => {
  version++;
  if (first || state.following) {
    const length = Math.min(first ? (state.live ? NEWEST : whole()) : view.to - view.from, whole());
    view = { from: whole() - length, to: whole() };
    if (state.following) chosen = null;
    first = false;
  }
  if (state.view === "timeline") layout();
  change();
  loadSkyline().then(answer => { if (answer) { skyline = answer; draw(); } });
});
on("select", where => {
  if (where !== "timeline" && chosen?.f !== state.selected) {
    chosen = null;
    tell("call", null);
  }
  change();
});
on("theme", draw);
on("lit", draw);
new ResizeObserver(() => { if (state.summary) { layout(); change(); } }).observe(scroller);
