"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const tables = new Map();
  // DataTables parses searched texts with "&" as HTML, and displays strings as HTML, so all texts are escaped.
  const escaped = (text) => String(text).replace(/[&<>"']/g, (c) => `&#${c.charCodeAt(0)};`);

  function element(name, text, attributes = {}) {
    const made = document.createElement(name);
    if (text !== undefined && text !== null) made.textContent = text;
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  }

  // Tooltips, by pointer, keyboard focus or tap.
  const tip = byId("tip");
  let tipped = null;
  function show(cell) {
    if (tipped && tipped !== cell) tipped.removeAttribute("aria-describedby");
    tipped = cell;
    tip.hidden = !cell;
    if (!cell) return;
    tip.textContent = cell.dataset.tip;
    cell.setAttribute("aria-describedby", "tip");
    const box = cell.getBoundingClientRect();
    const below = box.bottom + 6 + tip.offsetHeight < innerHeight;
    tip.style.left = `${Math.max(8, Math.min(box.left, innerWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${below ? box.bottom + 6 : Math.max(4, box.top - tip.offsetHeight - 6)}px`;
  }
  const cellAt = (event) => (event.target instanceof Element ? event.target.closest("td[data-tip]") : null);
  document.addEventListener("pointerover", (event) => { if (event.pointerType !== "touch") show(cellAt(event)); });
  document.addEventListener("click", (event) => show(cellAt(event)));
  document.addEventListener("focusin", (event) => show(cellAt(event)));
  document.addEventListener("focusout", () => show(null));
  document.addEventListener("scroll", () => show(null), { passive: true });
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") show(null); });

  // A table's numbers are one tab stop; arrow keys move between them.
  function rove(table) {
    table.querySelectorAll("td[data-tip]").forEach((cell, place) => { cell.tabIndex = place ? -1 : 0; });
  }
  function moved(cell, key) {
    if (key === "ArrowLeft" || key === "ArrowRight") {
      const side = key === "ArrowLeft" ? "previousElementSibling" : "nextElementSibling";
      let next = cell[side];
      while (next && !next.dataset.tip) next = next[side];
      return next;
    }
    const side = key === "ArrowUp" ? "previousElementSibling" : "nextElementSibling";
    const rows = [...cell.closest("table").rows];
    const step = side === "nextElementSibling" ? 1 : -1;
    for (let at = rows.indexOf(cell.parentElement) + step; at >= 0 && at < rows.length; at += step) {
      const next = rows[at].cells[cell.cellIndex];
      if (next && next.dataset.tip) return next;
    }
    return null;
  }
  document.addEventListener("keydown", (event) => {
    const cell = cellAt(event);
    if (!cell || !event.key.startsWith("Arrow")) return;
    const next = moved(cell, event.key);
    event.preventDefault();
    if (!next) return;
    cell.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });

  // Copying: the visible rows and columns in their order.
  const forms = {
    csv: (rows) => rows.map((row) => row.map(csv).join(",")).join("\n") + "\n",
    markdown: ([head, ...rows]) =>
      [head, head.map((_, place) => (place ? "---:" : "---")), ...rows]
        .map((row, line) => `| ${row.map((text) => (line === 1 ? text : markdown(text))).join(" | ")} |`).join("\n") + "\n",
    latex: ([head, ...rows]) => [
      `\\begin{tabular}{l${"r".repeat(head.length - 1)}}`, "\\toprule", `${head.map(latex).join(" & ")} \\\\`, "\\midrule",
      ...rows.map((row) => `${row.map(latex).join(" & ")} \\\\`), "\\bottomrule", "\\end{tabular}", "",
    ].join("\n"),
  };
  function csv(text) {
    const number = /^[-+]?[\d.,]+$/.test(text);
    const safe = !number && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
    return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  }
  const markdown = (text) => text.replace(/[\\|_$&*`<>[\]]/g, "\\$&").replace(/\s+/g, " ");
  function latex(text) {
    const start = /^-\d/.test(text) ? "$-$" : /^[*[]/.test(text) ? "{}" : "";
    return start + [...(start === "$-$" ? text.slice(1) : text)].map((c) => data.latex[c] ?? c).join("");
  }

  function announce(text) {
    byId("status").textContent = text;
    setTimeout(() => { if (byId("status").textContent === text) byId("status").textContent = ""; }, 4000);
  }
  async function copy(text, what) {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = element("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
    announce(`copied ${what}`);
  }
  document.addEventListener("click", (event) => {
    const button = event.target instanceof Element ? event.target.closest("button") : null;
    if (!button) return;
    if (button.dataset.copiesText) copy(byId(button.dataset.copiesText).textContent, "the command");
    if (!button.dataset.copies) return;
    const { rows } = tables.get(button.dataset.copies);
    const texts = rows();
    copy(forms[button.dataset.form](texts), `${texts.length - 1} rows as ${button.textContent}`);
  });

  // The page navigation of every table is a separate landmark.
  function named(made, name) {
    const label = () => made.table().container().querySelectorAll("nav")
      .forEach((nav) => nav.setAttribute("aria-label", `pages of ${name}`));
    made.on("draw", label);
    label();
  }

  const language = { search: "Search", lengthMenu: "_MENU_ rows", info: "_START_ to _END_ of _TOTAL_", infoEmpty: "no rows",
    infoFiltered: "(of _MAX_)", emptyTable: "No rows.", zeroRecords: "No matches." };
  const layout = { topStart: "pageLength", topEnd: "search", bottomStart: "info", bottomEnd: "paging" };
  const FEW = 15; // a table of so many rows needs no search
  const shared = { autoWidth: false, language, layout, order: [], pageLength: 25, lengthMenu: [25, 50, 100, { label: "all", value: -1 }] };

  // Cells without a number are the last in both orders.
  const known = (sign) => (a, b) => (a === "" || b === "" ? (a === "") - (b === "") : sign * (a - b));
  Object.assign(DataTable.ext.type.order, { "known-asc": known(1), "known-desc": known(-1) });

  // The tables of metrics by protocol are in the HTML and are sorted and searched in place.
  for (const table of document.querySelectorAll("table.matrix")) {
    const numbers = { targets: "_all", type: "known", orderSequence: ["desc", "asc"] };
    const made = new DataTable(table, { ...shared, paging: false, info: false, layout: { topStart: null, topEnd: table.tBodies[0].rows.length > FEW ? "search" : null,
      bottomStart: null, bottomEnd: null }, columnDefs: [{ targets: 0, type: "string", orderSequence: ["asc", "desc"] }, numbers] });
    const text = (cell) => cell.dataset.copy ?? cell.textContent.trim();
    tables.set(table.id, { rows: () => {
      const shown = made.columns(":visible").indexes().toArray();
      const lines = made.rows({ order: "current", search: "applied" }).nodes().toArray().map((row) => [...row.cells].map(text));
      const foot = table.tFoot ? [...table.tFoot.rows].map((row) => [...row.cells].map(text)) : [];
      return [shown.map((place) => text(made.column(place).header())), ...lines, ...foot];
    } });
    made.on("draw", () => rove(table));
    rove(table);
    const filter = document.querySelector(`select[data-filters="${table.id}"]`);
    filter?.addEventListener("change", () => {
      made.columns().every(function () {
        const of = this.header().dataset.dataset;
        this.visible(!of || !filter.value || of === filter.value, false);
      });
      made.columns.adjust().draw(false);
    });
  }
  document.querySelectorAll("table.tips:not(.matrix)").forEach(rove);

  // Captions, the largest difference first.
  const items = byId("items");
  if (items) listItems();

  function listItems() {
    const controls = Object.fromEntries(["panel", "first", "second", "direction", "part"].map((n) => [n, byId(`items-${n}`)]));
    const fill = (select, choices, value) => {
      select.replaceChildren(...choices.map(([v, text]) => { const o = element("option", text); o.value = v; return o; }));
      select.value = value;
      select.closest(".field").hidden = choices.length < 2;
    };
    let panel = data.panels[0];
    let distances = [];
    const first = () => panel.metrics[Number(controls.first.value)];
    const second = () => (controls.second.value === "people" ? null : panel.metrics[Number(controls.second.value)]);
    const percent = (tenths) => (tenths === null || tenths === undefined ? "–" : Math.round(tenths / 10));
    function measure() {
      const one = first().pct;
      const two = second() ? second().pct : panel.humanPct;
      distances = one.map((value, place) => (value === null || two[place] === null ? null : value - two[place]));
    }
    function picture(place) {
      const name = panel.picture?.[panel.image[place]] ?? null;
      return name !== null && Object.hasOwn(data.pictures, name) ? data.pictures[name] : null;
    }
    function caption(place) {
      const box = element("div", null, { class: "case" });
      const image = panel.images[panel.image[place]];
      const url = picture(place);
      if (url) box.append(element("img", null, { src: url, alt: "", loading: "lazy" }));
      const texts = element("div");
      texts.append(element("span", panel.caption[place]));
      if (panel.pairs) texts.append(element("span", `preferred to: ${panel.other[place]}`, { class: "other" }));
      const about = [image, panel.group[place], panel.system[place]].filter(Boolean).join(" · ");
      texts.append(element("span", about, { class: "sub" }));
      box.append(texts);
      return box;
    }
    function number(main, small) {
      const box = element("span", main);
      if (small) box.append(element("span", small, { class: "sub" }));
      return box;
    }
    const short = (value) => (value && Math.abs(value) < 1e-3 ? `${value < 0 ? "−" : ""}< 0.001` : String(Number(value.toPrecision(3))));
    const score = (metric, place) => (metric.score[place] === null ? "–" : short(metric.score[place]));
    const scored = (metric, place) => number(percent(metric.pct[place]), score(metric, place));
    const humanText = (place) => (panel.pairs ? panel.ratings[place].replace(", ", " to ") : String(panel.human[place]));
    const signed = (tenths) => (tenths === null ? "–" : `${tenths > 0 ? "+" : tenths < 0 ? "−" : ""}${Math.abs(Math.round(tenths / 10))}`);
    const columns = [
      { show: caption, sort: (i) => panel.caption[i], type: "string",
        find: (i) => [panel.caption[i], panel.other[i] ?? "", panel.images[panel.image[i]], panel.group[i], panel.system[i]].join(" ") },
      { show: (i) => (panel.pairs ? number(humanText(i) || "preferred") : number(percent(panel.humanPct[i]), panel.ratings[i])),
        sort: (i) => panel.human[i] },
      { show: (i) => scored(first(), i), sort: (i) => first().pct[i] ?? -1 },
      { show: (i) => (second() ? scored(second(), i) : element("span")), sort: (i) => (second() ? second().pct[i] ?? -1 : 0) },
      { show: (i) => element("span", signed(distances[i])), sort: (i) => (distances[i] === null ? -1 : Math.abs(distances[i])) },
      { show: (i) => more(i), sort: () => 0, plain: true },
    ];
    function more(place) {
      const label = `References and all scores of: ${panel.caption[place]}`;
      return element("button", "more", { type: "button", "aria-expanded": "false", "aria-label": label, "data-more": place });
    }
    measureSetup();
    const made = new DataTable(items, { ...shared, data: panel.caption.map((_, place) => place), deferRender: true,
      order: [[4, "desc"]],
      columns: columns.map((column, place) => ({
        data: null, className: place ? "n" : "", orderable: !column.plain, searchable: place === 0,
        type: column.type ?? "num", orderSequence: place ? ["desc", "asc"] : ["asc", "desc"],
        render: (row, type) => {
          if (type === "display") return column.show(row);
          return type === "sort" || type === "type" ? column.sort(row) : escaped(column.find ? column.find(row) : "");
        },
      })) });
    made.search.fixed("choice", (_text, row) => {
      const way = controls.direction.value;
      const part = controls.part.value;
      return (!way || (distances[row] !== null && (way === "higher" ? distances[row] > 0 : distances[row] < 0))) &&
        (!part || panel.group[row] === part);
    });
    const tooltip = (metric, place) => [`${metric.title}: ${metric.score[place] ?? "no score"}`,
      `percentile ${percent(metric.pct[place])} of ${panel.all} ${panel.pairs ? "pairs" : "captions"}`, panel.title,
      metric.signature ? `signature ${metric.signature}` : ""].filter(Boolean).join("\n");
    made.on("draw", () => {
      for (const row of items.tBodies[0].rows) {
        const place = made.row(row).data();
        if (place === undefined || row.cells.length < 5) continue;
        row.cells[1].dataset.tip = `human rating: ${humanText(place)}\nratings: ${panel.ratings[place]}\n${panel.title}`;
        row.cells[2].dataset.tip = tooltip(first(), place);
        if (second()) row.cells[3].dataset.tip = tooltip(second(), place);
      }
      rove(items);
    });
    heads();
    named(made, "captions");
    made.draw();
    function measureSetup() {
      fill(controls.panel, data.panels.map((p, place) => [String(place), p.title]), "0");
      choices();
      measure();
    }
    function choices() {
      const metrics = panel.metrics.map((metric, place) => [String(place), metric.title]);
      fill(controls.first, metrics, "0");
      fill(controls.second, [["people", "human ratings"], ...metrics], "people");
      const groups = [...new Set(panel.group)].filter(Boolean);
      fill(controls.part, groups.length > 1 ? [["", "all"], ...groups.map((g) => [g, g])] : [["", "all"]], "");
      ways();
    }
    function ways() {
      const against = second() ? second().title : "human ratings";
      const value = controls.direction.value;
      fill(controls.direction, [["", "both"], ["higher", `${first().title} higher`], ["lower", `${against} higher`]], value || "");
    }
    function heads() {
      const titles = ["caption", panel.pairs ? "votes" : "human rating", first().title, second() ? second().title : "", "difference", "details"];
      titles.forEach((title, place) => {
        const head = made.column(place).header();
        (head.querySelector(".dt-column-title") ?? head).textContent = title;
      });
      made.column(3).visible(Boolean(second()), false);
    }
    function changed() {
      measure();
      ways();
      heads();
      made.rows().invalidate("data");
      made.order([[4, "desc"]]).draw();
    }
    controls.panel.addEventListener("change", () => {
      panel = data.panels[Number(controls.panel.value)];
      choices();
      measure();
      heads();
      made.clear();
      made.rows.add(panel.caption.map((_, place) => place));
      made.order([[4, "desc"]]).draw();
    });
    controls.first.addEventListener("change", changed);
    controls.second.addEventListener("change", changed);
    for (const name of ["direction", "part"]) controls[name].addEventListener("change", () => made.draw());
    items.addEventListener("click", (event) => {
      const button = event.target instanceof Element ? event.target.closest("button[data-more]") : null;
      if (!button) return;
      const row = made.row(button.closest("tr"));
      const open = row.child.isShown();
      if (open) row.child.hide();
      else row.child(detail(Number(button.dataset.more))).show();
      button.setAttribute("aria-expanded", String(!open));
      button.textContent = open ? "more" : "less";
    });
    function detail(place) {
      const box = element("div", null, { class: "detail" });
      const image = panel.images[panel.image[place]];
      if (picture(place)) box.append(element("img", null, { src: picture(place), alt: `image ${image}` }));
      const references = panel.refLists[panel.refs[place]];
      const count = panel.refCounts[panel.refs[place]];
      box.append(element("h3", count > references.length ? `References (${references.length} of ${count})` : "References"));
      const texts = element("ul");
      texts.append(...references.map((text) => element("li", text)));
      box.append(count ? texts : element("p", "none"));
      const table = element("table");
      const head = element("tr");
      head.append(...["", "percentile", "", panel.pairs ? "preferred minus other" : "score"].map((t) => element(t ? "th" : "td", t)));
      const lines = [["human rating", panel.humanPct[place], humanText(place)],
        ...panel.metrics.map((metric) => [metric.title, metric.pct[place], score(metric, place)])];
      table.append(head, ...lines.map(([name, tenths, value]) => {
        const line = element("tr");
        const bar = element("td");
        bar.append(element("meter", null, { min: 0, max: 100, value: (tenths ?? 0) / 10, "aria-label": `${name}: percentile ${percent(tenths)}` }));
        line.append(element("th", name, { scope: "row" }), bar, element("td", percent(tenths), { class: "n" }), element("td", value, { class: "n" }));
        return line;
      }));
      box.append(table);
      for (const name of new Set(panel.metrics.map((metric) => metric.explained).filter(Boolean))) {
        const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;
        const command = `capbench explore explain -m ${name} -d ${panel.dataset} --image ${quoted(image)} --caption ${quoted(panel.caption[place])}`;
        const line = element("p", `Why ${name} gave this score: `);
        line.append(element("code", command), " (with the study's --features and --model)");
        box.append(line);
      }
      return box;
    }
    tables.set("items", { rows: () => {
      const titles = ["image", "caption", ...(panel.pairs ? ["other caption"] : []), "human rating", "human percentile",
        ...panel.metrics.flatMap((m) => [m.title, `${m.title} percentile`])];
      const rows = made.rows({ order: "current", search: "applied" }).data().toArray();
      return [titles, ...rows.map((i) => [panel.images[panel.image[i]], panel.caption[i], ...(panel.pairs ? [panel.other[i]] : []),
        humanText(i), String(panel.humanPct[i] / 10),
        ...panel.metrics.flatMap((m) => [String(m.score[i] ?? ""), m.pct[i] === null ? "" : String(m.pct[i] / 10)])])];
    } });
  }

  const parts = () => document.querySelectorAll("details");
  // On paper every part is open.
  let closed = [];
  addEventListener("beforeprint", () => {
    closed = [...parts()].filter((p) => !p.open);
    closed.forEach((p) => { p.open = true; });
  });
  addEventListener("afterprint", () => closed.forEach((p) => { p.open = false; }));
  document.documentElement.dataset.ready = "yes";
})();
