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
  unknown: { mark: "?", word: "not evaluated" },
};
/** How an attempt ended, by the environment; unknown where that was left to others. */
const outcomeOf = (attempt) => attempt.ended_by === "infra_error" ? "infra_error"
  : (attempt.info || {}).evaluated === false ? "unknown" : attempt.success ? "success" : "failure";
const TOO_OLD = "This browser cannot unpack the episodes: it needs DecompressionStream (2023 or later).";
const number = (value) => value === null ? "unknown" : Number(value).toLocaleString("en-US");
const plural = (count, noun) => `${number(count)} ${noun}${count === 1 ? "" : "s"}`;

/** A run's entries: what the list shows of each episode. `key` is the task and, from its second visit on, "~" and which. */
function entriesOf(run) {
  const visits = new Map();
  return run.rows.map((row, position) => {
    const [id, type, query] = INDEX.tasks[row[0]].map((text) => text.toWellFormed ? text.toWellFormed() : text); // no address takes half a pair
    const visit = visits.get(row[0]) || 0;
    visits.set(row[0], visit + 1);
    const [, status, label, steps, tokens, retrieved, lessons, attempts, error, step] = row;
    const wrong = label !== null && (status === "success" || status === "failure") && label !== status;
    return {
      run, within: "", position, place: position, key: visit ? `${id}~${visit + 1}` : id, id, type, query, status, label, wrong,
      steps, tokens, retrieved, lessons, attempts, error, step, words: `${id} ${type} ${query} ${error}`.toLowerCase(),
    };
  });
}
const indexed = (run) => Object.assign(run, { byKey: new Map(run.entries.map((entry) => [entry.key, entry])) });
for (const run of INDEX.runs) indexed(Object.assign(run, { entries: entriesOf(run) }));

// The runs of one arm as one list, one run a seed: what stands behind a number of a table. A key begins with the seed.
for (const group of INDEX.groups) {
  const runs = group.runs.map((number) => INDEX.runs[number]);
  group.entries = runs.flatMap((run) => run.entries.map((entry) => ({ ...entry, within: `${run.seed}/`, key: `${run.seed}/${entry.key}` })));
  group.entries.forEach((entry, place) => { entry.place = place; });
  indexed(group);
}
const LISTS = [...INDEX.groups, ...INDEX.runs];
const runOf = (key) => LISTS.find((run) => run.key === key) || null;

/** The text of a packed piece: base64 of gzip. */
async function unpack(base64) {
  const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).text();
}

const opened = new Map(); // the pieces looked at last, so that going back and forth costs nothing
const KEPT = 12;

/** The lines of one piece. */
function lines(id) {
  const known = opened.get(id) || unpack(byId(id).textContent.trim()).then((text) => text.split("\n"));
  opened.delete(id);
  opened.set(id, known);
  if (opened.size > KEPT) opened.delete(opened.keys().next().value);
  return known;
}
const pieceOf = (run, piece) => lines(`r${INDEX.runs.indexOf(run)}c${piece}`);

/** One whole episode. */
async function episode(run, position) {
  const piece = run.starts.findLastIndex((start) => start <= position);
  return JSON.parse((await pieceOf(run, piece))[position - run.starts[piece]]);
}

/** Whether any text of a record contains what is wanted. */
function holds(value, wanted) {
  if (typeof value === "string") return value.toLowerCase().includes(wanted);
  return value !== null && typeof value === "object" && Object.values(value).some((part) => holds(part, wanted));
}

/** The places in a list whose whole record contains a text; null when `current` says that nobody waits any more. */
async function searched(list, text, current) {
  const wanted = text.toLowerCase();
  const found = new Set();
  const held = new Map(); // of each run the positions that hold the text
  for (const run of new Set(list.entries.map((entry) => entry.run))) {
    held.set(run, new Set());
    for (const [piece, start] of run.starts.entries()) {
      const all = await pieceOf(run, piece);
      if (!current()) return null;
      all.forEach((line, place) => holds(JSON.parse(line), wanted) && held.get(run).add(start + place));
    }
  }
  for (const entry of list.entries) if (held.get(entry.run).has(entry.position)) found.add(entry.place);
  return found;
}
