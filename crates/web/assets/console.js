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
    // The server says every 15 seconds that it is there: one that says nothing is as good as gone, though nobody closed the connection.
    const SILENT_MS = 40000;
    let retry_ms = 1000;
    let source = null;
    let silence = 0;
    let again = 0;
    const rest = () => {
      clearTimeout(silence);
      clearTimeout(again);
      if (source) { source.close(); }
      source = null;
    };
    const over = () => {
      rest();
      lost.hidden = false;
      again = setTimeout(listen, retry_ms);
      retry_ms = Math.min(retry_ms * 2, 30000);
    };
    const heard = () => {
      clearTimeout(silence);
      silence = setTimeout(over, SILENT_MS);
    };
    const listen = () => {
      rest();
      // A browser has six connections to a server for all its tabs: those that nobody sees take none.
      if (document.hidden) { return; }
      source = new EventSource(body.dataset.live);
      heard();
      source.onopen = () => {
        heard();
        retry_ms = 1000;
        lost.hidden = true;
        // What happened since the page was made, or while nobody listened, is read anew.
        all();
      };
      source.onerror = over;
      // A device that comes or goes: what shows boots shows that, too.
      for (const [name, kind] of [["boot", "boot"], ["presence", "boot"], ["change", "change"], ["task", "task"]]) {
        source.addEventListener(name, () => { heard(); tell(kind); });
      }
      source.addEventListener("alive", heard);
      // A page that read too slowly has missed something.
      source.addEventListener("lost", () => { heard(); all(); });
    };
    listen();
    document.addEventListener("visibilitychange", listen);
  }

  // What scrolls sideways can be scrolled with the keyboard, too, and says what it is.
  const SCROLLS = ".table, .panel, .figure, .task-log";
  const scrolls = () => {
    for (const one of document.querySelectorAll(".table, .panel, .figure")) {
      const wide = one.scrollWidth > one.clientWidth;
      if (wide === one.hasAttribute("tabindex")) { continue; }
      if (!wide) { ["tabindex", "role", "aria-label"].forEach((name) => one.removeAttribute(name)); continue; }
      const title = one.querySelector("h2, h3") || document.querySelector("h1");
      one.tabIndex = 0;
      one.setAttribute("role", "group");
      one.setAttribute("aria-label", (title ? title.innerText : "Table") + ", scrolls sideways");
    }
  };
  scrolls();
  addEventListener("resize", scrolls);

  // Whoever types, chooses from a list or presses something is not disturbed; what was held back comes when they are done.
  const TYPED = "select, textarea, input:not([type=checkbox], [type=radio])";
  let pressed = null;
  let held = null;
  const renews = (part) => part.matches("[hx-trigger*='from:body']");
  const busy = (part) => part.contains(pressed) || (part.contains(document.activeElement) && document.activeElement.matches(TYPED));
  const hold = (part) => {
    if (!renews(part) || !busy(part)) { return false; }
    held = part;
    return true;
  };
  const release = () => {
    pressed = null;
    if (!held || busy(held)) { return; }
    held = null;
    all();
  };
  for (const name of ["pointerdown", "keydown"]) { addEventListener(name, (event) => { pressed = event.target; }, true); }
  for (const name of ["pointerup", "pointercancel", "keyup", "focusout", "blur"]) { addEventListener(name, release); }
  document.addEventListener("htmx:beforeRequest", (event) => { if (hold(event.target)) { event.preventDefault(); } });

  // What was marked, typed or chosen, where the focus is and how far was scrolled stays so when a part is renewed.
  const FIELDS = "input:not([type=hidden], [type=file]), select, textarea";
  const STOPS = "a[href], button, input:not([type=hidden]), select, textarea, summary, [tabindex]";
  const ROW = "tr, li";
  const boxed = (field) => field.type === "checkbox" || field.type === "radio";
  const within = (part, wanted) => [...(part.matches(wanted) ? [part] : []), ...part.querySelectorAll(wanted)];
  // A link, button or field is the same one when it is and does the same, in a row that begins with the same.
  const does = (one) => [one.tagName, one.id, one.name, boxed(one) || one.tagName === "BUTTON" ? one.value : "", one.getAttribute("href"),
    one.form && one.form.getAttribute("action"), one.getAttribute("aria-label")].join("\n");
  const begins = (row) => { const first = row && row.querySelector(STOPS); return first ? does(first) : ""; };
  const mark = (one) => does(one) + "\n" + begins(one.closest(ROW));
  const focus_in = (part) => {
    const active = document.activeElement;
    if (!part.contains(active)) { return null; }
    const row = active.closest(ROW);
    const own = mark(active);
    const alike = within(part, STOPS).filter((one) => mark(one) === own);
    return { mark: own, place: alike.indexOf(active), row: begins(row), row_place: within(part, ROW).indexOf(row) };
  };
  const focus_again = (part, was) => {
    const alike = within(part, STOPS).filter((one) => mark(one) === was.mark);
    const rows = within(part, ROW);
    // Where it is gone, its row is the next best place, or the row that stands there now: at a link, which does nothing by itself.
    const row = () => rows.find((row) => was.row && begins(row) === was.row) || rows[Math.min(was.row_place, rows.length - 1)];
    const link = () => { const found = row(); return found && found.querySelector("a[href]"); };
    const again = alike[was.place] || alike[0] || link() || part;
    if (again === part && !part.hasAttribute("tabindex")) { part.tabIndex = -1; }
    again.focus({ preventScroll: true });
  };
  let kept = { fields: new Map(), scrolled: [], focus: null };
  document.addEventListener("htmx:beforeSwap", (event) => {
    const part = event.target;
    if (hold(part)) { event.detail.shouldSwap = false; return; }
    const fields = within(part, FIELDS).map((field) => [mark(field), boxed(field) ? field.checked : field.value]);
    const scrolled = within(part, SCROLLS).map((one) => [one.scrollLeft, one.scrollTop]);
    kept = { fields: new Map(fields), scrolled, focus: focus_in(part) };
  });
  document.addEventListener("htmx:afterSwap", (event) => {
    const part = event.target;
    for (const field of within(part, FIELDS)) {
      const was = kept.fields.get(mark(field));
      if (was === undefined) { continue; }
      if (boxed(field)) { field.checked = was; }
      else if (!field.options || [...field.options].some((option) => option.value === was)) { field.value = was; }
    }
    scrolls();
    within(part, SCROLLS).forEach((one, place) => { [one.scrollLeft, one.scrollTop] = kept.scrolled[place] || [0, 0]; });
    if (kept.focus) { focus_again(part, kept.focus); }
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
      // One figure makes no line, and an axis of days around it.
      if (!chart && told.at.length < 2) { place.firstElementChild.textContent = "Nothing so far."; return; }
      const data = [told.at, ...told.series.map((one) => one.values)];
      const said = (value) => (value ?? 0).toFixed(1);
      place.setAttribute("aria-label", "Chart: " + told.series.map((one) => one.label + " " + said(one.values.at(-1)) + ", at most " + said(Math.max(0, ...one.values))).join("; "));
      if (chart) { chart.setData(data); return; }
      place.replaceChildren();
      // Arrows move to a moment of the chart, whose figures stand below it; without a moment it says what is now and what was most.
      place.tabIndex = 0;
      place.setAttribute("role", "group");
      place.addEventListener("keydown", (event) => {
        const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
        const last = chart.data[0].length - 1;
        if (!step || last < 0) { return; }
        event.preventDefault();
        const from = chart.cursor.idx ?? last + 1;
        chart.setCursor({ left: chart.valToPos(chart.data[0][Math.min(Math.max(from + step, 0), last)], "x"), top: 0 });
      });
      const strokes = [colour("--second"), colour("--first"), colour("--file")];
      const axis = { stroke: colour("--soft"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line"), width: 1 } };
      // The same clock as in the tables, whatever the browser's language.
      const clock = (at) => at === null || at === undefined ? "–" : new Date(at * 1000).toISOString().slice(11, 19);
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
