"use strict";
const WIDTH = 1200, CHARACTER = 6.6;
const boxes = [...document.querySelectorAll("#boxes g")].map(g => ({
  g, x: +g.dataset.x, w: +g.dataset.w, l: +g.dataset.l, n: g.dataset.n,
  rect: g.querySelector("rect"), text: g.querySelector("text") }));
function label(name, width) {
  const room = Math.max(0, Math.floor((width - 6) / CHARACTER)), all = [...name];
  return all.length <= room ? name : room < 3 ? "" : all.slice(0, room - 2).join("") + "..";
}
function zoom(to) {
  const end = to.x + to.w, eps = 1e-9;
  for (const b of boxes) {
    const below = b.l < to.l && b.x <= to.x + eps && b.x + b.w >= end - eps;
    const inside = b.l >= to.l && b.x >= to.x - eps && b.x + b.w <= end + eps;
    b.g.style.display = below || inside ? "" : "none";
    b.g.classList.toggle("below", below);
    if (!below && !inside) continue;
    const x = below ? 0 : (b.x - to.x) / to.w * WIDTH, w = below ? WIDTH : b.w / to.w * WIDTH;
    b.rect.setAttribute("x", x);
    b.rect.setAttribute("width", w);
    b.text.setAttribute("x", x + 3);
    b.text.textContent = label(b.n, w);
  }
}
function search() {
  const wanted = prompt("Functions to search for (regular expression):");
  if (wanted === null) return;
  let pattern = null;
  try { if (wanted) pattern = new RegExp(wanted); } catch (e) { alert(e.message); return; }
  const found = [];
  for (const b of boxes) {
    const hit = pattern !== null && b.l > 0 && pattern.test(b.n);
    b.g.classList.toggle("found", hit);
    if (hit) found.push(b);
  }
  found.sort((a, b) => a.l - b.l);
  const outer = [];
  let sum = 0;
  for (const b of found) {
    if (outer.some(o => o.x <= b.x + 1e-9 && o.x + o.w >= b.x + b.w - 1e-9)) continue;
    outer.push(b);
    sum += b.w;
  }
  document.getElementById("found").textContent =
    pattern === null ? "" : found.length + " boxes, " + (100 * sum).toFixed(2) + " %";
}
for (const b of boxes) b.g.addEventListener("click", () => zoom(b));
document.getElementById("reset").addEventListener("click", () => zoom(boxes[0]));
document.getElementById("search").addEventListener("click", search);
addEventListener("keydown", e => {
  if (e.key === "Escape") zoom(boxes[0]);
  if (e.key === "/" || ((e.ctrlKey || e.metaKey) && e.key === "f")) { e.preventDefault(); search(); }
});
