// Draw everything, and again when the colour scheme changes or the page is printed.

redraw();
byId("contents").append(
  ...[...document.querySelectorAll("main h2")]
    .filter((title) => !title.closest("section").hidden)
    .map((title) => h("a", { href: `#${title.id}` }, title.textContent)),
);
for (const query of ["(prefers-color-scheme: dark)", "print"]) matchMedia(query).addEventListener("change", redraw);
document.documentElement.dataset.ready = "yes";
