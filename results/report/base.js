// The page's data and the few helpers that everything else uses. Text only ever enters the page as text.
const byId = (id) => document.getElementById(id);

/** An element. `on...` attributes are listeners; children are elements or texts; empty ones are left out. */
function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child || child === 0));
  return node;
}

const INDEX = JSON.parse(byId("index").textContent);
const STATUS = {
  success: { mark: "✓", word: "success" },
  failure: { mark: "✕", word: "failure" },
  infra_error: { mark: "!", word: "broken" },
};
const number = (value) => Number(value).toLocaleString("en-US");
const plural = (count, noun) => `${number(count)} ${noun}${count === 1 ? "" : "s"}`;

/** A run's entries: what the list shows of each episode. `key` is the task and, from its second visit on, "~" and which. */
function entriesOf(run) {
  const visits = new Map();
  return run.rows.map((row, position) => {
    const [id, type, query] = INDEX.tasks[row[0]].map((text) => text.toWellFormed ? text.toWellFormed() : text); // no address takes half a pair
    const visit = visits.get(row[0]) || 0;
    visits.set(row[0], visit + 1);
    const [, status, label, steps, tokens, retrieved, lessons, attempts, error] = row;
    const wrong = label !== null && status !== "infra_error" && label !== status;
    return {
      position, key: visit ? `${id}~${visit + 1}` : id, id, type, query, status, label, wrong, steps, tokens, retrieved,
      lessons, attempts, error, words: `${id} ${type} ${query} ${error}`.toLowerCase(),
    };
  });
}
for (const run of INDEX.runs) {
  run.entries = entriesOf(run);
  run.byKey = new Map(run.entries.map((entry) => [entry.key, entry]));
}

/** The text of a packed piece: base64 of gzip. */
async function unpack(base64) {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

const opened = new Map(); // the pieces looked at last, so that going back and forth costs nothing
const KEPT = 12;

/** The episodes of one piece, each as JSON. */
function lines(run, piece) {
  const id = `r${INDEX.runs.indexOf(run)}c${piece}`;
  const known = opened.get(id) || unpack(byId(id).textContent.trim()).then((text) => text.split("\n"));
  opened.delete(id);
  opened.set(id, known);
  if (opened.size > KEPT) opened.delete(opened.keys().next().value);
  return known;
}

/** One whole episode. */
async function episode(run, position) {
  const piece = run.starts.findLastIndex((start) => start <= position);
  return JSON.parse((await lines(run, piece))[position - run.starts[piece]]);
}

/** Whether any text of a record contains what is wanted. */
function holds(value, wanted) {
  if (typeof value === "string") return value.toLowerCase().includes(wanted);
  return value !== null && typeof value === "object" && Object.values(value).some((part) => holds(part, wanted));
}

/** The positions of a run whose whole record contains a text; null when `current` says that nobody waits any more. */
async function searched(run, text, current) {
  const wanted = text.toLowerCase();
  const found = new Set();
  for (const [piece, start] of run.starts.entries()) {
    const all = await lines(run, piece);
    if (!current()) return null;
    all.forEach((line, place) => holds(JSON.parse(line), wanted) && found.add(start + place));
  }
  return found;
}
