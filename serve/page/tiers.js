// The live picture of the tiers: what lies where, bytes moved a second, hit rates.

import {events} from "./api.js";
import {bytes} from "./text.js";

const $ = (id) => document.getElementById(id);
const minute = 60000;
let last = null; // the event before
let rates = []; // [{at, rate}] of the last minute

function element(tag, text, name) {
  const e = document.createElement(tag);
  if (name) e.className = name;
  if (text !== undefined) e.textContent = text;
  return e;
}

// perSecond is how fast a counter of an event grows.
function perSecond(now, value) {
  const passed = last ? (now.at_ms - last.at_ms) / 1000 : 0;
  return passed > 0 ? Math.max(0, value(now) - value(last)) / passed : 0;
}

const movedBetween = (from, to) => (s) => (s.moved.find((m) => m.from === from && m.to === to) || {bytes: 0}).bytes;

function draw(s) {
  const list = [];
  s.tiers.forEach((t, i) => {
    if (i > 0) {
      const up = perSecond(s, movedBetween(t.name, s.tiers[i - 1].name)), down = perSecond(s, movedBetween(s.tiers[i - 1].name, t.name));
      const flow = element("div", undefined, "flow");
      flow.append(element("span", "↓ " + bytes(down) + "/s", down ? "on" : ""), element("span", "↑ " + bytes(up) + "/s", up ? "on" : ""));
      list.push(flow);
    }
    const tier = element("div", undefined, "tier"), name = element("div", undefined, "name"), bar = element("div", undefined, "bar"), fill = element("i");
    const whole = t.capacity_bytes || t.peak_bytes;
    name.append(element("b", t.name), element("span", bytes(t.used_bytes) + (t.capacity_bytes ? " of " + bytes(t.capacity_bytes) : ", most " + bytes(t.peak_bytes)), "muted"));
    fill.style.width = (whole ? 100 * t.used_bytes / whole : 0) + "%";
    fill.style.background = "var(--t" + Math.min(i, 3) + ")";
    bar.append(fill);
    bar.title = t.name + ": " + t.used_bytes + " bytes";
    tier.append(name, bar);
    tier.style.marginLeft = 12 * i + "px"; // terraces
    list.push(tier);
  });
  $("terraces").replaceChildren(...list);
  const hits = s.tokens_read > (last ? last.tokens_read : 0) && last ? 1 - (s.tokens_fetched - last.tokens_fetched) / (s.tokens_read - last.tokens_read) : s.hit_rate;
  const rows = [["Hit rate of host memory", hits === null ? "—" : (100 * hits).toFixed(1) + " %"], ["Running, waiting", s.running + ", " + s.waiting],
    ["Tokens a second", Math.round(perSecond(s, (x) => x.tokens)).toString()], ["Waited for tiers", (100 * Math.min(1, perSecond(s, (x) => x.stall_ms) / 1000)).toFixed(0) + " %"]];
  $("numbers").replaceChildren(...rows.flatMap(([k, v]) => [element("dt", k), element("dd", v)]));
  chart(s);
  maps(s);
  experts(s.experts);
}

const tierColour = (i) => getComputedStyle(document.documentElement).getPropertyValue("--t" + Math.min(i, 3)).trim();

// picture is a canvas of some cells with a line below it, which is also what a reader of screens hears.
function picture(cells, rows, line, what) {
  const figure = element("figure"), canvas = document.createElement("canvas");
  [canvas.width, canvas.height] = [cells, rows];
  canvas.style.height = Math.min(160, Math.max(60, 4 * rows)) + "px";
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", what + line);
  figure.append(canvas, element("figcaption", line, "muted"));
  return [figure, canvas.getContext("2d")];
}

// experts draws where each expert is whose weights are read from the model's file.
function experts(places) {
  const layers = Object.keys(places || {}).map(Number).sort((a, b) => a - b);
  $("expertsHead").hidden = layers.length === 0;
  if (layers.length === 0) return $("experts").replaceChildren();
  const all = layers.map((l) => places[l]).join(""), here = all.replace(/[ab]/g, "").length;
  const [figure, g] = picture(Math.max(...layers.map((l) => places[l].length)), layers.length, here + " of " + all.length + " in memory", "Experts by layer: ");
  layers.forEach((l, y) => [...places[l]].forEach((letter, x) => {
    if (letter === "a") return;
    g.globalAlpha = letter === "b" ? 0.4 : 1;
    g.fillStyle = tierColour(letter === "d" ? 1 : 0);
    g.fillRect(x, y, 1, 1);
  }));
  $("experts").replaceChildren(figure);
}

// maps draws where the tokens of each text that decodes lie: the darker, the more KV heads keep them.
function maps(s) {
  const lower = Math.max(0, s.tiers.findIndex((t) => t.name !== "device" && t.name !== "host"));
  const drawn = s.sequences.filter((t) => t.cache);
  $("mapsHead").hidden = drawn.length === 0;
  $("maps").replaceChildren(...drawn.map((t) => {
    const {rows, shades} = t.cache, cells = rows[0].length / 2, line = t.policy + ", " + t.prompt_tokens + " + " + t.generated_tokens + " tokens, " + bytes(t.kv_bytes);
    const [figure, g] = picture(cells, rows.length, line, "Tokens kept by layer and position: ");
    rows.forEach((row, y) => {
      for (let x = 0; x < cells; x++) {
        [[1, lower], [0, 0]].forEach(([k, tier]) => { // below first, memory over it
          const share = (row.charCodeAt(2 * x + k) - 97) / shades;
          if (!share) return;
          g.globalAlpha = 0.25 + 0.75 * share;
          g.fillStyle = tierColour(tier);
          g.fillRect(x, y, 1, 1);
        });
      }
    });
    return figure;
  }));
}

function chart(s) {
  const now = perSecond(s, (x) => x.moved.reduce((n, m) => n + m.bytes, 0));
  rates.push({at: s.at_ms, rate: now});
  rates = rates.filter((r) => r.at > s.at_ms - minute);
  const most = Math.max(1, ...rates.map((r) => r.rate));
  const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
  line.setAttribute("points", rates.map((r) => (240 * (1 - (s.at_ms - r.at) / minute)).toFixed(1) + "," + (58 - 56 * r.rate / most).toFixed(1)).join(" "));
  $("chart").replaceChildren(line);
  $("rate").textContent = bytes(now) + "/s";
}

// follow draws until the page is closed; a connection that ends is made again.
export async function follow() {
  for (let wait = 500;;) {
    try {
      for await (const s of events("v1/terrace/tiers?cache=1")) {
        $("live").textContent = "live";
        draw(s);
        last = s;
        wait = 500;
      }
    } catch (e) {
      $("live").textContent = e.status === 401 ? "needs the API key" : "not connected";
    }
    last = null;
    await new Promise((r) => setTimeout(r, wait));
    wait = Math.min(2 * wait, 15000);
  }
}
