// Code that all views share: questions to the server, the state of the page, numbers and colours.

export const $ = id => document.getElementById(id);

// Makes an element with attributes and content.
export function make(tag, attributes = {}, ...content) {
  const svg = ["svg", "g", "rect", "text", "line", "title"].includes(tag);
  const element = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (value != null) element.setAttribute(name, value);
  }
  element.append(...content);
  return element;
}

// The state of the page: the answers of the server, and the user's choices.
export const state = {
  summary: null,
  functions: new Map(),
  live: null,
  // The trace that this one is compared with, if there is one.
  base: null,
  selected: null,
  filter: "",
  following: false,
  saved: false,
  // Whether functions are coloured by their modules alone.
  byModule: false,
  // The stretch of time of flame graph and functions, and its functions; null for all time.
  scope: null,
  scoped: null,
};

// Listeners for changes of the state.
const listeners = {};
export const on = (what, listener) => (listeners[what] ||= []).push(listener);
export const tell = (what, ...about) => (listeners[what] || []).forEach(listener => listener(...about));

export class Gone extends Error {}

// The function that answers a saved page's questions.
let answers = null;
export function answerBy(own) {
  answers = own;
  state.saved = true;
}

// The id of the process that is shown, if there are several.
const chosen = Number(new URLSearchParams(location.search).get("process")) || null;

// Asks the server.
export async function ask(name, query = {}, method = "GET") {
  if (answers) return answers(name, query);
  let answer;
  try {
    // All values are numbers or lists of numbers, and need no encoding.
    const words = Object.entries(chosen ? { ...query, process: chosen } : query).map(([key, value]) => `${key}=${value}`);
    answer = await fetch(`api/${name}?${words.join("&")}`, { method });
  } catch {
    throw new Gone("calltap has ended: nothing new can be shown");
  }
  const value = await answer.json().catch(() => ({ error: `${answer.status} ${answer.statusText}` }));
  if (!answer.ok) throw new Error(value.error);
  return value;
}

// Returns a function that ignores every answer but the newest.
export function newest(act) {
  let last = 0;
  return async (...given) => {
    const mine = ++last;
    try {
      const value = await act(...given);
      return mine === last ? value : undefined;
    } catch (error) {
      complain(error);
    }
  };
}

export function complain(error) {
  console.error(error);
  note("error", error.message);
}

// Lines above all views, by their subject.
const notes = new Map();
// Their elements by text: one that is unfolded stays so while other lines change.
let lines = new Map();
export function note(about, text) {
  if (text) notes.set(about, text);
  else notes.delete(about);
  const texts = [...notes.values()].flatMap(text => text.split("\n"));
  lines = new Map(texts.map(text => [text, lines.get(text) || line(text)]));
  $("notes").replaceChildren(...lines.values());
  $("notes").hidden = notes.size === 0;
}

// A longer text is shortened to one line until a click unfolds it.
const ONE_LINE = 110;
function line(text) {
  if (text.length <= ONE_LINE) return make("p", {}, text);
  return make("details", {}, make("summary", {}, make("span", {}, text)));
}

export function say(text) {
  $("said").textContent = text;
}

export const count = number => Math.round(number).toLocaleString("en");
export const plural = (number, noun) => `${count(number)} ${noun}${number === 1 ? "" : "s"}`;

const UNITS = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]];
// Returns a time with a unit that fits. Without times, events are counted instead.
export function time(ns, digits = 3) {
  if (!state.summary?.timed) return count(ns);
  const [size, unit] = UNITS.find(([size]) => Math.abs(ns) >= size) || UNITS[3];
  const number = ns / size;
  return `${size === 1 ? Math.round(number) : number.toFixed(digits)} ${unit}`;
}

// Returns a time of the page as text: since the beginning of the recording, as `--from` takes it.
export const when = (ns, digits) => time(ns + state.summary.begin, digits);

export function percent(share) {
  return `${(share * 100).toFixed(share < 0.1 ? 2 : 1)} %`;
}

export const functionOf = f => state.functions.get(f) || { f, name: "[unknown]", short: "[unknown]", module: "", calls: 0 };
export const threadOf = id => state.summary.threads.find(thread => thread.id === id);

export function select(f, where) {
  state.selected = f;
  tell("select", where);
}

// Colours: a hue by module and name, the same in every view and every run.
const dark = matchMedia("(prefers-color-scheme: dark)");
export function isDark() {
  const theme = document.documentElement.dataset.theme;
  return theme ? theme === "dark" : dark.matches;
}
dark.addEventListener("change", () => tell("theme"));

let colours = new Map();
const forget = () => { [colours, modules] = [new Map(), null]; };
on("theme", forget);

// Returns the modules, those with the most own time, or calls, first. Successive hues are far
// apart.
let modules = null;
on("data", () => { modules = null; });
export function modulesByTime() {
  if (modules) return modules;
  const weights = new Map();
  for (const { module, self, calls } of state.functions.values()) weights.set(module, (weights.get(module) || 0) + (self ?? calls));
  const ordered = [...weights].sort((a, b) => b[1] - a[1] || a[0].localeCompare(b[0]));
  modules = new Map(ordered.map(([module, weight], at) => [module, { weight, colour: tinted((211 + at * 137.508) % 360, 1) }]));
  return modules;
}

const tinted = (hue, shade) => isDark() ? `hsl(${hue} 38% ${34 + 4 * shade}%)` : `hsl(${hue} 62% ${76 + 4 * shade}%)`;
export function colour(f) {
  let found = colours.get(f);
  if (!found) {
    const { name, module } = functionOf(f);
    if (state.byModule) return modulesByTime().get(module)?.colour || tinted(0, 0);
    let hash = 2166136261;
    for (const text of [module, name.split(/[:_<(]/)[0], name])
      for (let at = 0; at < text.length; at++) hash = Math.imul(hash ^ text.charCodeAt(at), 16777619);
    const [hue, shade] = [(hash >>> 0) % 360, (hash >>> 12) % 3];
    found = tinted(hue, shade);
    colours.set(f, found);
  }
  return found;
}

// Returns the colours of the style sheet for canvases, which cannot use its functions.
let inks = null;
on("theme", () => { inks = null; });
export function ink() {
  if (!inks) {
    inks = {};
    const probe = document.body.appendChild(make("i", { hidden: "" }));
    for (const name of ["paper", "panel", "raised", "ink", "soft", "line", "accent", "bad", "mark", "cpu", "runnable", "blocked", "tracing"]) {
      probe.style.color = `var(--${name})`;
      inks[name] = getComputedStyle(probe).color;
    }
    probe.remove();
  }
  return inks;
}

// Prepares a canvas for the screen's resolution; returns its context and its size in CSS pixels.
export function sharpen(canvas, width, height) {
  const ratio = devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

// Returns the index of the first entry that ends at a moment or later, in a list with `size`
// numbers for each entry: start, length, and others.
export function firstAt(list, size, moment) {
  let [low, high] = [0, list.length / size];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (list[middle * size] + list[middle * size + 1] < moment) low = middle + 1;
    else high = middle;
  }
  return low * size;
}

// Shortens a text to fit. With namespaces, the end of a name is kept, as it says more than the
// beginning.
export const FONT = "11px system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif";
const CHARACTER = 6.2;
export function fit(text, width) {
  const room = Math.floor(width / CHARACTER);
  if (text.length <= room) return text;
  const short = text.replace(/\(.*$/, "").replace(/<.*>/, "<>");
  if (short.length <= room) return short;
  const last = short.split("::").pop();
  if (last.length <= room) return last;
  return room > 3 ? `${last.slice(0, room - 1)}…` : "";
}

// Shows a tip next to the pointer, inside of the window.
export function tip(event, ...content) {
  const box = $("tip");
  if (!content.length) {
    box.hidden = true;
    return;
  }
  box.replaceChildren(...content);
  box.hidden = false;
  const [width, height] = [box.offsetWidth, box.offsetHeight];
  box.style.left = `${Math.max(4, Math.min(event.clientX + 14, innerWidth - width - 8))}px`;
  box.style.top = `${event.clientY + 18 + height > innerHeight ? event.clientY - height - 10 : event.clientY + 18}px`;
}
