// The list of episodes: filters, an order, and only the rows that can be seen are in the page.

/** A long list in a box that scrolls. `items` are drawn by `rowOf(item, place)`; `at` is the place that is selected. */
function longList(box, inner, rowOf, prefix, empty) {
  const list = { items: [], at: -1 };
  const px = () => parseFloat(getComputedStyle(box).getPropertyValue("--row")) || 60;
  /** Put the rows that can be seen into the list, and a few around them. */
  list.draw = () => {
    const high = px();
    const first = Math.max(0, Math.floor(box.scrollTop / high) - 6);
    const last = Math.min(list.items.length, first + Math.ceil(box.clientHeight / high) + 12);
    inner.style.height = `${Math.max(list.items.length * high, 1)}px`;
    const rows = [];
    for (let place = first; place < last; place += 1) {
      const row = rowOf(list.items[place], place);
      row.style.top = `${place * high}px`;
      row.classList.toggle("selected", place === list.at);
      for (const [name, value] of [["role", "option"], ["id", `${prefix}${place}`], ["aria-selected", place === list.at],
        ["aria-setsize", list.items.length], ["aria-posinset", place + 1]]) row.setAttribute(name, String(value));
      rows.push(row);
    }
    inner.replaceChildren(...(rows.length ? rows : [el("p", { class: "soft empty" }, empty())]));
    if (list.at >= first && list.at < last) box.setAttribute("aria-activedescendant", `${prefix}${list.at}`);
    else box.removeAttribute("aria-activedescendant");
  };
  /** Scroll so that the selected row can be seen, its neighbour on either side too where there is room. */
  list.reveal = () => {
    if (list.at < 0 || !box.clientHeight) return;
    const high = px();
    const spare = box.clientHeight > 4 * high ? high : 0;
    inner.style.height = `${Math.max(list.items.length * high, 1)}px`; // before scrolling: the list may have grown
    const top = list.at * high;
    if (top - spare < box.scrollTop) box.scrollTop = top - spare;
    else if (top + high + spare > box.scrollTop + box.clientHeight) box.scrollTop = top + high + spare - box.clientHeight;
  };
  box.addEventListener("scroll", list.draw, { passive: true });
  window.addEventListener("resize", () => { list.reveal(); list.draw(); });
  return list;
}

const counts = (entry) => Boolean(entry) && (entry.status === "success" || entry.status === "failure");
const SHOW = {
  all: { word: "all", of: () => true },
  counted: { word: "in the rate", of: counts },
  success: { word: "success", of: (entry) => entry.status === "success" },
  failure: { word: "failure", of: (entry) => entry.status === "failure" },
  infra_error: { word: "broken", of: (entry) => entry.status === "infra_error" },
  judged: { word: "judged", of: (entry) => entry.label !== null && counts(entry) },
  wrong: { word: "judge was wrong", of: (entry) => entry.wrong },
  retrieved: { word: "with retrieved lessons", of: (entry) => entry.retrieved > 0 },
  taught: { word: "that taught a lesson", of: (entry) => entry.lessons > 0 },
  ...Object.fromEntries(Object.entries(INDEX.steps).map(([step, { word, within }]) =>
    [`step_${step}`, { word, of: (entry) => counts(entry) && within.includes(entry.step) }])),
  pairs: { word: "pairs that count", paired: true, of: (entry) => counts(entry) && counts(view.b.byKey.get(entry.key)) },
  changed: { word: "flips", paired: true, of: (entry) => flip(entry) !== "" },
  gained: { word: "gained", paired: true, of: (entry) => flip(entry) === "gained" },
  lost: { word: "lost", paired: true, of: (entry) => flip(entry) === "lost" },
};
const ORDERS = {
  "": { word: "the run's order", by: null },
  task: { word: "task", by: (entry) => entry.id, up: true },
  status: { word: "status", by: (entry) => entry.status, up: true },
  steps: { word: "most steps", by: (entry) => entry.steps },
  tokens: { word: "most tokens", by: (entry) => entry.tokens },
  retrieved: { word: "most retrieved lessons", by: (entry) => entry.retrieved },
  taught: { word: "most lessons taught", by: (entry) => entry.lessons },
};

// found: the places that hold the text anywhere, where that is searched; searching: it still is; key: the task selected.
const view = { a: null, b: null, show: "all", type: "", text: "", order: "", deep: false, found: null, searching: false, key: null };
const episodes = longList(byId("rows"), byId("inner"), rowOf, "row", () => "No episode fits these filters.");

/** gained or lost from run A to run B on the same task, "" when neither. An infra error is never a flip. */
function flip(entry) {
  const other = view.b && view.b.byKey.get(entry.key);
  if (!counts(entry) || !counts(other) || entry.status === other.status) return "";
  return other.status === "success" ? "gained" : "lost";
}

const FLIPS = { gained: "▲ gained", lost: "▼ lost" };

/** Everything that the filters but `show` let through. */
function candidates() {
  if (!view.a) return [];
  const text = view.text.toLowerCase();
  return view.a.entries.filter((entry) =>
    (!view.type || entry.type === view.type) && (!view.b || view.b.byKey.has(entry.key)) &&
    (!text || entry.words.includes(text) || (view.found && view.found.has(entry.place))));
}

/** Rows by a value, the largest first or with `up` the smallest; of equal ones the first stays first. */
function sorted(items, by, up) {
  const compare = (a, b) => typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b;
  return [...items].sort((a, b) => (up ? 1 : -1) * compare(by(a), by(b)));
}

/** Apply the filters and draw; the selected task stays selected where it is still in the list, and in sight. */
function refresh() {
  const some = candidates();
  if (SHOW[view.show].paired && !view.b) view.show = "all";
  const { by, up } = ORDERS[view.order];
  const wanted = some.filter(SHOW[view.show].of);
  episodes.items = by ? sorted(wanted, by, up) : wanted;
  episodes.at = episodes.items.findIndex((entry) => entry.key === view.key);
  const options = Object.entries(SHOW).filter(([, kind]) => !kind.paired || view.b).map(([name, kind]) =>
    el("option", { value: name }, `${kind.word} (${number(some.filter(kind.of).length)})`));
  byId("show").replaceChildren(...options);
  byId("show").value = view.show;
  const flips = view.b ? `, ${number(some.filter(SHOW.gained.of).length)} gained, ${number(some.filter(SHOW.lost.of).length)} lost` : "";
  byId("counted").textContent = `${number(episodes.items.length)} of ${plural(view.a ? view.a.entries.length : 0, "episode")}${flips}${view.searching ? ", searching …" : ""}`;
  if (episodes.at < 0) byId("rows").scrollTop = 0;
  episodes.reveal();
  episodes.draw();
}

function dot(entry) {
  const { mark, word } = STATUS[entry.status] || { mark: "?", word: entry.status };
  return el("span", { class: `dot ${entry.status}`, title: word, role: "img", "aria-label": word }, mark);
}

function rowOf(entry, place) {
  const other = view.b && view.b.byKey.get(entry.key);
  const change = flip(entry);
  const facts = [entry.within && `seed ${entry.run.seed}`, entry.type, entry.steps !== 1 && plural(entry.steps, "step"), entry.attempts > 1 && `${entry.attempts} attempts`,
    entry.retrieved > 0 && `${entry.retrieved} retrieved`, entry.lessons > 0 && plural(entry.lessons, "lesson")].filter(Boolean).join(" · ");
  return el("div", { class: "row", onclick: () => go(place) }, el("span", { class: "dots" }, dot(entry), other ? dot(other) : null),
    el("span", { class: "words" }, el("span", { class: "what" }, entry.query || entry.id), el("span", { class: "soft" }, facts)),
    change ? el("span", { class: `flip ${change}` }, FLIPS[change]) : entry.wrong && el("span", { class: "flip" }, "judge wrong"));
}

const PAUSE_MS = 60; // after a key: while j is held down rows go by, and only the last one is opened
let going = 0;

/** Select a row at once; then the address changes, and the page follows the address. */
function travel(list, place, address, ms) {
  list.at = place;
  list.reveal();
  list.draw();
  clearTimeout(going);
  going = setTimeout(() => goTo(address), ms);
}

function go(place, ms = 0) {
  const entry = episodes.items[place];
  if (!entry) return;
  view.key = entry.key;
  travel(episodes, place, linkTo(view.a, entry.key, view.b, filters()), ms);
}
