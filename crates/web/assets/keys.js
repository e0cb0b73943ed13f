// What keys do in the console beside what browsers do with them.
(() => {
  "use strict";
  const menu = document.getElementById("menu");
  const account = document.querySelector(".account");
  const search = document.querySelector(".top [type=search]");
  const slash = document.getElementById("slash");
  if (!menu) { return; }

  // Whoever speaks to the browser, or has keys of their own, can have the key left alone.
  slash.checked = localStorage.getItem("slash") !== "off";
  slash.closest("label").hidden = false;
  slash.addEventListener("change", () => localStorage.setItem("slash", slash.checked ? "on" : "off"));

  const typing = (one) => one.matches("select, textarea, input:not([type=checkbox], [type=radio])");
  // On a narrow screen the navigation covers the page while it is open.
  const covers = () => menu.matches(":target") && getComputedStyle(menu).position === "fixed";

  const escape = (from) => {
    if (covers()) {
      location.replace("#");
      document.querySelector(".menu").focus();
      return;
    }
    const open = from.closest("details[open]") || (account.open && account);
    if (open) {
      open.open = false;
      open.querySelector("summary").focus();
      return;
    }
    // A dialog is left as by its Cancel.
    const cancel = document.querySelector(".dialog a[autofocus]");
    if (cancel) { cancel.click(); }
  };

  document.addEventListener("keydown", (event) => {
    if (event.defaultPrevented || event.isComposing || event.ctrlKey || event.altKey || event.metaKey) { return; }
    if (event.key === "Escape") { escape(event.target); }
    if (event.key === "/" && slash.checked && !typing(event.target)) {
      event.preventDefault();
      search.focus();
      search.select();
    }
  });

  // What lies above the page closes when it is left.
  for (const name of ["focusin", "pointerdown"]) {
    document.addEventListener(name, (event) => {
      if (!account.contains(event.target)) { account.open = false; }
      if (covers() && !menu.contains(event.target)) {
        location.replace("#");
        event.target.scrollIntoView({ block: "nearest" });
      }
    });
  }
})();
