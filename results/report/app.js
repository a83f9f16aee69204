// The address says what is shown: #episodes, #run/task, #run~other/task; "" and #table are places of the results.
function linkTo(run, key, other) {
  return `#${encodeURIComponent(run.key)}${other ? "~" + encodeURIComponent(other.key) : ""}/${encodeURIComponent(key)}`;
}

const runOf = (key) => INDEX.runs.find((run) => run.key === key) || null;

function decoded(text) {
  try { return decodeURIComponent(text); } catch { return text; }
}

/** {page, a, b, key} of the address. */
function place() {
  const hash = location.hash.slice(1);
  if (hash === "episodes") return { page: "episodes", a: view.a || INDEX.runs[0], b: view.b, key: null };
  const cut = hash.indexOf("/");
  if (cut < 0) return { page: "results" };
  const [a, b] = hash.slice(0, cut).split("~").map(decoded);
  return { page: "episodes", a: runOf(a), b: b === undefined ? null : runOf(b), key: decoded(hash.slice(cut + 1)) || null };
}

function fillRuns() {
  const options = () => INDEX.runs.map((run) => el("option", { value: run.key }, run.label));
  byId("run").replaceChildren(...options());
  byId("other").replaceChildren(el("option", { value: "" }, "nothing"), ...options());
}

function fillTypes() {
  const types = [...new Set(view.a.entries.map((entry) => entry.type).filter(Boolean))].sort();
  byId("type").replaceChildren(el("option", { value: "" }, "all"), ...types.map((type) => el("option", { value: type }, type)));
  if (!types.includes(view.type)) view.type = "";
  byId("type").value = view.type;
}

let shown = ""; // the address that the right side was last drawn for

/** Draw what the address names. */
async function follow() {
  const { page, a, b, key } = place();
  document.body.dataset.page = page;
  byId("results").hidden = page !== "results";
  byId("episodes-page").hidden = page === "results";
  for (const tab of document.querySelectorAll("nav a")) {
    tab.setAttribute("aria-current", (tab.hash === "#episodes") === (page === "episodes") ? "page" : "false");
  }
  document.title = byId("title").textContent;
  if (page === "results") return;
  if (!a) return void byId("detail").replaceChildren(el("p", { class: "soft empty" }, "This report has no such run."));
  if (a !== view.a || b !== view.b) {
    Object.assign(view, { a, b: b === a ? null : b, found: null, at: -1 });
    byId("run").value = a.key;
    byId("other").value = view.b ? view.b.key : "";
    fillTypes();
    deepen();
    refresh();
  }
  byId("episodes-page").classList.toggle("open", key !== null);
  view.at = view.entries.findIndex((entry) => entry.key === key);
  if (view.at >= 0) reveal(view.at);
  draw();
  await open(key);
}

/** The right side: an episode, or two of the same task. */
async function open(key) {
  const now = location.hash;
  if (shown === now) return;
  shown = now;
  const detail = byId("detail");
  const pairs = [view.a, view.b].filter(Boolean).map((run) => [run, run.byKey.get(key)]);
  if (key === null) return void detail.replaceChildren(el("p", { class: "soft empty" }, "Choose an episode from the list."));
  if (!pairs[0][1]) return void detail.replaceChildren(el("p", { class: "soft empty" }, "This run has no such episode."));
  if (!window.DecompressionStream) {
    return void detail.replaceChildren(el("p", { class: "soft empty" }, "This browser cannot unpack the episodes: it needs DecompressionStream (2023 or later)."));
  }
  const rows = await Promise.all(pairs.map(([run, entry]) => entry && episode(run, entry.position)));
  if (shown !== now) return; // another one was chosen meanwhile
  const two = pairs.length > 1;
  const change = two ? flip(pairs[0][1]) : "";
  const sides = pairs.map(([run, entry], side) => entry
    ? article(run, entry, rows[side], two && run.label)
    : el("article", { class: "episode" }, el("p", { class: "runname" }, run.label), el("p", { class: "soft" }, "This run has not done the task.")));
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
  view.searching = Boolean(byId("deep").checked && view.text && view.a);
  if (!view.searching) return;
  const found = await searched(view.a, view.text, () => mine === asked);
  if (!found) return;
  Object.assign(view, { found, searching: false });
  refresh();
}

function choose() {
  const a = runOf(byId("run").value);
  const b = runOf(byId("other").value);
  const key = view.entries[view.at] && view.entries[view.at].key;
  if (a && key && a.byKey.has(key)) location.hash = linkTo(a, key, b === a ? null : b);
  else location.hash = linkTo(a, "", b === a ? null : b);
}

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || document.body.dataset.page !== "episodes") return;
  const typing = event.target.matches("input, select, textarea");
  if (event.key === "Escape") {
    if (typing) event.target.blur();
    else location.hash = "#episodes";
    return;
  }
  if (typing) return;
  const inDetail = byId("detail").contains(event.target);
  const step = { j: 1, k: -1, ArrowDown: inDetail ? 0 : 1, ArrowUp: inDetail ? 0 : -1 }[event.key];
  if (event.key === "/") byId("text").focus();
  else if (step) go(Math.min(view.entries.length - 1, Math.max(0, view.at + step)));
  else if (event.key === "Home" && !inDetail) go(0);
  else if (event.key === "End" && !inDetail) go(view.entries.length - 1);
  else if (event.key === "Enter" && !inDetail) document.querySelector("article.episode")?.focus();
  else if (event.key === "[" || event.key === "]") {
    for (const list of document.querySelectorAll(".tabs")) {
      const tabs = [...list.children];
      const at = tabs.findIndex((tab) => tab.getAttribute("aria-selected") === "true");
      tabs[Math.min(tabs.length - 1, Math.max(0, at + (event.key === "]" ? 1 : -1)))].click();
    }
  } else return;
  event.preventDefault();
}

fillRuns();
byId("run").addEventListener("change", choose);
byId("other").addEventListener("change", choose);
byId("show").addEventListener("change", (event) => { view.show = event.target.value; refresh(); });
byId("type").addEventListener("change", (event) => { view.type = event.target.value; refresh(); });
byId("text").addEventListener("input", (event) => { view.text = event.target.value.trim(); deepen(); refresh(); });
byId("deep").addEventListener("change", () => { deepen(); refresh(); });
byId("rows").addEventListener("scroll", draw, { passive: true });
window.addEventListener("resize", draw);
window.addEventListener("hashchange", follow);
document.addEventListener("keydown", pressed);
follow();
