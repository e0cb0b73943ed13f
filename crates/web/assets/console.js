// What renews itself: the server's events, at most once a second each, as events of the page, which htmx listens to.
(() => {
  "use strict";
  const EVERY_MS = 1000;
  const body = document.body;
  const lost = document.getElementById("lost");

  // One pending turn for each kind: two hundred changes in a second make one request.
  const due = new Map();
  const tell = (name) => {
    if (document.hidden || due.has(name)) { return; }
    due.set(name, setTimeout(() => {
      due.delete(name);
      body.dispatchEvent(new CustomEvent("hw:" + name));
    }, EVERY_MS));
  };
  const all = () => ["boot", "change", "task"].forEach(tell);

  if (body.dataset.live) {
    let retry = 1000;
    let broken = false;
    const listen = () => {
      const source = new EventSource(body.dataset.live);
      source.onopen = () => {
        retry = 1000;
        lost.hidden = true;
        // What was missed is read anew.
        if (broken) { all(); }
        broken = false;
      };
      source.onerror = () => {
        broken = true;
        lost.hidden = false;
        source.close();
        setTimeout(listen, retry);
        retry = Math.min(retry * 2, 30000);
      };
      for (const name of ["boot", "change", "task"]) { source.addEventListener(name, () => tell(name)); }
      // A device that comes or goes: what shows boots shows that, too.
      source.addEventListener("presence", () => tell("boot"));
      source.addEventListener("lost", all);
    };
    listen();
    document.addEventListener("visibilitychange", () => { if (!document.hidden) { all(); } });
  }

  // What was marked or is being chosen stays so when a table is renewed.
  let marked = new Set();
  let chosen = new Map();
  const state = (element) => element.querySelectorAll("input[type=checkbox][name], select[name]");
  document.addEventListener("htmx:beforeSwap", (event) => {
    marked = new Set();
    chosen = new Map();
    for (const field of state(event.target)) {
      if (field.type === "checkbox") { if (field.checked) { marked.add(field.name + "=" + field.value); } }
      else { chosen.set(field.name, field.value); }
    }
  });
  document.addEventListener("htmx:afterSwap", () => {
    for (const field of state(document)) {
      if (field.type === "checkbox") { if (marked.has(field.name + "=" + field.value)) { field.checked = true; } }
      else if (chosen.has(field.name) && field.closest(".bulk")) { field.value = chosen.get(field.name); }
    }
  });
  // Somebody who chooses from a list is not disturbed.
  document.addEventListener("htmx:beforeRequest", (event) => {
    const active = document.activeElement;
    if (active && active.tagName === "SELECT" && event.target.contains(active)) { event.preventDefault(); }
  });

  document.addEventListener("change", (event) => {
    const name = event.target.dataset && event.target.dataset.all;
    if (!name) { return; }
    for (const box of event.target.form.querySelectorAll("input[type=checkbox][name=" + name + "]")) { box.checked = event.target.checked; }
  });

  // The command that does what a form would do, as it is filled in.
  const word = (text) => /^[A-Za-z0-9_.\/:=@,+-]+$/.test(text) ? text : "'" + text.replaceAll("'", "'\\''") + "'";
  for (const form of document.querySelectorAll("form[data-command]")) {
    const shown = form.querySelector(".same-as code");
    const show = () => {
      const words = [form.dataset.command];
      const said = (field) => {
        if (field.type === "checkbox") { return field.checked ? "true" : ""; }
        if (field.selectedOptions) { return field.value && (field.selectedOptions[0].dataset.name || field.value); }
        const text = field.value.trim() + (field.value.trim() && (field.dataset.unit || ""));
        return "list" in field.dataset ? text.split(/[\s,]+/).filter(Boolean).join(",") : text;
      };
      const changed = (field) => (field.type === "checkbox" ? (field.checked ? "true" : "") : field.value.trim()) !== (field.dataset.was || "");
      let before = "";
      for (const field of form.querySelectorAll("[data-word]")) {
        // What is still to be filled in stands there by its name.
        if (!field.value) { words.push(before + field.name.toUpperCase()); before = ""; continue; }
        if (field.dataset.joins) { before = said(field) + field.dataset.joins; continue; }
        words.push(word(before + said(field)));
        before = "";
      }
      for (const field of form.querySelectorAll("[data-flag]")) { if (said(field)) { words.push(field.dataset.flag, word(said(field))); } }
      for (const field of form.querySelectorAll("[data-key]")) { if (changed(field)) { words.push(word(field.dataset.key + "=" + (field.type === "checkbox" ? String(field.checked) : said(field)))); } }
      if (words.length === 1 && form.querySelector("[data-key]")) { words.push("KEY=VALUE"); }
      shown.textContent = words.join(" ");
    };
    form.addEventListener("input", show);
    show();
  }

  // Charts: columns from the server, drawn anew every few seconds.
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  for (const place of document.querySelectorAll("[data-chart]")) {
    let chart = null;
    const draw = async () => {
      if (document.hidden) { return; }
      const answer = await fetch(place.dataset.chart).catch(() => null);
      if (!answer || !answer.ok) { return; }
      const told = await answer.json();
      const data = [told.at, ...told.series.map((one) => one.values)];
      if (chart) { chart.setData(data); return; }
      place.replaceChildren();
      const strokes = [colour("--second"), colour("--first"), colour("--file")];
      const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 } };
      // The same clock as in the tables, whatever the browser's language.
      const clock = (at) => at === null || at === undefined ? "–" : new Date(at * 1000).toTimeString().slice(0, 8);
      const width = () => Math.max(place.clientWidth, 240);
      chart = new uPlot({
        width: width(), height: 220,
        scales: { y: { range: (_, __, most) => [0, Math.max(most, 1)] }, requests: { range: (_, __, most) => [0, Math.max(most, 1)] } },
        axes: [{ ...axis, space: 80, values: (_, splits) => splits.map(clock) }, { ...axis, size: 56 }, { ...axis, scale: "requests", side: 1, grid: { show: false }, size: 56 }],
        series: [{ label: "at", value: (_, at) => clock(at) }, ...told.series.map((one, place) => ({ label: one.label, stroke: strokes[place], width: 2, points: { show: false }, scale: one.scale || "y", value: (_, value) => value === null || value === undefined ? "–" : value.toFixed(1) }))],
      }, data, place);
      new ResizeObserver(() => chart.setSize({ width: width(), height: 220 })).observe(place);
    };
    draw();
    setInterval(draw, 3000);
  }
})();
