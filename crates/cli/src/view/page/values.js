// Arguments and results of a call, if they were recorded.

import { ask, complain, make, newest, state } from "./common.js";

const load = newest(query => ask("values", query));

// Returns the element of the values, which is filled when the answer arrives.
export function values({ f, thread, start, depth }) {
  const place = make("div", { class: "values", "aria-live": "polite" });
  load({ f, thread, start, depth }).then(found => found !== undefined && place.replaceChildren(...shown(found))).catch(complain);
  return place;
}

function shown(found) {
  if (!found && state.saved) return [make("p", { class: "soft" }, "The saved page has arguments and results of the slowest calls of a function, and this is none of them.")];
  const { arguments: given, results } = found || { arguments: [], results: [] };
  if (!given.length && !results.length) return [make("p", { class: "soft" }, "Of this call no values were recorded.")];
  const row = (title, [name, text]) => make("tr", {}, make("th", { scope: "row" }, title), make("td", {}, name), make("td", { title: text }, make("code", {}, text)));
  return [make("table", {}, ...given.map((one, at) => row(at ? "" : "arguments", one)), ...results.map((one, at) => row(at ? "" : "results", one)))];
}
