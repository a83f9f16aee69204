// Tables that are sorted by a click on a heading, back to their own order by a third one, and filtered by a text.
const FILTERED_FROM = 6; // rows

/** The number that a cell's text begins with; null for a text, and for "-", which stands for what is not known. */
function leading(text) {
  const found = text.trim().replace(/−/g, "-").replace(/,(?=\d{3})/g, "").match(/^[<>]?\s*([+-]?\d+(?:\.\d+)?)/);
  return found && Number(found[1]);
}

/** Order rows by a column: numbers by size, else texts; what is not known comes last whichever way. */
function ordered(rows, column, direction) {
  const texts = new Map(rows.map((row) => [row, row.cells[column].textContent.trim()]));
  const known = rows.filter((row) => !["-", "–", ""].includes(texts.get(row)));
  const numeric = column > 0 && known.every((row) => leading(texts.get(row)) !== null);
  const value = (row) => numeric ? leading(texts.get(row)) : texts.get(row);
  const compare = (a, b) => numeric ? value(a) - value(b) : value(a).localeCompare(value(b), "en", { numeric: true });
  return [...known.sort((a, b) => direction * compare(a, b)), ...rows.filter((row) => !known.includes(row))];
}

function sortable(table) {
  const body = table.tBodies[0];
  const original = [...body.rows];
  const heads = [...table.tHead.rows[0].cells];
  const state = { column: -1, direction: 0, text: "" };
  function show() {
    const rows = state.direction ? ordered([...original], state.column, state.direction) : original;
    body.replaceChildren(...rows);
    heads.forEach((head, column) => {
      const mine = state.direction && column === state.column;
      head.setAttribute("aria-sort", mine ? (state.direction > 0 ? "ascending" : "descending") : "none");
    });
    for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(state.text.toLowerCase());
  }
  heads.forEach((head, column) => {
    if (!head.textContent) return;
    const name = head.textContent;
    head.replaceChildren(el("button", { type: "button", class: "sort", title: "sort", onclick: () => {
      const numeric = original.some((row) => column > 0 && leading(row.cells[column].textContent) !== null);
      const turns = numeric ? [-1, 1, 0] : [1, -1, 0]; // a number's largest first, then its smallest, then as it was
      const next = state.column === column ? turns[(turns.indexOf(state.direction) + 1) % 3] : turns[0];
      Object.assign(state, { column, direction: next });
      show();
    } }, name));
  });
  if (original.length >= FILTERED_FROM) {
    const input = el("input", { type: "search", autocomplete: "off", placeholder: "filter rows", "aria-label": "filter rows" });
    input.addEventListener("input", () => { state.text = input.value.trim(); show(); });
    table.parentElement.before(el("p", { class: "filter" }, input));
  }
}

document.querySelectorAll("table.sortable").forEach(sortable);
