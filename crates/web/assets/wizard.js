// Files that people choose: tables go into the form, images go to the server in parts.
(() => {
  "use strict";
  for (const input of document.querySelectorAll("input[type=file][data-into]")) {
    input.addEventListener("change", async () => {
      const file = input.files[0];
      if (file) { input.form.elements[input.dataset.into].value = await file.text(); }
    });
  }

  const form = document.getElementById("upload");
  if (!form) { return; }
  const PART_BYTES = 4 << 20;
  const progress = form.querySelector(".progress");
  const failed = form.querySelector(".said.bad");
  const stop = form.querySelector("[data-do=stop]");
  const cancel = form.querySelector("[data-do=cancel]");
  const token = form.elements.form_token.value;
  let stopping = false;

  const ask = async (address, options) => {
    const answer = await fetch(address, options);
    if (answer.redirected) { location.reload(); throw new Error("The session has ended."); }
    const told = await answer.json();
    if (!answer.ok) { throw new Error([told.message, told.hint].filter(Boolean).join(" – ")); }
    return told;
  };
  const post = (step, fields) => ask("/vdisks/upload/" + step, { method: "POST", body: new URLSearchParams({ form_token: token, ...fields }) });
  const hex = (bytes) => Array.from(new Uint8Array(bytes), (byte) => byte.toString(16).padStart(2, "0")).join("");
  const show = (here, all, began, from) => {
    progress.hidden = false;
    progress.firstElementChild.value = all ? here * 100 / all : 0;
    const mib = (bytes) => (bytes / 1048576).toFixed(1);
    const seconds = (performance.now() - began) / 1000;
    const rate = seconds > 1 ? (here - from) / seconds : 0;
    const left = rate > 0 ? ", about " + Math.ceil((all - here) / rate) + " s left" : "";
    progress.lastElementChild.textContent = mib(here) + " of " + mib(all) + " MiB" + left;
  };

  const send = async (file, store) => {
    const place = { store, name: file.name, length: file.size };
    let here = (await post("begin", place)).here_bytes;
    const [began, from] = [performance.now(), here];
    show(here, file.size, began, from);
    while (here < file.size && !stopping) {
      const part = await file.slice(here, here + PART_BYTES).arrayBuffer();
      const sha256 = hex(await crypto.subtle.digest("SHA-256", part));
      const query = new URLSearchParams({ store, name: file.name, offset: here, sha256 });
      const headers = { "content-type": "application/octet-stream", "x-form-token": token };
      here = (await ask("/vdisks/upload/part?" + query, { method: "POST", headers, body: part })).here_bytes;
      show(here, file.size, began, from);
    }
    if (stopping) { return; }
    await post("finish", place);
    location.assign(form.dataset.then + "?" + new URLSearchParams({ store }));
  };

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const file = form.elements.file.files[0];
    if (!file) { return; }
    stopping = false;
    failed.hidden = true;
    stop.hidden = false;
    cancel.hidden = true;
    try { await send(file, form.elements.store.value); }
    catch (error) { failed.textContent = error.message; failed.hidden = false; }
    stop.hidden = true;
    cancel.hidden = false;
  });
  stop.addEventListener("click", () => { stopping = true; });
  cancel.addEventListener("click", async () => {
    const file = form.elements.file.files[0];
    try {
      await post("cancel", { store: form.elements.store.value, name: file ? file.name : "" });
      progress.hidden = true;
      cancel.hidden = true;
    } catch (error) { failed.textContent = error.message; failed.hidden = false; }
  });
})();
