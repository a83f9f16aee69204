// One episode as a person reads it: what was asked, what was remembered, what was done, what was believed and learned.
const SHOWN = 4000; // characters of a text shown at first

/** A text in full, or its beginning and a button for the rest. */
function long(text, tag = "div", name = "text") {
  const whole = String(text ?? "");
  if (whole.length <= SHOWN * 1.5) return el(tag, { class: name }, whole);
  const start = document.createTextNode(whole.slice(0, SHOWN) + " …");
  const more = el("button", { type: "button", class: "more" }, `show all ${number(whole.length)} characters`);
  more.addEventListener("click", () => { start.data = whole; more.remove(); });
  return el("div", {}, el(tag, { class: name }, start), more);
}

const badge = (kind, ...words) => el("span", { class: `badge ${kind}` }, ...words);
const statusBadge = (status) => badge(status, `${(STATUS[status] || { mark: "?" }).mark} ${(STATUS[status] || { word: status }).word}`);

function section(title, count, ...children) {
  return el("section", { class: "part" }, el("h3", {}, title, count === null ? null : el("span", { class: "count" }, String(count))), ...children);
}

function fact(name, ...value) {
  return el("div", {}, el("dt", {}, name), el("dd", {}, ...value));
}

function lessonCard(lesson) {
  return el("div", { class: "lesson" },
    el("h4", {}, lesson.title || "(no title)"), el("p", { class: "soft" }, lesson.description), long(lesson.content));
}

/** What was retrieved: each record with its score and a link to the episode that taught it. */
function retrievedPart(run, row, within) {
  const cards = row.retrieved.map((found) => {
    const source = found.task_id && run.byKey.get(found.task_id);
    const from = source ? el("a", { href: linkTo(view.a, within + source.key, view.b) }, found.task_id) : found.task_id || "another run";
    return el("li", { class: "card" },
      el("p", { class: "meta" }, el("b", { class: "score", title: "retrieval score" }, Number(found.score).toFixed(3)), " learned from ", from,
        found.outcome ? ` (judged ${found.outcome})` : "", found.rewritten ? "; its text was replaced before it was shown" : "",
        found.n_shown === 0 && badge("infra_error", "not shown"), found.followed === true && badge("success", "followed"), found.followed === false && badge("failure", "not followed"),
        run.lessons ? [" · ", el("a", { href: lessonLink(run, found.id, 0) }, "in the bank")] : ""),
      found.items ? found.items.map(lessonCard) : el("p", { class: "soft" }, `record ${found.id}: its text is not in the run's files`));
  });
  return section("Retrieved lessons", row.retrieved.length,
    cards.length ? el("ul", { class: "cards" }, cards) : el("p", { class: "soft" }, "Nothing was retrieved for this task."));
}

function stepItem(step, place) {
  const read = [step.thought, step.action].filter(Boolean).join("");
  const notes = [!step.valid && badge("failure", "invalid"), step.finish_reason === "length" && badge("infra_error", "cut off"),
    !String(step.text).trim() && badge("infra_error", "empty reply")];
  const thought = step.thought !== step.action && step.thought; // a single-turn reply is both
  const differs = read && step.text.replace(/\s/g, "").length > read.replace(/\s/g, "").length + 40;
  return el("li", { class: "step" },
    el("span", { class: "place", "aria-label": `step ${place + 1}` }, String(place + 1)),
    el("div", {},
      thought && long(thought, "p", "thought"),
      step.action && step.action !== step.text ? long(step.action, "pre", "action") : long(step.text, "pre", "said"),
      notes,
      step.observation && long(step.observation, "pre", "observation"),
      differs && step.action && el("details", {}, el("summary", {}, "the reply as written"), long(step.text, "pre", "said"))));
}

function attempt(trajectory, row, place) {
  const facts = [
    fact("Ended by", trajectory.ended_by.replace("_", " ")), fact("Truth", statusBadge(outcomeOf(trajectory))),
    fact("Steps", number(trajectory.steps.length)), trajectory.answer !== null && fact("Answer", long(trajectory.answer, "code", "")),
    trajectory.gold && fact("Reference", long(trajectory.gold, "code", "")), trajectory.error && fact("Error", long(trajectory.error, "code", "")),
  ];
  return el("div", { class: "attempt", role: "tabpanel" },
    el("dl", { class: "facts" }, facts),
    el("details", { class: "prompt" }, el("summary", {}, "Prompt at the start"),
      trajectory.opening.map((message) => [el("p", { class: "meta" }, message.role), long(message.content, "pre", "said")])),
    el("ol", { class: "steps" }, trajectory.steps.map(stepItem)));
}

/** The attempts; with more than one, a tab for each. */
function attemptsPart(row) {
  const all = row.trajectories;
  if (all.length === 1) return section("What the agent did", null, attempt(all[0], row, 0));
  const body = el("div", {});
  const tabs = all.map((trajectory, place) => el("button", { type: "button", role: "tab", onclick: () => choose(place) },
    `${STATUS[outcomeOf(trajectory)].mark} ${place + 1}`, place === row.chosen ? " chosen" : ""));
  function choose(place) {
    tabs.forEach((tab, other) => tab.setAttribute("aria-selected", String(other === place)));
    body.replaceChildren(all[place] ? attempt(all[place], row, place) : "");
  }
  choose(row.chosen);
  return section("What the agent did", all.length, el("div", { class: "tabs", role: "tablist", "aria-label": "attempts" }, tabs), body);
}

/** One judgement; beside it whether it is the truth, where that is known. */
function verdictLine(verdict, truth, name) {
  const agrees = verdict.label === truth ? el("span", { class: "soft" }, "agrees with the truth") : badge("infra_error", "differs from the truth");
  return [el("p", { class: "meta" }, name && el("b", {}, name), statusBadge(verdict.label), `by ${verdict.source}`,
    verdict.confidence !== null && `confidence ${verdict.confidence}`, truth && agrees,
    !verdict.parsed && badge("infra_error", "reply not readable"), verdict.truncated && badge("infra_error", "reply cut off")),
    verdict.reason && long(verdict.reason, "pre", "said")];
}

/** What was believed of each attempt, and how the answer was chosen among them. */
function verdictPart(row, entry) {
  const truthOf = (attempt) => ["success", "failure"].find((outcome) => outcome === outcomeOf(attempt)) || null;
  const verdicts = row.verdicts;
  const several = verdicts.length > 1;
  const judged = verdicts.flatMap((verdict, place) => verdict.label === null ? [] :
    [verdictLine(verdict, truthOf(row.trajectories[place]), several && `Attempt ${place + 1}`)]);
  const choice = row.selection && [el("p", { class: "meta" }, `Attempt ${row.chosen + 1} is the answer, by ${row.selection.by}`,
    !row.selection.parsed && badge("infra_error", "reply not readable")), row.selection.reason && long(row.selection.reason, "pre", "said")];
  return section("Verdict", null, judged.length ? judged : el("p", { class: "soft" }, "Nobody judged this attempt."), choice);
}

function tokensPart(row) {
  const roles = Object.entries(row.usage).filter(([, used]) => used.calls);
  if (!roles.length) return section("Tokens", null, el("p", { class: "soft" }, "No model was called."));
  const cells = roles.map(([role, used]) => el("tr", {}, el("th", { scope: "row" }, role),
    [used.calls, used.prompt_tokens, used.completion_tokens].map((value) => el("td", {}, number(value))),
    el("td", {}, used.cost_usd === null ? "unknown" : Number(used.cost_usd).toFixed(4))));
  const head = ["role", "calls", "prompt", "completion", "cost, USD"].map((name) => el("th", { scope: "col" }, name));
  return section("Tokens", null, el("div", { class: "scroll" }, el("table", {}, el("thead", {}, el("tr", {}, head)), el("tbody", {}, cells))));
}

/** The whole article. `heading` names the run where two stand side by side. */
function article(run, entry, row, heading) {
  const chosen = row.trajectories[row.chosen];
  return el("article", { class: "episode", tabindex: "-1" },
    heading && el("p", { class: "runname" }, heading),
    el("p", { class: "meta" }, statusBadge(entry.status), entry.wrong && badge("infra_error", "judge was wrong"),
      entry.type && el("span", {}, entry.type), el("span", {}, `task ${entry.position + 1} of ${number(run.n_tasks)}`),
      el("span", {}, plural(entry.steps, "step")), el("span", {}, plural(entry.tokens, "token"))),
    long(row.query, "h2", "query"),
    el("p", { class: "id" }, entry.id),
    row.learning_errors.length > 0 && el("div", { class: "note" }, row.learning_errors.map((error) => long(error, "p", ""))),
    chosen && chosen.error && el("div", { class: "note" }, long(chosen.error, "p", "")),
    retrievedPart(run, row, entry.within), attemptsPart(row), verdictPart(row, entry),
    section("Lessons learned", row.lessons.length, row.n_dropped > 0 && el("p", { class: "soft" }, `${plural(row.n_dropped, "item")} dropped: not readable, cut off or over the limit.`),
      row.lessons.length ? row.lessons.map((lesson) => el("div", { class: "card" }, lessonCard(lesson))) : el("p", { class: "soft" }, "None.")),
    tokensPart(row));
}
