// The table of functions.

import { $, colour, count, make, on, plural, select, state, tell, time } from "./common.js";

const FILE = [
  ["total", "Total", "Time in it and in what it calls; recursion counts once"], ["self", "Self", "Time in it alone"],
  ["calls", "Calls"], ["avg", "Average"], ["p50", "p50", "What half of the calls do not exceed"], ["p99", "p99", "What 99 of a hundred calls do not exceed"], ["max", "Longest"],
];
// Columns for traces with context switches.
const SWITCHED = [["cpu", "CPU", "What of the total its threads ran"], ["blocked", "Blocked", "What of the total its threads slept: in a system call, on a lock, for a page"]];
const LIVE = [
  ["is", "On", "Switches the function in the running process"], ["rate", "Calls/s", "In the last interval"], ["share", "Time %", "In it and in what it calls, of the last interval"],
  ["nowAvg", "Average", "In the last interval"], ["nowMax", "Longest", "In the last interval"], ["calls", "Calls", "Among the newest events"], ["p99", "p99", "Among the newest events"],
];
// Columns that a narrow table leaves out, unless it is sorted by them: the details have them, too.
const DETAILS = ["avg", "p50", "p99", "max", "nowMax"];
const STEP = 400;

const [head, body] = [document.querySelector("#functions thead"), document.querySelector("#functions tbody")];
let sort = null;
let down = true;
let limit = STEP;

const columns = () => state.live ? LIVE : state.summary.switched ? [...FILE.slice(0, 2), ...SWITCHED, ...FILE.slice(2)] : FILE;

const isDetail = key => DETAILS.includes(key) && key !== sort;

function value(one, key) {
  const untimed = !one.timed && !["calls", "rate", "share", "nowAvg", "nowMax", "is"].includes(key);
  return untimed || one[key] === null ? -1 : one[key] ?? 0;
}

function cell(one, key) {
  if (key === "is") {
    const is = one.is || "on";
    return make("td", { class: "text" }, make("button", {
      role: "switch", "aria-checked": is === "on", class: is === "governed" ? "governed" : "",
      "aria-label": `${one.name} is traced`, title: is === "governed" ? "switched off because it costs too much; a click switches it on" : "",
      disabled: state.live.ended ? "" : null,
      onclick: event => { event.stopPropagation(); tell("turn", one.f, is !== "on"); },
    }));
  }
  const number = value(one, key);
  if (number < 0) return make("td", { class: "soft" }, "–");
  // A function that was off for a part of the interval has lower bounds.
  const least = one.partial && (key === "rate" || key === "share") ? ">" : "";
  if (least && !number) return make("td", { class: "soft" }, "–");
  if (key === "calls" || key === "rate") return make("td", {}, least + count(number));
  if (key === "share") return make("td", {}, `${least}${number.toFixed(1)}`);
  const td = make("td", { class: key === "total" || key === "self" ? "share" : "" }, time(number));
  if (key === "total" || key === "self") {
    const bar = td.appendChild(make("i"));
    bar.style.width = `${Math.min(1, number / Math.max(1, most)) * 62}px`;
  }
  return td;
}

let most = 1;
function draw() {
  if (state.view !== "functions") return;
  const all = [...(state.scoped || state.functions).values()];
  const timed = all.some(one => one.timed);
  sort ||= state.live ? "rate" : timed ? "total" : "calls";
  const title = ([key, text, why]) => make("th", { scope: "col", class: key === "name" || key === "module" || key === "is" ? "text" : isDetail(key) ? "detail" : "", "aria-sort": key === sort ? (down ? "descending" : "ascending") : null },
    make("button", { title: why || "", onclick: () => order(key) }, text));
  const focused = document.activeElement?.closest?.("#functions") ? document.activeElement : null;
  const place = focused && { row: focused.closest("tr")?.dataset.f, kind: focused.getAttribute("role"), title: focused.closest("th") && focused.textContent };
  head.replaceChildren(make("tr", {}, ...columns().slice(0, state.live ? 1 : 0).map(title), title(["name", "Function"]), ...columns().slice(state.live ? 1 : 0).map(title), title(["module", "Module"])));
  const rows = all.filter(one => !state.filter || one.name.toLowerCase().includes(state.filter));
  most = rows.reduce((most, one) => Math.max(most, one.total || 0), 1);
  const text = sort === "name" || sort === "module";
  rows.sort((a, b) => (text ? a[sort].localeCompare(b[sort]) : value(b, sort) > value(a, sort) ? 1 : value(b, sort) < value(a, sort) ? -1 : 0) * (down !== text ? 1 : -1) || a.name.localeCompare(b.name));
  body.replaceChildren(...rows.slice(0, limit).map(one => {
    const swatch = make("span", { class: "swatch" });
    swatch.style.background = colour(one.f);
    const cells = columns().map(([key]) => cell(one, key));
    columns().forEach(([key], at) => cells[at].classList.toggle("detail", isDetail(key)));
    const name = make("td", { class: "text name", title: one.name }, swatch, make("button", { onclick: event => { event.stopPropagation(); select(one.f, "table"); } }, one.short));
    return make("tr", { "data-f": one.f, "aria-selected": one.f === state.selected, onclick: () => select(one.f, "table") },
      ...cells.splice(0, state.live ? 1 : 0), name, ...cells, make("td", { class: "text soft" }, one.module));
  }));
  const rest = rows.length - limit;
  const cut = state.scoped ? [make("span", { class: "soft" }, "Calls that go beyond this time are counted; their time is in no column. ")] : [];
  $("more").replaceChildren(...cut, ...(rest > 0 ? [make("button", { onclick: () => { limit += STEP * 5; draw(); } }, `${plural(rest, "more function")}: show`)] : rows.length ? [] : [state.filter ? "No function with this in its name." : "No function was called."]));
  if (place) {
    const row = place.row && body.querySelector(`tr[data-f="${place.row}"]`);
    const back = place.title ? [...head.querySelectorAll("button")].find(button => button.textContent === place.title) : row?.querySelector(place.kind ? `[role="${place.kind}"]` : ".name button");
    back?.focus({ preventScroll: true });
  }
}

function order(key) {
  if (sort === key) down = !down;
  else [sort, down] = [key, key !== "name" && key !== "module"];
  draw();
}

body.addEventListener("keydown", event => {
  const step = { ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling" }[event.key];
  const row = step && event.target.closest("tr")?.[step];
  if (!row) return;
  row.querySelector(".name button").focus();
  event.preventDefault();
});
["data", "live", "filter", "theme", "select", "scope"].forEach(what => on(what, draw));

export const functions = { shown: draw };
