// The explanation of a slow call: its waits, the threads that ended them, and their actions
// meanwhile; as text, and in the timeline with an arrow from each waker to the thread that it woke.

import { ask, complain, functionOf, ink, make, on, state, tell, time } from "./common.js";
import { BAND } from "./states.js";

// Number of functions that are named among those that ran.
const RAN = 4;
const WAKERS = {
  interrupt: () => "woken by an interrupt (a timer, a device, the network)",
  calltap: () => "woken by calltap: this is time that tracing took",
  stopped_by_calltap: () => "interrupted by calltap, which stopped the thread",
  stopped_by_calltap_or_child: () => "woken by calltap, which stopped the thread or passed on the end of a traced child",
  process: ({ pid, comm }) => `woken by ${comm ? `${comm} (process ${pid})` : `process ${pid}`}`,
  thread: ({ thread, tid, path }) => `woken by ${thread}-${tid}${path.length ? ` in ${path.join(" <- ")}` : ", outside of traced calls"}`,
};

// The links of the chain of the explained call.
let links = [];

function lit(found) {
  links = found;
  tell("lit");
}

const line = (ns, text, ...below) => make("li", {}, make("b", {}, time(ns)), ` ${text}`, ...below);

function wait(one) {
  const times = one.waits > 1 ? ` ${one.waits} times` : "";
  const where = one.in == null ? " (the system call is not known)" : ` in ${one.in}`;
  const by = one.woken_by;
  const waker = by ? WAKERS[by.kind](by) : "its waker is unknown";
  const meanwhile = one.meanwhile && by ? [make("p", {}, `meanwhile ${by.thread}-${by.tid}${one.waits > 1 ? ` (of the longest, ${time(one.max_ns)})` : ""}:`), chain(one.meanwhile)] : [];
  return line(one.ns, `blocked${times}${where}${one.path.map(name => ` <- ${name}`).join("")}`, make("p", {}, waker), ...meanwhile);
}

function chain(did) {
  const names = did.ran.slice(0, RAN).map(({ function: name, ns }) => `${name} ${time(ns)}`);
  if (did.ran.length > RAN) names.push(`${did.ran.length - RAN} more`);
  const lines = [];
  if (did.cpu_ns) lines.push(line(did.cpu_ns, names.length ? `ran: ${names.join(", ")}` : "ran"));
  lines.push(...did.blocked.map(wait));
  if (did.runnable_ns) lines.push(line(did.runnable_ns, "runnable: it could run, and had no processor"));
  if (did.unknown_ns) lines.push(line(did.unknown_ns, "unknown: it is not recorded whether it ran"));
  return make("ul", { class: "chain" }, ...lines);
}

// Returns a button that explains a call, with an element for the explanation. A saved page cannot
// ask: it shows the command that gives the explanation.
export function explain(call) {
  if (!state.summary.switched || call.calls > 1) return [];
  if (state.saved) {
    const command = `calltap why '${functionOf(call.f).name}>${Math.floor((call.length - 1) / 1000)}us' -i FILE`;
    return [make("p", { id: "why", class: "soft" }, "Why it took so long is not in a saved page: ", make("code", {}, command), " says it of the trace.")];
  }
  const place = make("div", { id: "why", "aria-live": "polite" });
  const show = async event => {
    event.target.disabled = true;
    try {
      const { did, links, unknown } = await ask("why", { thread: call.thread, from: call.start, to: call.start + call.length, f: call.f });
      if (!place.isConnected) return;
      place.replaceChildren(chain(did), ...unknown.map(text => make("p", { class: "soft" }, text)));
      lit(links);
    } catch (error) {
      complain(error);
    }
    event.target.disabled = false;
  };
  return [make("button", { class: "why", onclick: show }, "Why so long?"), place];
}

// Frames the threads of the chain in their parts of it, fills their waits, and draws the arrows.
// `band` and `low` are the upper and the lower edge of a lane.
export function light(c, lanes, { x, left, right, band, low }) {
  const inks = ink();
  const clip = at => Math.min(Math.max(x(at), left - 4), right + 4);
  const lane = thread => lanes.find(one => one.thread === thread);
  c.lineWidth = 2;
  for (const { thread, start, length, waits } of links) {
    const own = lane(thread);
    if (!own) continue;
    const [a, b, top] = [clip(start), clip(start + length), band(own)];
    c.strokeStyle = inks.accent;
    c.strokeRect(a, top - 2, Math.max(b - a, 2), low(own) - top + 4);
    for (const [at, slept, by] of waits) {
      c.fillStyle = inks.accent;
      c.fillRect(clip(at), top - 2, Math.max(clip(at + slept) - clip(at), 1), BAND + 4);
      const waker = by != null && lane(by);
      if (waker && x(at + slept) >= left && x(at + slept) <= right) arrow(c, x(at + slept), waker.top < own.top ? low(waker) : band(waker), waker.top < own.top ? top : low(own));
    }
  }
}

function arrow(c, x, from, to) {
  const by = from < to ? -6 : 6;
  c.beginPath();
  c.moveTo(x, from);
  c.lineTo(x, to);
  c.moveTo(x - 4, to + by);
  c.lineTo(x, to);
  c.lineTo(x + 4, to + by);
  c.stroke();
}

on("call", () => lit([]));
