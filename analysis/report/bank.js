// The bank: every lesson of a run, where it comes from, who saw it, and how these tasks ended beside the others.
const bank = { run: null, all: [], show: "all", text: "", sort: "", up: false, key: null };
const lessons = longList(byId("lessons"), byId("bank-inner"), lessonRow, "lesson", () => bank.run ? "No lesson fits these filters." : "No run of this report has a lesson.");

const rate = ([n, won]) => n ? won / n : null;
const gain = (lesson) => lesson.effect && lesson.effect[0];
const lessonKey = (lesson) => `${lesson.id}.${lesson.item}`;
const percent = (value) => value === null ? "–" : `${Math.round(100 * value)} %`;
const signed = (value) => value === null ? "–" : `${value < 0 ? "−" : "+"}${Math.abs(Math.round(100 * value))}`;
const share = ([n, won]) => n ? `${number(won)} of ${number(n)}` : "no task";

const LESSON_SHOW = {
  all: { word: "all", of: () => true },
  used: { word: "shown to a task", of: (lesson) => lesson.shown.length > 0 },
  unused: { word: "never shown", of: (lesson) => !lesson.shown.length },
  success: { word: "from a success", of: (lesson) => lesson.outcome === "success" },
  failure: { word: "from a failure", of: (lesson) => lesson.outcome === "failure" },
  wrong: { word: "label was wrong", of: (lesson) => lesson.wrong },
  aside: { word: "not active", of: (lesson) => lesson.status !== "active" },
};
const COLUMNS = {
  title: { word: "lesson", by: (lesson) => lesson.title.toLowerCase() },
  from: { word: "learned from", by: (lesson) => learnedFrom(lesson) },
  retrieved: { word: "retrieved", by: (lesson) => lesson.retrieved.length },
  shown: { word: "shown", by: (lesson) => lesson.shown.length },
  with: { word: "success after use", by: (lesson) => rate(lesson.with) },
  without: { word: "without it", by: (lesson) => rate(lesson.without) },
  gain: { word: "difference", by: gain },
};
const BANKS = INDEX.runs.filter((run) => run.lessons);

function lessonLink(run, id, item, given) {
  return `#bank:${encodeURIComponent(run.key)}/${encodeURIComponent(`${id}.${item}`)}${queryOf(given)}`;
}
const lessonFilters = () => ({ show: bank.show !== "all" && bank.show, sort: bank.sort && (bank.up ? "" : "-") + bank.sort, q: bank.text });

/** As `place` in app.js, of what stands behind "bank:". */
function bankPlace(text) {
  if (!text) return { page: "bank", a: bank.run || BANKS[0] || null, key: null, given: null };
  const cut = text.indexOf("/");
  const { path, given } = parted(cut < 0 ? "" : text.slice(cut + 1));
  const name = decoded(cut < 0 ? text : text.slice(0, cut));
  return { page: "bank", a: BANKS.find((run) => run.key === name) || null, key: path || null, given };
}

function fillBanks() {
  byId("bank-run").replaceChildren(...BANKS.map((run) => el("option", { value: run.key }, `${run.label} (${number(run.lessons)})`)));
  byId("bank-head").replaceChildren(...Object.entries(COLUMNS).map(([name, { word }]) =>
    el("button", { type: "button", class: `sort c-${name}`, "data-sort": name, title: `sort by ${word}`, onclick: () => sortLessons(name) }, word)));
  byId("bank-run").addEventListener("change", (event) => goTo(`#bank:${encodeURIComponent(event.target.value)}/${queryOf(lessonFilters())}`));
  byId("bank-show").addEventListener("change", (event) => filterLessons({ show: event.target.value }));
  byId("bank-text").addEventListener("input", (event) => filterLessons({ text: event.target.value.trim() }));
}

/** A text from the first letter on, a number from its largest; then the other way; then in the order of learning. */
function sortLessons(name) {
  const first = name === "title" || name === "from";
  if (bank.sort !== name) filterLessons({ sort: name, up: first });
  else if (bank.up === first) filterLessons({ up: !first });
  else filterLessons({ sort: "", up: false });
}

function filterLessons(change) {
  Object.assign(bank, change);
  refreshLessons();
  const { key } = place();
  if (bank.run) history.replaceState(null, "", `#bank:${encodeURIComponent(bank.run.key)}/${key === null ? "" : encodeURIComponent(key)}${queryOf(lessonFilters())}`);
}

async function followBank({ a, key, given }) {
  if (given) {
    const { show = "all", sort = "", q = "" } = given;
    const name = sort.replace(/^-/, "");
    Object.assign(bank, { show: LESSON_SHOW[show] ? show : "all", sort: COLUMNS[name] ? name : "", up: !sort.startsWith("-"), text: q });
  }
  if (key !== null) bank.key = key;
  if (a !== bank.run) {
    Object.assign(bank, { run: a, all: [] });
    if (a && !window.DecompressionStream) return void byId("lesson").replaceChildren(el("p", { class: "soft empty" }, TOO_OLD));
    const all = a ? (await lines(`b${INDEX.runs.indexOf(a)}`)).map((line) => JSON.parse(line)) : [];
    if (bank.run !== a) return; // another one was chosen meanwhile
    bank.all = all;
    for (const lesson of all) lesson.words = `${lesson.title} ${lesson.description} ${lesson.content} ${lesson.task}`.toLowerCase();
  }
  byId("bank-run").value = a ? a.key : "";
  if (document.activeElement !== byId("bank-text")) byId("bank-text").value = bank.text;
  byId("bank-page").classList.toggle("open", key !== null);
  refreshLessons();
  const lesson = bank.all.find((each) => lessonKey(each) === key);
  const none = key === null ? [aboutBank()] : [el("p", { class: "soft empty" }, "This bank has no such lesson.")];
  byId("lesson").replaceChildren(...(lesson ? [lessonArticle(lesson)] : none));
  byId("lesson").scrollTop = 0;
}

function refreshLessons() {
  const text = bank.text.toLowerCase();
  const some = bank.all.filter((lesson) => !text || lesson.words.includes(text));
  const wanted = some.filter(LESSON_SHOW[bank.show].of);
  if (bank.sort) { // what is not known comes last whichever way
    const { by } = COLUMNS[bank.sort];
    const known = wanted.filter((lesson) => by(lesson) !== null);
    lessons.items = [...sorted(known, by, bank.up), ...wanted.filter((lesson) => by(lesson) === null)];
  } else lessons.items = wanted;
  lessons.at = lessons.items.findIndex((lesson) => lessonKey(lesson) === bank.key);
  byId("bank-show").replaceChildren(...Object.entries(LESSON_SHOW).map(([name, { word, of }]) =>
    el("option", { value: name }, `${word} (${number(some.filter(of).length)})`)));
  byId("bank-show").value = bank.show;
  byId("bank-counted").textContent = `${number(lessons.items.length)} of ${plural(bank.all.length, "lesson")}, ${number(wanted.filter(LESSON_SHOW.used.of).length)} shown to a task`;
  for (const button of byId("bank-head").children) {
    const mine = button.dataset.sort === bank.sort;
    button.setAttribute("aria-pressed", String(mine));
    button.dataset.way = mine ? (bank.up ? "up" : "down") : "";
  }
  if (lessons.at < 0) byId("lessons").scrollTop = 0;
  lessons.reveal();
  lessons.draw();
}

const merged = (lesson) => lesson.place === null && lesson.parents.length > 0;
const learnedFrom = (lesson) => merged(lesson) ? `${lesson.parents.length} others, merged` : lesson.task || "unknown";

function lessonRow(lesson, place) {
  const cell = (name, ...what) => el("span", { class: `c-${name}` }, ...what);
  return el("div", { class: "row lesson-row", onclick: () => goLesson(place) },
    el("span", { class: "words c-title" }, el("span", { class: "what" }, lesson.title || "(no title)"), el("span", { class: "soft" }, lesson.description || lesson.content)),
    cell("from", el("span", { class: `dot ${lesson.outcome}`, title: lesson.outcome }, (STATUS[lesson.outcome] || { mark: "?" }).mark), el("span", { class: "words" }, el("span", {}, learnedFrom(lesson)),
      lesson.wrong && el("span", {}, el("span", { class: "flip" }, "label wrong")), lesson.status !== "active" && el("span", {}, el("span", { class: "flip" }, lesson.status)))),
    cell("retrieved", number(lesson.retrieved.length)), cell("shown", number(lesson.shown.length)),
    cell("with", percent(rate(lesson.with)), el("small", {}, share(lesson.with))), cell("without", percent(rate(lesson.without)), el("small", {}, share(lesson.without))),
    cell("gain", signed(gain(lesson))));
}

function goLesson(place, ms = 0) {
  const lesson = lessons.items[place];
  if (!lesson) return;
  bank.key = lessonKey(lesson);
  travel(lessons, place, lessonLink(bank.run, lesson.id, lesson.item, lessonFilters()), ms);
}

const CAUTION = "A lesson is shown where its task is like the new one, and late in the stream the bank is larger: tasks with and without it differ in more than the lesson. This is no experiment; the difference between arms is.";

function aboutBank() {
  return el("div", { class: "empty" }, el("p", { class: "soft" }, bank.run ? "Choose a lesson from the list." : "No run of this report has learned or retrieved a lesson."),
    bank.run && el("p", { class: "soft small" }, CAUTION));
}

/** A link to an episode of the bank's run. */
function episodeLink(run, position) {
  const entry = run.entries[position];
  return el("a", { href: linkTo(run, entry.key) }, entry.id);
}

/** A list of episodes with how each ended, the first of them at once. */
function episodeList(run, positions) {
  const items = positions.map((position) => el("li", {}, dot(run.entries[position]), " ", episodeLink(run, position)));
  const most = 40;
  const list = el("ul", { class: "seen" }, items.slice(0, most));
  if (items.length <= most) return list;
  const more = el("button", { type: "button", class: "more" }, `show all ${number(items.length)}`);
  more.addEventListener("click", () => { list.append(...items.slice(most)); more.remove(); });
  return el("div", {}, list, more);
}

/** Where a lesson was learned: a link where this report has the episode. */
function source(lesson) {
  if (merged(lesson)) return [`${lesson.parents.length} other lessons, merged`];
  const from = lesson.place === null ? INDEX.runs[lesson.run] : bank.run;
  const entry = lesson.place === null ? from && from.byKey.get(lesson.task) : from.entries[lesson.place];
  const attempts = lesson.attempts.map((attempt) => attempt + 1).join(", ");
  return [entry ? el("a", { href: linkTo(from, entry.key) }, entry.id) : learnedFrom(lesson),
    attempts && entry && entry.attempts > 1 ? `, attempt ${attempts}` : "",
    lesson.place === null ? (from ? ` in ${from.label}` : ", in a run that is not in this report") : ""];
}

function lessonArticle(lesson) {
  const { run } = bank;
  const held = new Set(lesson.shown);
  const unseen = lesson.retrieved.filter((position) => !held.has(position));
  const line = (name, counts) => el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, number(counts[0])), el("td", {}, number(counts[1])), el("td", {}, percent(rate(counts))));
  const others = bank.all.filter((other) => other.id === lesson.id && other.item !== lesson.item);
  const parents = lesson.parents.map((id) => bank.all.find((other) => other.id === id)).filter(Boolean);
  const links = (list) => el("ul", { class: "seen" }, list.map((other) => el("li", {}, el("a", { href: lessonLink(run, other.id, other.item, lessonFilters()) }, other.title || "(no title)"))));
  return el("article", { class: "episode", tabindex: "-1" },
    el("p", { class: "bar" }, el("a", { class: "back", href: "#bank" }, "← all lessons")),
    el("p", { class: "meta" }, el("span", {}, "learned from "), el("span", {}, source(lesson)), statusBadge(lesson.outcome), el("span", {}, `label by ${lesson.label}`),
      lesson.wrong && badge("infra_error", "the label is not the truth"), lesson.status !== "active" && badge("infra_error", lesson.status)),
    el("h2", { class: "query" }, lesson.title || "(no title)"), el("p", { class: "soft" }, lesson.description), long(lesson.content),
    section("Success of the tasks after it", null, el("div", { class: "scroll" }, el("table", {},
      el("thead", {}, el("tr", {}, ["", "tasks", "solved", "rate"].map((name) => el("th", { scope: "col" }, name)))),
      el("tbody", {}, line("that were shown it", lesson.with), line("that were not", lesson.without)))),
      lesson.effect && el("p", {}, `Shown it, ${signed(lesson.effect[0])} points (95 % interval ${lesson.effect.slice(1).map(signed).join(" to ")}).`), el("p", { class: "soft small" }, CAUTION)),
    lesson.tried && section("Tried before it was shown", null, el("p", {}, `${lesson.tried[0].toUpperCase()}${lesson.tried.slice(1)}.`)),
    section("Shown to", lesson.shown.length, lesson.shown.length ? episodeList(run, lesson.shown) : el("p", { class: "soft" }, "No task has been shown this lesson.")),
    unseen.length > 0 && section("Retrieved, no room in the prompt", unseen.length, episodeList(run, unseen)),
    others.length > 0 && section("Other lessons of the same experience", others.length, links(others)),
    parents.length > 0 && section("Merged from", lesson.parents.length, links(parents)));
}
