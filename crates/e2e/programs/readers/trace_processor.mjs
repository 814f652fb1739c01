// Asks Perfetto's trace processor: node trace_processor.mjs DIRECTORY TRACE QUERY... prints, for
// each query, its rows as a line of JSON. DIRECTORY is that of Perfetto's user interface, with
// unchanged engine_bundle.js and trace_processor.wasm; this script takes the part of the browser's
// worker. The protocol is protos/perfetto/trace_processor/trace_processor.proto, in Perfetto's
// sources.
import fs from "node:fs";
import path from "node:path";
import vm from "node:vm";

const [directory, trace, ...queries] = process.argv.slice(2);
const read = name => fs.readFileSync(path.join(directory, path.basename(name)));

// Objects that a worker has and node lacks. The bundle takes a global `process` as a sign of node,
// and does not start then.
const print = console.log;
Object.assign(globalThis, {
  self: globalThis,
  location: { href: "file:///engine_bundle.js" },
  WorkerGlobalScope: class {},
  XMLHttpRequest: class {
    open(_, url) { this.url = url; }
    send() { this.response = new Uint8Array(read(this.url)).buffer; }
  },
});
console.log = console.warn = () => {};
delete globalThis.process;
vm.runInThisContext(read("engine_bundle.js").toString());
let answers;
const port = { postMessage: bytes => answers.push(bytes) };
self.onmessage({ data: port });
await new Promise(setImmediate);

function varint(number) {
  const bytes = [];
  for (; number > 127; number = Math.floor(number / 128)) bytes.push(number % 128 + 128);
  return Buffer.from([...bytes, number]);
}

function field(number, value) {
  if (typeof value === "number") return Buffer.concat([varint(number << 3), varint(value)]);
  return Buffer.concat([varint(number << 3 | 2), varint(value.length), value]);
}

function* varints(bytes) {
  for (let at = 0; at < bytes.length;) {
    let number = 0n;
    for (let shift = 0n, more = true; more; shift += 7n) {
      number |= BigInt(bytes[at] & 127) << shift;
      more = bytes[at++] > 127;
    }
    yield [BigInt.asIntN(64, number), at];
  }
}

function* fields(bytes) {
  const number = () => {
    const [value, length] = varints(bytes).next().value;
    bytes = bytes.subarray(length);
    return Number(value);
  };
  while (bytes.length) {
    const key = number();
    if ((key & 7) === 0) { yield [key >> 3, number()]; continue; }
    const length = (key & 7) === 2 ? number() : 8;
    yield [key >> 3, bytes.subarray(0, length)];
    bytes = bytes.subarray(length);
  }
}

const all = (bytes, wanted) => [...fields(bytes)].filter(([number]) => number === wanted).map(([, value]) => value);
const fail = (what, text) => { throw new Error(`${what}: ${text}`); };

let sequence = 0;
function ask(what, method, argument, result) {
  answers = [];
  port.onmessage({ data: new Uint8Array(field(1, Buffer.concat([field(1, ++sequence), field(2, method), argument]))) });
  const messages = all(Buffer.concat(answers), 1);
  messages.flatMap(message => all(message, 5)).forEach(fatal => fail(what, fatal));
  return messages.flatMap(message => all(message, result));
}

function query(sql) {
  const results = ask(sql, 3, field(103, field(1, Buffer.from(sql))), 203);
  results.flatMap(result => all(result, 2)).forEach(error => fail(sql, error));
  const columns = results.flatMap(result => all(result, 1)).length;
  const cells = results.flatMap(result => all(result, 3)).flatMap(batch => {
    const numbers = all(batch, 2).flatMap(packed => [...varints(packed)].map(([value]) => Number(value))).values();
    const strings = all(batch, 5).flatMap(text => text.toString().split("\0")).values();
    const next = { 1: () => null, 2: () => numbers.next().value, 4: () => strings.next().value };
    return all(batch, 1).flatMap(types => [...types].map(type => next[type]()));
  });
  return Array.from({ length: cells.length / columns }, (_, row) => cells.slice(row * columns, (row + 1) * columns));
}

const APPEND = 1, FINALIZE = 2, PIECE = 1 << 20;
const bytes = fs.readFileSync(trace);
for (let at = 0; at < bytes.length; at += PIECE) {
  const results = ask(trace, APPEND, field(101, bytes.subarray(at, at + PIECE)), 201);
  results.flatMap(result => all(result, 2)).forEach(error => fail(trace, error));
}
ask(trace, FINALIZE, Buffer.alloc(0), 0);
queries.forEach(sql => print(JSON.stringify(query(sql))));
