// Numbers and texts as people read them.

export function bytes(n) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let i = 0;
  for (; n >= 1024 && i < units.length - 1; i++) n /= 1024;
  return (i === 0 || n >= 100 ? Math.round(n) : n.toPrecision(3)) + " " + units[i];
}

export const seconds = (ms) => (ms < 1000 ? Math.round(ms) + " ms" : (ms / 1000).toFixed(ms < 10000 ? 2 : 1) + " s");

// percent is by how much b differs from a, with its sign.
export function percent(a, b) {
  if (!a) return "";
  const p = Math.round(100 * (b - a) / a);
  return (p > 0 ? "+" : p < 0 ? "−" : "±") + Math.abs(p) + " %";
}

const words = (text) => text.match(/\s*\S+|\s+$/g) || [];

// differs says for each word of b whether it is not in a longest common subsequence with a; of long texts what follows the
// common beginning counts as different.
function differs(a, b) {
  let same = 0;
  while (same < a.length && same < b.length && a[same] === b[same]) same++;
  const out = b.map((_, i) => i >= same);
  const x = a.slice(same), y = b.slice(same);
  if (x.length * y.length > 250000) return out;
  const most = Array.from({length: x.length + 1}, () => new Uint16Array(y.length + 1));
  for (let i = x.length - 1; i >= 0; i--)
    for (let j = y.length - 1; j >= 0; j--)
      most[i][j] = x[i].trim() === y[j].trim() ? most[i + 1][j + 1] + 1 : Math.max(most[i + 1][j], most[i][j + 1]);
  for (let i = 0, j = 0; i < x.length && j < y.length;) {
    if (x[i].trim() === y[j].trim()) { out[same + j] = false; i++; j++; }
    else if (most[i + 1][j] >= most[i][j + 1]) i++;
    else j++;
  }
  return out;
}

// compare marks in node the words of text that are not in other; it returns how many of how many are the same.
export function compare(node, text, other) {
  const mine = words(text), odd = differs(words(other), mine);
  const parts = [];
  for (let i = 0; i < mine.length;) {
    let run = "";
    const marked = odd[i];
    for (; i < mine.length && odd[i] === marked; i++) run += mine[i];
    if (!marked) {
      parts.push(run);
      continue;
    }
    const m = document.createElement("mark");
    m.textContent = run.trimStart();
    parts.push(run.slice(0, run.length - m.textContent.length), m);
  }
  node.replaceChildren(...parts);
  return {same: odd.filter((x) => !x).length, all: mine.length};
}

// show puts text into node, blocks between ``` in a frame of their own.
export function show(node, text) {
  node.replaceChildren(...text.split("```").map((part, i) => {
    if (i % 2 === 0) return document.createTextNode(part);
    const pre = document.createElement("pre");
    pre.textContent = part.replace(/^[\w+-]*\n/, "");
    return pre;
  }));
}
