// A page that is served: it asks whether its runs have gone on, and then loads itself anew, at the place where it was.
const ASK_MS = 2000;
const KEPT_AS = "report-place";
const boxes = () => ["rows", "detail", "lessons", "lesson"].map(byId);
const openings = () => [...document.querySelectorAll("#results details")];

/** What a reader has scrolled, opened, sorted and chosen; the address holds the rest. */
function keep() {
  const lists = [view.a && view.a.key, view.b && view.b.key, bank.run && bank.run.key];
  sessionStorage.setItem(KEPT_AS, JSON.stringify({
    hash: location.hash, top: scrollY, boxes: boxes().map((box) => box.scrollTop), lists,
    open: openings().map((each) => each.open), tables: tables.map((table) => table.kept()), key: view.key, lesson: bank.key,
  }));
}

async function restore() {
  const kept = JSON.parse(sessionStorage.getItem(KEPT_AS) || "null");
  sessionStorage.removeItem(KEPT_AS);
  if (!kept || kept.hash !== location.hash) return;
  const [a, b] = kept.lists.map((key) => key && runOf(key));
  if (a && !view.a) Object.assign(view, { a, b });
  Object.assign(view, { key: kept.key });
  Object.assign(bank, { key: kept.lesson });
  if (kept.tables.length === tables.length) kept.tables.forEach((each, place) => tables[place].keep(each));
  openings().forEach((each, place) => { each.open = Boolean(kept.open[place]); });
  await follow();
  await new Promise((done) => { setTimeout(done, 50); }); // the episode on the right is unpacked meanwhile
  window.scrollTo(0, kept.top);
  boxes().forEach((box, place) => { box.scrollTop = kept.boxes[place]; });
}

const status = document.querySelector("#live [role=status]");
const tell = (text) => { if (status.textContent !== text) status.textContent = text; };
// A page that changes under a reader's hands is of no use: it waits while a field is in use or a text is marked.
const busy = () => byId("pause").checked || Boolean(document.activeElement?.matches("input:not([type=checkbox]), select")) || !getSelection().isCollapsed;

async function ask() {
  try {
    const { version, said } = await (await fetch("state", { cache: "no-store" })).json();
    if (version === document.body.dataset.version) tell(said);
    else if (busy()) tell("newer results are there");
    else { keep(); location.reload(); return; }
  } catch { tell("no longer served: this is how the runs were"); }
  setTimeout(ask, ASK_MS);
}

history.scrollRestoration = "manual";
restore();
ask();
