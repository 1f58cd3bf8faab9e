// The conversation: what was said, what is asked next, and under which settings.

import {events, get, key} from "./api.js";
import {bytes, compare, percent, seconds, show} from "./text.js";
import {follow} from "./tiers.js";

const $ = (id) => document.getElementById(id);
const turns = []; // {user, answer}: what later messages are answered with
let props = null; // the server's /props
let running = null; // AbortController of the answers under way
let lastTurn = null; // {user, node}

const numbers = ["temperature", "top_p", "top_k", "min_p", "repeat_penalty", "max_tokens", "seed"];

// sampling are the fields of a request as they stand; what is empty is the server's, which the field shows.
function sampling() {
  const s = {};
  for (const name of numbers) if ($(name).value !== "") s[name] = Number($(name).value);
  if (s.seed === undefined) s.seed = Math.floor(Math.random() * 2 ** 31);
  return s;
}

function request(user, policy, settings) {
  const common = {...settings, stream: true, stream_options: {include_usage: true}};
  if (policy) common.kv_policy = policy;
  const before = turns.flatMap((t) => [{role: "user", content: t.user}, {role: "assistant", content: t.answer}]);
  if (props && !props.chat_template) { // a base model continues text
    return ["v1/completions", {...common, prompt: turns.map((t) => t.user + t.answer + "\n").join("") + user}];
  }
  const system = $("system").value.trim();
  return ["v1/chat/completions", {...common, messages: [...(system ? [{role: "system", content: system}] : []), ...before, {role: "user", content: user}]}];
}

function element(tag, name, text) {
  const e = document.createElement(tag);
  if (name) e.className = name;
  if (text !== undefined) e.textContent = text;
  return e;
}

function button(text, title, on) {
  const b = element("button", "", text);
  b.type = "button";
  b.title = title;
  b.addEventListener("click", on);
  return b;
}

// atEnd keeps the newest text in view for who is reading there.
function atEnd(change) {
  const talk = $("talk"), end = talk.scrollHeight - talk.scrollTop - talk.clientHeight < 80;
  change();
  if (end) talk.scrollTop = talk.scrollHeight;
}

// answer streams one answer into a card; it returns what came, or null where it failed.
async function answer(card, user, policy, settings, signal) {
  const body = card.querySelector(".body"), footer = card.querySelector("footer"), out = {policy, text: "", began: performance.now()};
  card.classList.add("busy");
  try {
    const [path, fields] = request(user, policy, settings);
    for await (const e of events(path, fields, signal)) {
      if (e.error) throw new Error(e.error.message);
      const c = e.choices && e.choices[0], piece = c ? (c.delta ? c.delta.content : c.text) : "";
      if (c && c.delta && c.delta.reasoning_content) {
        out.first ??= performance.now() - out.began;
        out.thought = (out.thought || "") + c.delta.reasoning_content;
        atEnd(() => think(card, out.thought));
      }
      if (piece) {
        out.first ??= performance.now() - out.began;
        out.text += piece;
        atEnd(() => show(body, out.text));
      }
      if (c && c.finish_reason) [out.finish, out.why] = [c.finish_reason, c.stop_reason];
      if (e.timings) out.timings = e.timings;
      if (e.usage) out.usage = e.usage;
    }
  } catch (e) {
    if (e.name === "AbortError") out.finish = "stopped";
    else {
      card.classList.remove("busy");
      body.textContent = e.message;
      body.style.color = "var(--bad)";
      $("status").textContent = e.message;
      return null;
    }
  }
  out.took = performance.now() - out.began;
  card.classList.remove("busy");
  atEnd(() => footer.replaceChildren(...facts(out).map((f) => element("span", "", f))));
  return out;
}

// think shows what the model thinks before it answers, folded.
function think(card, text) {
  let fold = card.querySelector("details.thought");
  if (!fold) {
    fold = element("details", "thought");
    fold.append(element("summary"), element("div"));
    card.querySelector(".body").before(fold);
  }
  fold.querySelector("summary").textContent = "Thought, " + text.trim().length.toLocaleString("en") + " characters";
  fold.querySelector("div").textContent = text.trim();
}

function facts(a) {
  const f = [];
  if (a.first !== undefined) f.push("first token " + seconds(a.first));
  f.push(seconds(a.took));
  if (a.timings) {
    if (a.timings.predicted_per_second) f.push(a.timings.predicted_per_second.toFixed(1) + " tokens/s");
    if (a.timings.kv_bytes) f.push("KV " + bytes(a.timings.kv_bytes));
    if (a.timings.cache_n) f.push(a.timings.cache_n + " prompt tokens cached");
  }
  if (a.finish === "length") f.push({context: "the context is full", memory: "no memory for more"}[a.why] || "ended at the most tokens");
  if (a.finish === "stopped") f.push("stopped");
  return f;
}

// ask answers a message under one policy, or under two at the same time.
async function ask(user) {
  const settings = sampling(), both = $("compare").checked;
  const policies = both ? [$("policyA").value.trim(), $("policyB").value.trim()] : [$("policyA").value.trim()];
  const node = element("div", both ? "answers two" : "answers");
  const cards = policies.map((p) => {
    const card = element("article", "answer");
    const name = p || (props && props.kv_policy) || "the server's policy";
    if (both || p) card.append(element("h3", "", name));
    card.append(element("div", "body"), element("footer"));
    card.setAttribute("aria-label", "Answer under " + name);
    node.append(card);
    return card;
  });
  $("talk").append(node);
  $("talk").scrollTop = $("talk").scrollHeight;
  busy(new AbortController());
  const got = await Promise.all(cards.map((c, i) => answer(c, user, policies[i], settings, running.signal)));
  busy(null);
  if (got.every((g) => g === null)) return;
  const turn = {user, answer: (got[0] || got[1]).text};
  turns.push(turn);
  lastTurn = {user, node, turn};
  for (const old of document.querySelectorAll(".again, .keep")) old.remove();
  if (both && got[0] && got[1]) difference(node, cards, got, turn);
  const again = button("Answer again", "Ctrl+Shift+R", regenerate);
  again.classList.add("again");
  cards.at(-1).querySelector("footer").append(again);
  $("talk").scrollTop = $("talk").scrollHeight;
}

// difference says how the second answer differs from the first.
function difference(node, cards, [a, b], turn) {
  compare(cards[0].querySelector(".body"), a.text, b.text);
  const same = compare(cards[1].querySelector(".body"), b.text, a.text);
  const parts = [same.same === same.all && a.text === b.text ? "The same text." : same.same + " of " + same.all + " words are the same."];
  parts.push("Time " + seconds(a.took) + " and " + seconds(b.took) + " (" + percent(a.took, b.took) + ", both at once).");
  if (a.timings && b.timings && a.timings.kv_bytes) parts.push("KV " + bytes(a.timings.kv_bytes) + " and " + bytes(b.timings.kv_bytes) + " (" + percent(a.timings.kv_bytes, b.timings.kv_bytes) + ").");
  node.append(element("p", "difference", parts.join(" ")));
  cards.forEach((card, i) => {
    const keep = button(i ? "Go on with this" : "Goes on from here", "Later messages follow this answer", () => {
      turn.answer = [a, b][i].text;
      cards.forEach((c, j) => { c.querySelector(".keep").textContent = j === i ? "Goes on from here" : "Go on with this"; });
    });
    keep.classList.add("keep");
    card.querySelector("footer").append(keep);
  });
}

// regenerate answers the last message again, under the settings as they stand now.
function regenerate() {
  if (running || !lastTurn) return;
  const {user, node, turn} = lastTurn;
  turns.splice(turns.indexOf(turn), 1);
  node.remove();
  lastTurn = null;
  ask(user);
}

// busy says that answers are under way, until they are stopped by control; null = none are.
function busy(control) {
  running = control;
  $("send").hidden = control !== null;
  $("stop").hidden = control === null;
  if (control) $("status").textContent = "";
}

function send() {
  const text = $("text").value.replace(/^\n+|\s+$/g, "");
  if (running || !text) return;
  $("welcome").hidden = true;
  $("text").value = "";
  grow();
  $("talk").append(element("div", "mine", text));
  ask(text);
}

function grow() {
  const t = $("text");
  t.style.height = "auto";
  t.style.height = Math.min(t.scrollHeight + 2, innerHeight * 0.3) + "px";
}

function summarise() {
  const parts = ["temperature " + ($("temperature").value || $("temperature").placeholder)];
  if ($("system").value.trim()) parts.push("a system prompt");
  if ($("seed").value) parts.push("seed " + $("seed").value);
  $("summary").textContent = "· " + parts.join(", ");
}

async function connect() {
  try {
    props = await get("props");
    const names = (await get("v1/models")).data.map((m) => m.id);
    $("model").textContent = names[0] + " · context of " + props.default_generation_settings.n_ctx.toLocaleString("en") + " · " + props.kv_policy;
    for (const name of numbers) {
      const own = props.default_generation_settings[name];
      if (own !== undefined) $(name).placeholder = own;
    }
    summarise();
    $("policyA").placeholder = props.kv_policy;
    $("known").replaceChildren(...props.kv_policies.map((p) => Object.assign(element("option"), {value: p})));
    $("status").textContent = "";
  } catch (e) {
    $("status").textContent = e.message;
    if (e.status === 401) {
      $("settings").open = true;
      $("key").focus();
    }
  }
}

const themes = ["auto", "light", "dark"];
function theme(name) {
  localStorage.setItem("terrace-theme", name);
  if (name === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  $("theme").textContent = name[0].toUpperCase() + name.slice(1);
}

$("composer").addEventListener("submit", (e) => { e.preventDefault(); send(); });
$("composer").addEventListener("input", summarise);
$("stop").addEventListener("click", () => running && running.abort());
$("text").addEventListener("input", grow);
$("text").addEventListener("keydown", (e) => {
  if (e.key === "Enter" && !e.shiftKey && !e.isComposing) { e.preventDefault(); send(); }
});
$("text").addEventListener("keypress", (e) => { if (e.key === "Enter" && !e.shiftKey) e.preventDefault(); });
document.addEventListener("keydown", (e) => {
  if (e.key === "Escape") running ? running.abort() : document.body.classList.contains("tiers") && $("showTiers").click();
  if (e.ctrlKey && e.shiftKey && e.key.toLowerCase() === "r") { e.preventDefault(); regenerate(); }
});
$("compare").addEventListener("change", () => { $("fieldB").hidden = !$("compare").checked; });
$("clear").addEventListener("click", () => {
  if (running) running.abort();
  turns.length = 0;
  lastTurn = null;
  for (const n of [...$("talk").children]) if (n !== $("welcome")) n.remove();
  $("welcome").hidden = false;
  $("text").focus();
});
$("showTiers").addEventListener("click", () => {
  $("showTiers").setAttribute("aria-expanded", document.body.classList.toggle("tiers"));
});
$("theme").addEventListener("click", () => theme(themes[(themes.indexOf(localStorage.getItem("terrace-theme") || "auto") + 1) % 3]));
$("key").value = key.get();
$("key").addEventListener("change", () => { key.set($("key").value.trim()); connect(); });

theme(localStorage.getItem("terrace-theme") || "auto");
summarise();
await connect();
follow();
