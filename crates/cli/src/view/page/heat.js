// The heatmap of a function's calls, by the time of their beginning and by their length: darker
// cells have more calls, and a cell lists its calls.

import { ask, complain, make, on, plural, say, state, time, when } from "./common.js";

// Number of events up to which the heatmap is loaded at once: reading more of them takes seconds,
// and is done on request.
const AT_ONCE = 4_000_000;
const [WIDTH, HEIGHT, LEFT, BOTTOM] = [344, 154, 46, 18];

// Loads the heatmap again, for another stretch of time.
let again = () => {};
on("scope", () => again());

// Returns the element of a function's heatmap, which is filled when the answer arrives. `act` is
// called with the query and the title of the chosen cell, or with null.
export function heatmap(f, act) {
  const place = make("div", { id: "heat" });
  const load = async () => {
    again = load;
    try {
      const scope = state.scope || {};
      place.setAttribute("aria-busy", "true");
      const heat = await ask("heat", { f, ...scope });
      draw(place, heat, scope, act);
    } catch (error) {
      place.replaceChildren(make("p", { class: "soft" }, error.message));
    }
    place.setAttribute("aria-busy", "false");
  };
  again = () => {};
  if (state.live || state.summary.events > AT_ONCE && !state.saved) place.append(make("button", { onclick: load }, "When they took how long"));
  else load().catch(complain);
  return place;
}

function draw(place, heat, scope, act) {
  const { from, to, columns, rows, cells } = heat;
  const all = [];
  for (let i = 0; i < cells.length; i += 3) all.push({ column: cells[i], row: cells[i + 1], calls: cells[i + 2] });
  if (!all.length) {
    place.replaceChildren(make("p", { class: "soft" }, "No call with a duration began in the time that is shown."));
    return;
  }
  const most = Math.max(...all.map(one => one.calls));
  const [wide, high] = [(WIDTH - LEFT) / columns, (HEIGHT - BOTTOM) / rows.length];
  const moment = column => from + column * (to - from) / columns;
  const label = ({ column, row, calls }) => `${plural(calls, "call")} of ${time(rows[row][0])} to ${time(rows[row][1])}, begun at ${when(moment(column))} to ${when(moment(column + 1))}`;
  const box = ({ column, row }) => ({ x: LEFT + column * wide, y: (rows.length - 1 - row) * high, width: Math.max(wide - 0.4, 0.6), height: Math.max(high - 0.4, 0.6) });
  let chosen = null;
  const choose = one => {
    chosen = one;
    frame.setAttribute("visibility", one ? "visible" : "hidden");
    if (!one) return;
    for (const [name, value] of Object.entries(box(one))) frame.setAttribute(name, value);
    say(label(one));
  };
  const show = one => {
    choose(one);
    act(one && { column: one.column, row: one.row, ...scope }, one && label(one).replace(/^\S+ calls?/, "Calls"));
  };
  const svg = make("svg", {
    viewBox: `0 0 ${WIDTH} ${HEIGHT}`, tabindex: 0, role: "application", "aria-roledescription": "heatmap",
    "aria-label": "When calls began, left to right, by how long they took, upwards. Arrow keys go from cell to cell, Enter shows the calls of one, Escape the slowest of all.",
    onkeydown: event => {
      const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
      if (step) choose(neighbour(all, chosen, step) || chosen);
      else if (event.key === "Enter" && chosen) show(chosen);
      else if (event.key === "Escape" && chosen) show(null);
      else return;
      event.preventDefault();
      event.stopPropagation();
    },
  });
  svg.append(make("rect", { class: "paper", x: LEFT, y: 0, width: WIDTH - LEFT, height: HEIGHT - BOTTOM }));
  for (const one of all) {
    // The opacity is a square root, so that single calls are visible.
    const rect = make("rect", { class: "cell", ...box(one), "fill-opacity": (0.16 + 0.84 * Math.sqrt(one.calls / most)).toFixed(2), onclick: () => show(chosen === one ? null : one) });
    rect.append(make("title", {}, label(one)));
    svg.append(rect);
  }
  const frame = make("rect", { class: "frame", visibility: "hidden" });
  svg.append(frame);
  const sides = rows.length > 4 ? [0, rows.length >> 1, rows.length - 1] : [0];
  for (const row of sides) svg.append(make("text", { x: LEFT - 4, y: (rows.length - row - 0.5) * high + 3.5, "text-anchor": "end" }, time(rows[row][0], 1)));
  for (const [x, anchor, at] of [[LEFT, "start", from], [WIDTH, "end", to]]) svg.append(make("text", { x, y: HEIGHT - 5, "text-anchor": anchor }, when(at, 1)));
  place.replaceChildren(make("h3", {}, state.scope ? "When, in the time that is shown" : "When they took how long"), svg);
  place.dataset.calls = all.reduce((sum, one) => sum + one.calls, 0);
}

// Returns the nearest cell with calls in a direction.
function neighbour(all, chosen, [right, up]) {
  if (!chosen) return all[0];
  const along = one => (one.column - chosen.column) * right + (one.row - chosen.row) * up;
  const aside = one => Math.abs(right ? one.row - chosen.row : one.column - chosen.column);
  const ahead = all.filter(one => along(one) > 0);
  return ahead.sort((a, b) => along(a) + 3 * aside(a) - along(b) - 3 * aside(b))[0];
}
