// A saved page: questions are answered from the file instead of by calltap. A question without an
// answer in the file is refused, never guessed.

import { answerBy, firstAt } from "./common.js";
import { within } from "./states.js";

const saved = JSON.parse(document.getElementById("saved").textContent);
const lanes = new Map(saved.lanes.map(lane => [lane.thread, lane]));
// Numbers of a block: start, length, function, calls, the longest, time in calls, cut calls.
// Numbers of a piece of a band: start, length, and four states.
const [BLOCK, PIECE] = [7, 6];
// Difference of two shares of a width below which they count as equal.
const NEAR = 1e-12;

// Returns the blocks or pieces of a window. Neighbours that together are no longer than the
// resolution are joined, as in crates/analysis/src/timeline/block.rs.
function joined(list, size, { from, to, resolution }) {
  const all = [];
  for (let i = firstAt(list, size, from); i < list.length && list[i] <= to; i += size) {
    const last = all.length - size;
    const end = last >= 0 ? Math.max(all[last] + all[last + 1], list[i] + list[i + 1]) : 0;
    if (last < 0 || end - all[last] > resolution) {
      for (let at = 0; at < size; at++) all.push(list[i + at]);
      continue;
    }
    all[last + 1] = end - all[last];
    if (size === PIECE) {
      for (let at = 2; at < size; at++) all[last + at] += list[i + at];
      continue;
    }
    if (list[i + 4] > all[last + 4]) [all[last + 2], all[last + 4]] = [list[i + 2], list[i + 4]];
    for (const at of [3, 5, 6]) all[last + at] += list[i + at];
  }
  return all;
}

// Returns the outermost calls of a function, in order; only for a file with every call.
const outermost = new Map();
function callsOf(f) {
  if (outermost.has(f)) return outermost.get(f);
  const calls = [];
  for (const { thread, tracks } of saved.lanes) {
    let around = [];
    const own = [];
    tracks.forEach((track, depth) => {
      const level = [];
      for (let i = 0; i < track.length; i += BLOCK) {
        if (track[i + 2] !== f) continue;
        const [start, length] = [track[i], track[i + 1]];
        const at = around.length && firstAt(around, 2, start);
        if (at < around.length && around[at] <= start && around[at] + around[at + 1] >= start + length) continue;
        level.push(start, length);
        own.push({ thread, start, length, depth, block: track.slice(i, i + BLOCK) });
      }
      const both = [];
      for (let i = 0; i < around.length; i += 2) both.push([around[i], around[i + 1]]);
      for (let i = 0; i < level.length; i += 2) both.push([level[i], level[i + 1]]);
      around = both.sort((a, b) => a[0] - b[0]).flat();
    });
    calls.push(...own);
  }
  calls.sort((a, b) => a.start - b.start);
  outermost.set(f, calls);
  return calls;
}

function timeline({ from, to, resolution, lanes: asked, focus }) {
  const window = { from, to, resolution };
  return asked.split(",").map(lane => {
    const [thread, first, last] = lane.split(".").map(Number);
    const has = lanes.get(thread);
    const focused = focus != null && saved.exact ? callsOf(focus).filter(call => call.thread === thread).flatMap(call => call.block) : [];
    return {
      thread,
      lost: joined(has.lost, BLOCK, window),
      tracks: has.tracks.slice(first, last + 1).map(track => joined(track, BLOCK, window)),
      focus: joined(focused, BLOCK, window),
      states: has.states && joined(has.states, PIECE, window),
      incidents: has.incidents,
    };
  });
}

// Returns the part of the flame graph above a box.
function above(whole, root, label = box => box[1]) {
  const base = whole.boxes.find(([node]) => node === root);
  if (!base) throw new Error("the saved page does not have this part of the flame graph");
  const [, , left, width, level] = base;
  const [low, high] = [left - NEAR, left + width + NEAR];
  const inside = whole.boxes.filter(([, , a, wide, at]) => at >= level && a >= low && a + wide <= high);
  const around = whole.boxes.filter(([, , a, wide, at]) => at < level && a <= left + NEAR && a + wide >= left + width - NEAR);
  return {
    ...whole,
    boxes: inside.map(([node, f, a, wide, at, ...rest]) => [node, f, (a - left) / width, wide / width, at - level, ...rest]),
    below: around.sort((a, b) => a[4] - b[4]).map(box => [box[0], label(box)]),
    unknown: base[8]?.[4] ?? 0,
  };
}

function flame({ by, root, f, callers }) {
  if (f == null) return root ? above(saved.flames[by], root) : saved.flames[by];
  const found = saved.flames[`${by}.${f}.${callers}`];
  if (!found) throw new Error("the saved page has flame graphs of the functions with the most time, and this is none of them");
  return found;
}

// Returns the flame graph of differences; the name of a function is the last number of its box.
function compare({ by, base, root, f }) {
  if (f != null) throw new Error("the saved page has the differences of all calls, not those of single functions");
  const whole = saved.compared[`${by}.${base}`];
  return root ? above(whole, root, box => box[9]) : whole;
}

function next({ f, at, back }) {
  if (!saved.exact) throw new Error("the saved page does not have every call: 'calltap view' with the trace leads from call to call");
  const calls = callsOf(f);
  const found = back ? calls.findLast(({ start }) => at == null || start < at) : calls.find(({ start }) => at == null || start > at);
  return found ? [found.thread, found.start, found.length, found.depth] : null;
}

// Returns the slowest calls of a bar of the histogram: of all calls, if the file has them; else of
// the function's slowest calls, if these include the bar's.
function calls({ f, bar }) {
  const { bars, slowest } = saved.details[f];
  const [from, to, all] = bars[bar];
  const found = saved.exact ? callsBetween(f, from, to) : slowest.filter(([, , length]) => length >= from && length <= to);
  const wanted = Math.min(all, slowest.length);
  if (!saved.exact && found.length < wanted) throw new Error(`the saved page has the ${slowest.length} slowest calls of a function, and others are in this bar`);
  return found.slice(0, wanted);
}

function callsBetween(f, from, to, began = [0, Infinity]) {
  const found = [];
  for (const { thread, tracks } of saved.lanes)
    tracks.forEach((track, depth) => {
      for (let i = 0; i < track.length; i += BLOCK)
        if (track[i + 2] === f && !track[i + 6] && track[i + 1] >= from && track[i + 1] <= to && track[i] >= began[0] && track[i] <= began[1]) found.push([thread, track[i], track[i + 1], depth]);
    });
  return found.sort((a, b) => b[2] - a[2]);
}

function heat({ f }) {
  const found = saved.heats[f];
  if (!found) throw new Error("the saved page has heatmaps of the functions with the most time, and this is none of them");
  return found;
}

// Returns the slowest calls of a cell of the heatmap, as for a bar.
function cell({ f, column, row }) {
  const { from, to, columns, rows, cells } = heat({ f });
  const [shortest, longest] = rows[row];
  const began = [0, 1].map(more => from + (column + more) * (to - from) / columns);
  const all = cells.find((calls, at) => at % 3 === 2 && cells[at - 2] === column && cells[at - 1] === row);
  const is = ([, start, length]) => length >= shortest && length <= longest && start >= began[0] && start <= began[1];
  const { slowest } = saved.details[f] || { slowest: [] };
  const found = saved.exact ? callsBetween(f, shortest, longest, began) : slowest.filter(is);
  if (!saved.exact && found.length < Math.min(all, slowest.length)) throw new Error(`the saved page has the ${slowest.length} slowest calls of a function, and others are in this cell`);
  return found.slice(0, 64);
}

function details({ f }) {
  const found = saved.details[f];
  if (!found) throw new Error("the saved page has details of the functions with the most time, and this is none of them");
  return found;
}

const QUESTIONS = {
  progress: () => null,
  live: () => null,
  summary: () => saved.summary,
  functions: () => saved.functions,
  overview: () => saved.overview,
  states: ({ thread, from, to }) => { const { states } = lanes.get(thread); return states && within(states, from, to - from); },
  function: details,
  base: () => saved.base,
  timeline, flame, compare, next, calls, heat, cell,
  source: ({ f }) => saved.sources[f] ?? null,
  values: ({ thread, start, depth }) => saved.values[`${thread}.${start}.${depth}`] || null,
};

// The page may change an answer, so it gets a copy.
answerBy(async (name, query) => structuredClone(QUESTIONS[name](query)));
