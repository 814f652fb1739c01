// States of threads: a band above their calls, hatched calls, and the times in which a thread was
// running, runnable, blocked, or held by calltap.

import { firstAt, ink, make, percent, time, when } from "./common.js";

export const STATES = [["cpu", "ran"], ["runnable", "had no processor"], ["blocked", "slept"], ["tracing", "was held by calltap"], ["unknown", "not known"]];
// Height of the band in pixels.
export const BAND = 7;
// Numbers of a piece in an answer: start, length, runnable, blocked, tracing, unknown.
const NUMBERS = 6;
// States that are shown only where they occur.
const RARE = new Set(["tracing", "unknown"]);
const WORDS = { unknown: "not known whether it ran", tracing: "held by calltap" };

// Returns a text such as `blocked 16.495 ms, runnable 3 µs`: the times above zero except running;
// empty if the thread ran all the time.
export function waits(states) {
  const parts = STATES.map(([name], at) => [name, states[at]]).filter(([name, ns]) => ns && name !== "cpu");
  parts.sort((a, b) => b[1] - a[1]);
  return parts.map(([name, ns]) => `${WORDS[name] || name} ${time(ns)}`).join(", ");
}

// Returns a bar of the parts of a time, with their numbers.
export function parts(states) {
  const whole = Math.max(1, states.reduce((sum, ns) => sum + ns, 0));
  const shown = STATES.map(([name, what], at) => ({ name, what, ns: states[at] })).filter(({ name, ns }) => ns || !RARE.has(name));
  const bar = make("div", { class: "parts", role: "img", "aria-label": shown.map(({ what, ns }) => `${what} ${percent(ns / whole)}`).join(", ") });
  for (const { name, ns } of shown) {
    if (!ns) continue;
    const part = bar.appendChild(make("i", { class: name }));
    part.style.flexGrow = ns / whole;
  }
  return [bar, make("dl", { class: "states" }, ...shown.map(({ name, what, ns }) =>
    make("div", { title: what }, make("dt", {}, make("i", { class: name }), name === "unknown" ? "not known" : WORDS[name] || name), make("dd", {}, time(ns), make("span", { class: "soft" }, ` ${percent(ns / whole)}`)))))];
}

const piece = (pieces, i) => ({ start: pieces[i], length: pieces[i + 1], off: [pieces[i + 2], pieces[i + 3], pieces[i + 4], pieces[i + 5]] });

// Returns the states in a stretch of time, or null if they are not known exactly: a piece with
// several states must be completely inside of it, or outside.
export function within(pieces, from, length) {
  if (!pieces) return null;
  const states = [length, 0, 0, 0, 0];
  const to = from + length;
  for (let i = firstAt(pieces, NUMBERS, from); i < pieces.length && pieces[i] < to; i += NUMBERS) {
    const one = piece(pieces, i);
    const inside = Math.min(to, one.start + one.length) - Math.max(from, one.start);
    if (inside <= 0) continue;
    const whole = inside === one.length;
    if (!whole && !one.off.includes(one.length)) return null;
    one.off.forEach((ns, at) => {
      const part = whole ? ns : ns ? inside : 0;
      states[at + 1] += part;
      states[0] -= part;
    });
  }
  return states;
}

// Returns the state that takes most of a piece, and its time.
function most({ length, off }) {
  const at = off.indexOf(Math.max(...off));
  return [STATES[at + 1][0], length ? off[at] / length : 1];
}

// Returns the piece at a moment as text.
export function tellAt(pieces, moment, near) {
  const i = firstAt(pieces, NUMBERS, moment - near);
  const one = i < pieces.length && pieces[i] <= moment + near ? piece(pieces, i) : null;
  if (!one) return ["running", ""];
  const single = one.off.includes(one.length);
  const title = single ? (WORDS[most(one)[0]] || most(one)[0]) : "several states";
  return [title, single ? `${time(one.length)}, from ${when(one.start)}` : `${waits([0, ...one.off])} of ${time(one.length)}`];
}

// Draws the band. `x` converts a moment to pixels; `left` and `right` are the visible edges.
export function band(c, pieces, y, { x, left, right, from, to, end }) {
  const inks = ink();
  const clip = px => Math.min(Math.max(px, left), right);
  const [a, b] = [clip(x(0)), clip(x(end))];
  c.fillStyle = inks.cpu;
  c.fillRect(a, y, b - a, BAND);
  for (let i = firstAt(pieces, NUMBERS, from); i < pieces.length && pieces[i] <= to; i += NUMBERS) {
    const one = piece(pieces, i);
    const [start, stop] = [clip(x(Math.max(one.start, 0))), clip(x(Math.min(one.start + one.length, end)))];
    const [name, share] = most(one);
    const wide = Math.max(stop - start, 0.7);
    if (name === "unknown" || share > 0.5) {
      c.fillStyle = inks.paper;
      c.fillRect(start, y, wide, BAND);
    }
    c.globalAlpha = name === "unknown" ? 1 : 0.3 + 0.7 * share;
    c.fillStyle = name === "unknown" ? hatching(c, inks.soft, 0.5) : inks[name];
    c.fillRect(start, y, wide, BAND);
    c.globalAlpha = 1;
  }
}

// Draws the marks of page faults, signals and moves from a list of moments and texts.
export function marks(c, list, y, { x, left, right }) {
  c.fillStyle = ink().ink;
  for (let i = 0; i < list.length; i += 2) {
    const px = x(list[i]);
    if (px >= left && px <= right) c.fillRect(px - 0.5, y - 2, 1, BAND + 4);
  }
}

// Returns the text of the mark nearest to a moment.
export function markAt(list, moment, near) {
  let [best, words] = [near, ""];
  for (let i = 0; i < list.length; i += 2) if (Math.abs(list[i] - moment) <= best) [best, words] = [Math.abs(list[i] - moment), `${list[i + 1]}, at ${when(list[i])}`];
  return words;
}

// Hatches the parts of a call in which its thread did not run.
export function hatch(c, pieces, [start, length], y, height, { x, left, right }) {
  const inks = ink();
  for (let i = firstAt(pieces, NUMBERS, start); i < pieces.length && pieces[i] < start + length; i += NUMBERS) {
    const one = piece(pieces, i);
    const a = Math.max(x(Math.max(one.start, start)), left);
    const b = Math.min(x(Math.min(one.start + one.length, start + length)), right);
    const [name, share] = most(one);
    if (b - a < 2 || share < 0.5) continue;
    c.fillStyle = inks.paper;
    c.globalAlpha = 0.42;
    c.fillRect(a, y, b - a, height);
    c.globalAlpha = 1;
    c.fillStyle = hatching(c, name === "unknown" ? inks.soft : inks[name], 0.75);
    c.fillRect(a, y, b - a, height);
  }
}

// Patterns of lines from lower left to upper right, by colour; each is made once.
let patterns = new Map();
function hatching(c, colour, alpha) {
  const key = `${colour} ${alpha}`;
  if (!patterns.has(key)) {
    if (patterns.size > 20) patterns = new Map();
    const ratio = devicePixelRatio || 1;
    const size = 6;
    const tile = document.createElement("canvas");
    tile.width = tile.height = size * ratio;
    const t = tile.getContext("2d");
    t.scale(ratio, ratio);
    t.strokeStyle = colour;
    t.globalAlpha = alpha;
    t.lineWidth = 1.1;
    t.beginPath();
    for (const by of [-size, 0, size]) { t.moveTo(by - 1, size + 1); t.lineTo(by + size + 1, -1); }
    t.stroke();
    const pattern = c.createPattern(tile, "repeat");
    pattern.setTransform(new DOMMatrix().scale(1 / ratio));
    patterns.set(key, pattern);
  }
  return patterns.get(key);
}
