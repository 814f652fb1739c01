// Uses the page of `calltap view` as a user with a browser: node page.mjs ADDRESS CHROMIUM WHAT.
// Prints the error if one occurs, and exits with 1.
import { spawn } from "node:child_process";
import { mkdtempSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const [, , address, chromium, what] = process.argv;

// The browser, controlled by its protocol over a pipe.
const profile = mkdtempSync(join(process.env.TMPDIR || tmpdir(), "page-"));
const browser = spawn(chromium, ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run", "--remote-debugging-pipe", `--user-data-dir=${profile}`, "about:blank"],
  { stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"] });
process.on("exit", () => browser.kill("SIGKILL"));
const waiting = new Map();
const [asked, said] = [[], []];
let [number, session, rest] = [0, undefined, ""];
browser.stdio[4].on("data", bytes => {
  const messages = (rest + bytes).split("\0");
  rest = messages.pop();
  for (const { id, result, error, method, params } of messages.map(text => JSON.parse(text))) {
    if (id) {
      const [done, failed] = waiting.get(id);
      error ? failed(new Error(JSON.stringify(error))) : done(result);
    } else if (method === "Network.requestWillBeSent") asked.push(params.request.url);
    else if (method === "Runtime.exceptionThrown") said.push(JSON.stringify(params.exceptionDetails));
    else if (method === "Runtime.consoleAPICalled" || method === "Log.entryAdded") said.push(JSON.stringify(params.args || params.entry.text));
  }
});
browser.on("exit", () => fail("the browser has ended"));
const send = (method, params = {}) => new Promise((...both) => {
  waiting.set(++number, both);
  browser.stdio[3].write(`${JSON.stringify({ id: number, method, params, sessionId: session })}\0`);
});

function fail(why) {
  console.log(`${why}\n${said.join("\n")}`);
  process.exit(1);
}
const check = (is, why) => is || fail(why);

async function page(expression) {
  const { result, exceptionDetails } = await send("Runtime.evaluate", { expression, awaitPromise: true, returnByValue: true });
  if (exceptionDetails) fail(`${expression}: ${JSON.stringify(exceptionDetails)}`);
  return result.value;
}
// Nothing holds yet while the browser loads another page.
const unlessLoading = error => { if (!error.message.includes("navigated or closed")) throw error; };
// The test that runs this script has a time limit of its own.
async function until(expression) {
  for (let at = 0; !(await page(expression).catch(unlessLoading)); at++) {
    if (at === 1200) fail(`in vain: ${expression}; ${await page("document.body.innerText")}`);
    await new Promise(done => setTimeout(done, 50));
  }
}
const CODES = { Enter: 13, Escape: 27, Tab: 9, ArrowLeft: 37, ArrowUp: 38, ArrowRight: 39, ArrowDown: 40, " ": 32 };
async function press(keys, shift) {
  for (const key of [keys].flat()) {
    const code = CODES[key] || key.toUpperCase().charCodeAt(0);
    const about = { key, windowsVirtualKeyCode: code, modifiers: shift ? 8 : 0, ...(key.length === 1 ? { text: key } : key === "Enter" ? { text: "\r" } : {}) };
    await send("Input.dispatchKeyEvent", { type: "keyDown", ...about });
    await send("Input.dispatchKeyEvent", { type: "keyUp", ...about });
  }
}
const shown = () => page(`document.getElementById("overview").getAttribute("aria-valuetext")`);
const spoken = () => page(`document.getElementById("said").textContent`);
const chosen = name => until(`document.querySelector("#details h2")?.textContent === ${JSON.stringify(name)} && document.querySelector("#details dl")`);
const drawn = () => until(`document.getElementById("scroller").getAttribute("aria-busy") === "false"`);
// Returns the number of different colours on a canvas.
const colours = id => page(`(() => { const c = document.getElementById("${id}"); const d = new Uint32Array(c.getContext("2d").getImageData(0, 0, c.width, c.height).data.buffer); return new Set(d).size; })()`);

async function open(scheme) {
  const { targetId } = await send("Target.createTarget", { url: "about:blank" });
  ({ sessionId: session } = await send("Target.attachToTarget", { targetId, flatten: true }));
  for (const domain of ["Page", "Runtime", "Network", "Log"]) await send(`${domain}.enable`);
  await send("Emulation.setDeviceMetricsOverride", { width: 1280, height: 800, deviceScaleFactor: 1, mobile: false });
  await send("Emulation.setEmulatedMedia", { features: [{ name: "prefers-color-scheme", value: scheme }] });
  await send("Page.navigate", { url: address });
  await until(`document.body?.dataset.ready`);
}

// Checks that every element which keys can reach has a name and a role for screen readers.
async function accessible() {
  const { nodes } = await send("Accessibility.getFullAXTree");
  const focusable = nodes.filter(node => !node.ignored && node.properties?.some(one => one.name === "focusable" && one.value.value));
  check(focusable.length > 6, "hardly anything can be reached by keys");
  for (const { role, name } of focusable)
    check(role?.value && (name?.value || role.value === "RootWebArea"), `a ${role?.value} without a name`);
}

async function file() {
  await open("light");
  await drawn();
  check(await colours("lanes") > 8, "nothing is drawn");
  await accessible();

  // Search leads to a function, and its slowest call to its position in the timeline.
  const all = await shown();
  await press(["/", "n", "a", "p"]);
  await until(`document.querySelectorAll("#found [role=option]").length === 1`);
  await press("Enter");
  await chosen("nap");
  check(await page(`document.querySelectorAll("#histogram .button").length > 0`), "no histogram");
  await page(`document.querySelector("#slow button").focus()`);
  await press("Enter");
  await until(`document.getElementById("overview").getAttribute("aria-valuetext") !== ${JSON.stringify(all)}`);
  check((await spoken()).startsWith("nap, "), `said of the slowest: ${await spoken()}`);
  await until(`!!document.querySelector("#call .took")`);
  const explains = await page(`!!document.querySelector("#call button.why")`);
  check(explains === (what === "file" && await page(`!!document.querySelector("#call .parts")`)), "only calltap knows why");
  if (what === "saved") check(await page(`document.querySelector("#why")?.textContent.includes("calltap why '")`), "a saved page names the command that knows why");
  if (explains) {
    await page(`document.querySelector("#call button.why").focus()`);
    await press("Enter");
    await until(`document.querySelector("#why li")?.textContent.includes("ran")`);
    check(await page(`[...document.querySelectorAll("#why li")].some(one => one.textContent.includes("blocked"))`), `a nap sleeps: ${await page(`document.getElementById("why").textContent`)}`);
  }
  // A bar lists its own calls.
  await page(`document.querySelector("#histogram .button").focus()`);
  await press("Enter");
  await until(`document.querySelector("#slow h3").textContent.startsWith("Calls of ")`);

  await heat();

  // By keys: to the next call, into it, out of it, and through all of the time.
  await press("]");
  const said = text => `document.getElementById("said").textContent.startsWith(${JSON.stringify(text)})`;
  await until(`${said("nap, ")} || ${said("there is no call after")}`);
  // The slowest call may be the last one.
  if (!(await page(said("nap, ")))) await press("[");
  await until(said("nap, "));
  await drawn();
  await page(`document.getElementById("scroller").focus()`);
  await press("ArrowUp", true);
  await until(`document.getElementById("said").textContent.startsWith("lap, ")`);
  await chosen("lap");
  await press("f");
  const close = await shown();
  await press(["w", "w"]);
  check(await shown() !== close, "w does not zoom");
  await press(["d"]);
  await press(["0"]);
  check(await shown() === all, `all: ${all}, then ${await shown()}`);
  await press("Escape");
  await until(`document.getElementById("details").hidden`);

  // The flame graph by keys, with only the part above a box.
  await press("2");
  await until(`document.getElementById("boxes").width > 300`);
  check(await colours("boxes") > 4, "no flames");
  await page(`document.getElementById("flames").focus()`);
  await press(["ArrowDown", "ArrowDown", "ArrowDown"]);
  check((await spoken()).startsWith("lap: "), `below main: ${await spoken()}`);
  await press("Enter");
  await until(`document.querySelectorAll("#crumbs button").length === 2`);
  await page(`document.querySelector("[data-mode=callers]").click()`);
  await until(`document.getElementById("crumbs").textContent.includes("callers of lap")`);

  // The table has all functions, in any order.
  await press("3");
  const names = () => page(`[...document.querySelectorAll("#functions tbody tr")].map(row => row.querySelector(".name").textContent)`);
  check((await names()).join() === "main,lap,nap,leaf", `by total: ${await names()}`);
  await page(`[...document.querySelectorAll("#functions th button")].find(one => one.textContent === "Calls").click()`);
  check((await names())[0] === "leaf", `by calls: ${await names()}`);

  if (what === "file") await window();
  else check(await page(`document.getElementById("scope").hidden && document.getElementById("notes").textContent.includes("every call is in it")`), "a saved page does not say what it is");

  // Coloured by module, the drawing has as many colours as there are modules.
  await press(["2", "m"]);
  await until(`!document.getElementById("modules").hidden && document.querySelectorAll("#modules li").length > 0`);
  const modules = await page(`[...document.querySelectorAll("#modules .swatch")].map(one => one.style.background)`);
  check(new Set(modules).size === modules.length && modules.length > 0, `colours of modules: ${modules}`);
  await press(["3"]);
  const swatches = `new Set([...document.querySelectorAll("#functions tbody .swatch")].map(one => one.style.background)).size`;
  check(await page(swatches) <= modules.length, "functions of a module differ in colour");
  await press("m");
  await until(`document.getElementById("modules").hidden`);

  // The dark theme is dark.
  const paper = () => page(`getComputedStyle(document.body).backgroundColor`);
  const light = await paper();
  await open("dark");
  check(light !== await paper(), `light and dark are both ${light}`);
  await accessible();
}

// The heatmap has every ended call of a function, and a cell lists its own.
async function heat() {
  await until(`document.querySelectorAll("#heat rect.cell").length > 0`);
  const total = await page(`[...document.querySelectorAll("#details dl div")].find(one => one.firstChild.textContent === "calls").lastChild.textContent`);
  check(await page(`document.getElementById("heat").dataset.calls`) === total.replaceAll(",", ""), `calls in the heatmap, of ${total}`);
  await page(`document.querySelector("#heat svg").focus()`);
  await press("ArrowRight");
  const said = await spoken();
  check(/^[\d,]+ calls? of .* begun at /.test(said), `said of a cell: ${said}`);
  await press("Enter");
  await until(`document.querySelector("#slow h3").textContent.includes("begun at")`);
  const calls = Number(said.split(" ")[0].replaceAll(",", ""));
  check(await page(`document.querySelectorAll("#slow td button").length`) === Math.min(calls, 20), `calls that are listed, of ${calls}`);
  await press("Escape");
  await until(`document.querySelector("#slow h3").textContent === "Slowest calls"`);
}

// Flame graph and functions show only the time that the timeline shows.
async function window() {
  const callsAt = await page(`[...document.querySelectorAll("#functions th")].findIndex(one => one.textContent === "Calls")`);
  const leaf = `[...document.querySelectorAll("#functions tbody tr")].find(row => row.querySelector(".name").textContent === "leaf")?.querySelector("td:nth-child(${1 + callsAt})").textContent`;
  const ofAll = await page(leaf);
  check(Number(ofAll.replaceAll(",", "")) > 0, `calls of leaf: ${ofAll}`);
  await press("1");
  await page(`document.getElementById("scroller").focus()`);
  await press(["w", "w", "w", "w"]);
  await press(["t", "3"]);
  await until(`document.getElementById("scope").textContent.endsWith(" shown")`);
  await until(`document.getElementById("more").textContent.includes("beyond this time")`);
  await until(`${leaf} !== ${JSON.stringify(ofAll)}`);
  await press("2");
  await page(`document.querySelector("[data-mode=all]").click()`);
  await until(`document.getElementById("crumbs").textContent.includes("a click zooms in")`);
  await page(`document.getElementById("flames").focus()`);
  await press(["ArrowDown", "ArrowDown"]);
  await until(`document.getElementById("said").textContent.startsWith("main: ")`);
  await press(["3", "t"]);
  await until(`document.getElementById("scope").textContent === "All time"`);
  await until(`${leaf} === ${JSON.stringify(ofAll)}`);
}

async function live() {
  await open("light");
  const row = `[...document.querySelectorAll("#functions tbody tr")].find(row => row.querySelector(".name").textContent === "leaf")`;
  await until(`!!${row}`);
  await until(`Number(${row}.children[2].textContent.replace(/,/g, "")) > 0`);
  await accessible();
  await page(`${row}.querySelector("[role=switch]").click()`);
  await until(`${row}.querySelector("[role=switch]").getAttribute("aria-checked") === "false"`);
  // A function that is off has no known calls any more in any view.
  await until(`${row}.children[2].textContent === "–"`);
  console.log("off");
  for await (const line of process.stdin) if (line.toString().includes("on")) break;
  await page(`${row}.querySelector("[role=switch]").click()`);
  await until(`Number(${row}.children[2].textContent.replace(/,/g, "")) > 0`);
  await press("1");
  await drawn();
  check(await colours("lanes") > 4, "nothing is drawn");
}

// Another one of several processes is chosen.
async function several() {
  await open("light");
  const process = `document.getElementById("process")`;
  await until(`!${process}.hidden && ${process}.options.length === 2`);
  await accessible();
  const title = await page(`document.getElementById("title").textContent`);
  const [first, second] = await page(`[...${process}.options].map(one => one.textContent)`);
  check(title === first, `${title} is shown, of ${first} and ${second}`);
  await page(`${process}.selectedIndex = 1; setTimeout(() => ${process}.dispatchEvent(new Event("change")))`);
  await until(`document.body?.dataset.ready && document.getElementById("title").textContent === ${JSON.stringify(second)}`);
  await until(`document.querySelectorAll("#functions tbody tr").length > 0`);
}

// Arguments and results of a call are shown where the call is chosen.
async function values() {
  await open("light");
  await drawn();
  await press(["/", "l", "e", "a", "f"]);
  await until(`document.querySelectorAll("#found [role=option]").length > 0`);
  await press("Enter");
  await chosen("leaf");
  await page(`document.querySelector("#slow button").focus()`);
  await press("Enter");
  await until(`document.querySelectorAll("#call .values tr").length === 2`);
  const [given, returned] = await page(`[...document.querySelectorAll("#call .values code")].map(one => Number(one.textContent))`);
  check(/paced\.c:\d+$/.test(await page(`document.getElementById("source").textContent`)), "where leaf is in its source");
  check(returned === given + 1, `leaf(${given}) returned ${returned}`);
}

// A flame graph of differences: its colours, its texts, and the functions that are gone.
async function compare() {
  await open("light");
  await until(`!document.getElementById("against").hidden && document.getElementById("boxes").width > 300`);
  await accessible();
  await until(`document.getElementById("changes").textContent.includes("on paths that are gone, which have no width here")`);
  const [red, blue] = await page(TINTS);
  check(red > 1000 && blue < red / 100, `slower and new calls: ${red} red and ${blue} blue pixels`);
  await page(`document.getElementById("flames").focus()`);
  await press(["ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown"]);
  const parse = await spoken();
  check(/^parse: .* in the base: \+.*; 40 calls, 40 in the base$/.test(parse), `said of parse: ${parse}`);
  await press("ArrowRight");
  const fresh = await spoken();
  check(/^new_step: new: .*; 40 calls, 0 in the base$/.test(fresh), `said of new_step: ${fresh}`);
  await page(`document.querySelector("[data-against=base]").click()`);
  await until(`document.querySelector("[data-against=base]").getAttribute("aria-checked") === "true"`);
  await until(`!document.getElementById("changes").textContent.includes("which have no width here")`);
  await until(`${TINTS}[1] > 1000`);
  await page(`document.getElementById("flames").focus()`);
  await press(["ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown", "ArrowRight"]);
  const gone = await spoken();
  check(/^old_step: gone: .* and 40 calls in the base$/.test(gone), `said of old_step: ${gone}`);
  // Zoomed into, and with the calls of this trace alone.
  await press("ArrowLeft");
  await press("Enter");
  await until(`document.querySelectorAll("#crumbs button").length === 3`);
  await page(`document.querySelector("[data-against=none]").click()`);
  await until(`document.getElementById("changes").hidden && document.getElementById("crumbs").textContent.includes("a click zooms in")`);
}
// The numbers of pixels of the flame graph that are more red than blue, and more blue than red.
const TINTS = `(() => { const c = document.getElementById("boxes"); const copy = new OffscreenCanvas(c.width, c.height).getContext("2d", { willReadFrequently: true }); copy.drawImage(c, 0, 0); const d = copy.getImageData(0, 0, c.width, c.height).data; const count = [0, 0]; for (let i = 0; i < d.length; i += 4) { if (d[i] > d[i + 2] + 40) count[0]++; if (d[i + 2] > d[i] + 40) count[1]++; } return count; })()`;

// Long names are short in the panes, and in full in tips and where they are asked for.
async function names() {
  await open("light");
  await drawn();
  await press("3");
  await until(`document.querySelectorAll("#functions tbody tr").length === 4`);
  const rows = await page(`[...document.querySelectorAll("#functions td.name")].map(cell => {
    const button = cell.querySelector("button");
    return { short: button.textContent, full: cell.title, room: button.clientWidth, fits: button.scrollWidth <= button.clientWidth };
  })`);
  const gather = rows.find(row => row.full.startsWith("long store::gather<") || row.full.startsWith("store::gather<"));
  check(gather && gather.full.length > 150 && gather.short.length < 40 && gather.fits, `gather: ${JSON.stringify(gather)}`);
  // Instances that differ in their arguments keep these, as far as there is room.
  const visits = rows.filter(row => row.full.includes("store::visit<"));
  check(visits.length === 2 && visits[0].short !== visits[1].short && visits.every(row => row.room > 200), `visit: ${JSON.stringify(visits)}`);
  await page(`[...document.querySelectorAll("#functions td.name button")].find(button => button.textContent === ${JSON.stringify(gather.short)}).click()`);
  await chosen(gather.short);
  check(await page(`document.querySelector("#details details.full").textContent.includes(${JSON.stringify(gather.full)})`), "the full name");
}

// The line about functions that the overhead limit disabled is one line until it is unfolded.
async function disabled() {
  await open("light");
  await drawn();
  await send("Emulation.setDeviceMetricsOverride", { width: 700, height: 800, deviceScaleFactor: 1, mobile: false });
  const line = `[...document.querySelectorAll("#notes details")].find(one => one.textContent.includes("disabled by --max-overhead"))`;
  const height = () => page(`${line}.getBoundingClientRect().height`);
  const [text, folded] = [await page(`${line}.textContent`), await height()];
  check(text.includes("'--max-overhead none' keeps all"), text);
  check(folded < 30 && !(await page(`${line}.open`)), `${folded} pixels`);
  await page(`${line}.querySelector("summary").focus()`);
  await press("Enter");
  await until(`${line}.open`);
  check(await height() > folded + 10, `unfolded: ${await height()} pixels`);
  const span = `${line}.querySelector("span")`;
  check(await page(`${span}.scrollWidth <= ${span}.clientWidth`), "all of the text is shown");
  await press("Enter");
  await until(`!${line}.open`);
  check(await height() === folded, "folded again");
}

await ({ live, several, values, compare, names, disabled }[what] || file)();
const elsewhere = asked.filter(url => !url.startsWith(address) && !["about:", "chrome:", "data:"].some(own => url.startsWith(own)));
check(!elsewhere.length, `asked elsewhere: ${elsewhere}`);
check(!said.length, "said on the console:");
console.log("fine");
process.exit(0);
