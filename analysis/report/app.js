// The address says what is shown: #episodes, #RUN/TASK, #RUN~OTHER/TASK?FILTERS, #bank, #bank:RUN/LESSON?FILTERS;
// "" and #table are places of the results.

/** "?show=failure&type=amber" of the filters that are set. */
function queryOf(given) {
  const set = Object.entries(given || {}).filter(([, value]) => value);
  return set.length ? `?${set.map(([name, value]) => `${name}=${encodeURIComponent(value)}`).join("&")}` : "";
}

function linkTo(run, key, other, given) {
  return `#${encodeURIComponent(run.key)}${other ? "~" + encodeURIComponent(other.key) : ""}/${encodeURIComponent(key)}${queryOf(given)}`;
}

const filters = () => ({
  show: view.show !== "all" && view.show, type: view.type, sort: view.order, q: view.text, deep: view.deep && "1",
});

function decoded(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}

/** {page, a, b, key, given} of the address; `given` holds its filters, null where it only names the page. */
function place() {
  const hash = location.hash.slice(1);
  if (hash === "episodes") return { page: "episodes", a: view.a || firstList(), b: view.b, key: null, given: null };
  if (hash === "bank" || hash.startsWith("bank:")) return bankPlace(hash.slice(5));
  const cut = hash.indexOf("/");
  if (cut < 0) return { page: "results" };
  const { path, given } = parted(hash.slice(cut + 1));
  const [a, b] = hash.slice(0, cut).split("~").map(decoded);
  return { page: "episodes", a: runOf(a), b: b === undefined ? null : runOf(b), key: path || null, given };
}

/** The list that the tab opens on: one whose tasks retrieved lessons, if any did. */
const firstList = () => LISTS.find((list) => list.entries.some((entry) => entry.retrieved > 0)) || LISTS[0];

/** What stands before the "?" of an address, and {name: value} of what stands behind it. */
function parted(text) {
  const [path, query = ""] = text.split("?");
  const given = Object.fromEntries(query.split("&").filter(Boolean).map((part) => part.split("=").map(decoded)));
  return { path: decoded(path), given };
}

// Beside an arm of all seeds only another such one can stand, beside a run another run: their tasks have the same keys.
const alike = (a, b) => Boolean(a && b) && a !== b && Boolean(a.runs) === Boolean(b.runs);

function fillRuns() {
  const options = (lists) => lists.map((run) => el("option", { value: run.key }, run.label));
  const fill = () => INDEX.groups.length
    ? [el("optgroup", { label: "arms, every seed" }, options(INDEX.groups)), el("optgroup", { label: "runs" }, options(INDEX.runs))]
    : options(INDEX.runs);
  byId("run").replaceChildren(...fill());
  byId("other").replaceChildren(el("option", { value: "" }, "nothing"), ...fill());
  byId("order").replaceChildren(...Object.entries(ORDERS).map(([name, { word }]) => el("option", { value: name }, word)));
}

function fillTypes() {
  const types = [...new Set(view.a.entries.map((entry) => entry.type).filter(Boolean))].sort();
  byId("type").replaceChildren(el("option", { value: "" }, "all"), ...types.map((type) => el("option", { value: type }, type)));
  if (!types.includes(view.type)) view.type = "";
}

const PAGES = { results: "results", episodes: "episodes-page", bank: "bank-page" };
let shown = ""; // what the right side was last drawn for

/** Change the address, and follow it before the browser tells of the change: a key pressed between the two would be lost. */
function goTo(address) {
  if (location.hash !== address) history.pushState(null, "", address);
  follow();
}

/** Draw what the address names. */
async function follow() {
  const to = place();
  document.body.dataset.page = to.page;
  for (const [page, id] of Object.entries(PAGES)) byId(id).hidden = page !== to.page;
  for (const tab of document.querySelectorAll("nav a")) {
    const page = { "#episodes": "episodes", "#bank": "bank" }[tab.hash] || "results";
    tab.setAttribute("aria-current", page === to.page ? "page" : "false");
  }
  document.title = byId("title").textContent;
  if (to.page === "bank") return followBank(to);
  if (to.page === "episodes") return followEpisodes(to);
}

async function followEpisodes({ a, b, key, given }) {
  if (!a) return void byId("detail").replaceChildren(el("p", { class: "soft empty" }, "This report has no such run."));
  const other = alike(a, b) ? b : null;
  const again = a !== view.a || other !== view.b;
  if (again) Object.assign(view, { a, b: other, found: null });
  if (given) {
    const { show = "all", type = "", sort = "", q = "", deep = "" } = given;
    const text = view.text;
    Object.assign(view, { show: SHOW[show] ? show : "all", type, order: ORDERS[sort] ? sort : "", text: q, deep: Boolean(deep) });
    if (again || text !== q) deepen();
  }
  for (const option of byId("other").querySelectorAll("optgroup option")) option.disabled = !alike(a, runOf(option.value));
  if (key !== null) view.key = key; // else the row that was left stays selected, so that j and k go on from there
  fillTypes();
  for (const [id, value] of [["run", a.key], ["other", other ? other.key : ""], ["type", view.type], ["order", view.order]]) byId(id).value = value;
  if (document.activeElement !== byId("text")) byId("text").value = view.text;
  byId("deep").checked = view.deep;
  byId("episodes-page").classList.toggle("open", key !== null);
  refresh();
  if (document.activeElement.matches("nav a")) byId("rows").focus(); // or Enter would follow the tab again
  await open(key === null ? atFirst(given) : key);
}

const NARROW = "(max-width: 760px)"; // the list and an episode take turns, as viewer.css says

/** The task that is open before any was chosen: the first of the list, where there is room beside the list for it. */
function atFirst(given) {
  if (given || view.key !== null || !episodes.items.length || matchMedia(NARROW).matches) return null;
  view.key = episodes.items[0].key;
  refresh();
  return view.key;
}

/** The right side: an episode, or two of the same task. */
async function open(key) {
  const { a, b } = view;
  const now = linkTo(a, key === null ? "" : key, b);
  if (shown === now) return;
  shown = now;
  const detail = byId("detail");
  const pairs = [a, b].filter(Boolean).map((run) => [run, run.byKey.get(key)]);
  if (key === null) return void detail.replaceChildren(el("p", { class: "soft empty" }, "Choose an episode from the list."));
  if (!pairs[0][1]) return void detail.replaceChildren(el("p", { class: "soft empty" }, "This run has no such episode."));
  if (!window.DecompressionStream) return void detail.replaceChildren(el("p", { class: "soft empty" }, TOO_OLD));
  const rows = await Promise.all(pairs.map(([, entry]) => entry && episode(entry.run, entry.position)));
  if (shown !== now) return; // another one was chosen meanwhile
  const two = pairs.length > 1;
  const change = two ? flip(pairs[0][1]) : "";
  const sides = pairs.map(([list, entry], side) => entry
    ? article(entry.run, entry, rows[side], (two || entry.within) && entry.run.label)
    : el("article", { class: "episode" }, el("p", { class: "runname" }, list.label), el("p", { class: "soft" }, "This run has not done the task.")));
  detail.replaceChildren(
    el("p", { class: "bar" }, el("a", { class: "back", href: "#episodes" }, "← all episodes"), change && el("span", { class: `flip ${change}` }, FLIPS[change])),
    el("div", { class: two ? "sides two" : "sides" }, sides));
  detail.scrollTop = 0;
  document.title = `${pairs[0][1].id} · ${byId("title").textContent}`;
}

let asked = 0;

/** Search the whole text of every episode, when that is wanted. */
async function deepen() {
  asked += 1;
  const mine = asked;
  view.found = null;
  view.searching = Boolean(view.deep && view.text && view.a);
  if (!view.searching) return;
  const found = await searched(view.a, view.text, () => mine === asked);
  if (!found) return;
  Object.assign(view, { found, searching: false });
  refresh();
}

/** A filter was set: the address says so, and a reload or a friend finds the list as it is. */
function filtered(change) {
  Object.assign(view, change);
  if ("text" in change || "deep" in change) deepen();
  refresh();
  const open = place().key; // null where no episode is open
  if (view.a) history.replaceState(null, "", linkTo(view.a, open === null ? "" : open, view.b, filters()));
}

function choose() {
  const a = runOf(byId("run").value);
  const b = runOf(byId("other").value);
  goTo(linkTo(a, a.byKey.has(view.key) ? view.key : "", alike(a, b) ? b : null, filters()));
}

/** j and k, arrows, Home and End: the place that a key leads to in a list; null for other keys. */
function led(key, list, inDetail) {
  const last = list.items.length - 1;
  const steps = inDetail ? { j: 1, k: -1 } : { j: 1, k: -1, ArrowDown: 1, ArrowUp: -1 };
  if (key in steps) return list.at < 0 ? 0 : Math.min(last, Math.max(0, list.at + steps[key]));
  return inDetail ? null : { Home: 0, End: last }[key] ?? null;
}

function turnAttempts(step) {
  for (const list of document.querySelectorAll("#detail .tabs")) {
    const tabs = [...list.children];
    const at = tabs.findIndex((tab) => tab.getAttribute("aria-selected") === "true");
    tabs[Math.min(tabs.length - 1, Math.max(0, at + step))].click();
  }
}

/** Open the selected row, the first if none is selected, and go into what is open. */
async function enter(onBank) {
  const list = onBank ? lessons : episodes;
  const opened = () => document.querySelector("main:not([hidden]) article");
  if (list.at < 0 || !opened()) {
    clearTimeout(going);
    (onBank ? goLesson : go)(Math.max(0, list.at));
    for (let tries = 0; tries < 40 && !opened(); tries += 1) await new Promise((resolve) => setTimeout(resolve, 25));
  }
  opened()?.focus();
}

function pressed(event) {
  const { page } = document.body.dataset;
  if (event.ctrlKey || event.metaKey || event.altKey || page === "results") return;
  const typing = event.target.matches("input, select, textarea");
  const onBank = page === "bank";
  if (event.key === "Escape") {
    if (typing) event.target.blur();
    else { clearTimeout(going); goTo(onBank ? "#bank" : "#episodes"); }
    return;
  }
  if (event.key === "Enter" && event.target.matches("input[type=search], input[type=text], input:not([type])")) event.target.blur();
  else if (typing) return;
  const inDetail = byId(onBank ? "lesson" : "detail").contains(event.target);
  const to = led(event.key, onBank ? lessons : episodes, inDetail);
  if (event.key === "/") byId(onBank ? "bank-text" : "text").focus();
  else if (to !== null) (onBank ? goLesson : go)(to, PAUSE_MS);
  else if (event.key === "Enter" && !inDetail && !event.target.matches("a, button")) enter(onBank);
  else if (event.key === "[" || event.key === "]") turnAttempts(event.key === "]" ? 1 : -1);
  else return;
  event.preventDefault();
}

fillRuns();
fillBanks();
byId("run").addEventListener("change", choose);
byId("other").addEventListener("change", choose);
byId("show").addEventListener("change", (event) => filtered({ show: event.target.value }));
byId("type").addEventListener("change", (event) => filtered({ type: event.target.value }));
byId("order").addEventListener("change", (event) => filtered({ order: event.target.value }));
byId("text").addEventListener("input", (event) => filtered({ text: event.target.value.trim() }));
byId("deep").addEventListener("change", (event) => filtered({ deep: event.target.checked }));
window.addEventListener("hashchange", follow);
document.addEventListener("keydown", pressed);
for (const form of document.querySelectorAll("form")) form.addEventListener("submit", (event) => event.preventDefault());
follow();
