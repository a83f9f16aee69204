// The list of episodes: filters, and only the rows that can be seen are in the page.
const ROW_PX = 60;

const SHOW = {
  all: { word: "all", of: () => true },
  success: { word: "success", of: (entry) => entry.status === "success" },
  failure: { word: "failure", of: (entry) => entry.status === "failure" },
  infra_error: { word: "broken", of: (entry) => entry.status === "infra_error" },
  wrong: { word: "judge was wrong", of: (entry) => entry.wrong },
  retrieved: { word: "with retrieved lessons", of: (entry) => entry.retrieved > 0 },
  changed: { word: "flips", paired: true, of: (entry) => flip(entry) !== "" },
  gained: { word: "gained", paired: true, of: (entry) => flip(entry) === "gained" },
  lost: { word: "lost", paired: true, of: (entry) => flip(entry) === "lost" },
};

// found: the positions that hold the text anywhere, where that is searched; searching: it still is.
const view = { a: null, b: null, show: "all", type: "", text: "", found: null, searching: false, entries: [], at: -1 };

/** gained or lost from run A to run B on the same task, "" when neither. An infra error is never a flip. */
function flip(entry) {
  const other = view.b && view.b.byKey.get(entry.key);
  const counts = (each) => each && (each.status === "success" || each.status === "failure");
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
    (!text || entry.words.includes(text) || (view.found && view.found.has(entry.position))));
}

/** Apply the filters and draw; the selected task stays selected where it is still in the list. */
function refresh() {
  const selected = view.entries[view.at] && view.entries[view.at].key;
  const some = candidates();
  if (SHOW[view.show].paired && !view.b) view.show = "all";
  view.entries = some.filter(SHOW[view.show].of);
  view.at = view.entries.findIndex((entry) => entry.key === selected);
  const options = Object.entries(SHOW).filter(([, kind]) => !kind.paired || view.b).map(([name, kind]) =>
    el("option", { value: name }, `${kind.word} (${number(some.filter(kind.of).length)})`));
  byId("show").replaceChildren(...options);
  byId("show").value = view.show;
  const flips = view.b ? `, ${number(some.filter(SHOW.gained.of).length)} gained, ${number(some.filter(SHOW.lost.of).length)} lost` : "";
  byId("counted").textContent = `${number(view.entries.length)} of ${plural(view.a ? view.a.entries.length : 0, "episode")}${flips}${view.searching ? ", searching …" : ""}`;
  draw();
}

function dot(entry) {
  const { mark, word } = STATUS[entry.status] || { mark: "?", word: entry.status };
  return el("span", { class: `dot ${entry.status}`, title: word, role: "img", "aria-label": word }, mark);
}

function rowOf(entry, place) {
  const other = view.b && view.b.byKey.get(entry.key);
  const change = flip(entry);
  const facts = [entry.type, plural(entry.steps, "step"), entry.attempts > 1 && `${entry.attempts} attempts`,
    entry.retrieved > 0 && `${entry.retrieved} retrieved`, entry.lessons > 0 && plural(entry.lessons, "lesson")].filter(Boolean).join(" · ");
  return el("div", {
    class: `row${place === view.at ? " selected" : ""}`, role: "option", id: `row${place}`, "aria-selected": String(place === view.at),
    "aria-setsize": view.entries.length, "aria-posinset": place + 1, onclick: () => go(place),
  }, el("span", { class: "dots" }, dot(entry), other ? dot(other) : null),
    el("span", { class: "words" }, el("span", { class: "what" }, entry.query || entry.id), el("span", { class: "soft" }, facts)),
    change ? el("span", { class: `flip ${change}` }, FLIPS[change]) : entry.wrong && el("span", { class: "flip" }, "judge wrong"));
}

/** Put the rows that can be seen into the list, and a few around them. */
function draw() {
  const box = byId("rows");
  const first = Math.max(0, Math.floor(box.scrollTop / ROW_PX) - 6);
  const last = Math.min(view.entries.length, first + Math.ceil(box.clientHeight / ROW_PX) + 12);
  const inner = byId("inner");
  inner.style.height = `${Math.max(view.entries.length * ROW_PX, 1)}px`;
  const rows = [];
  for (let place = first; place < last; place += 1) {
    const row = rowOf(view.entries[place], place);
    row.style.top = `${place * ROW_PX}px`;
    rows.push(row);
  }
  inner.replaceChildren(...(rows.length ? rows : [el("p", { class: "soft empty" }, "No episode fits these filters.")]));
  if (view.at >= first && view.at < last) box.setAttribute("aria-activedescendant", `row${view.at}`);
  else box.removeAttribute("aria-activedescendant");
}

/** Scroll so that a row can be seen. */
function reveal(place) {
  const box = byId("rows");
  const top = place * ROW_PX;
  if (top < box.scrollTop) box.scrollTop = top;
  else if (top + ROW_PX > box.scrollTop + box.clientHeight) box.scrollTop = top + ROW_PX - box.clientHeight;
}

/** Select a row of the list: the address changes, and the page follows the address. */
function go(place) {
  if (place < 0 || place >= view.entries.length) return;
  location.hash = linkTo(view.a, view.entries[place].key, view.b);
}
