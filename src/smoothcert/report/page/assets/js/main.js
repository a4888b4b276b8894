// Draws the page, and redraws it when the address, the color scheme or the medium (screen or print) changes.

import "./filters.js";
import "./message.js";
import "./ranking.js";
import "./curves.js";
import "./table.js";
import "./distribution.js";
import "./compare.js";
import "./tradeoff.js";
import "./corruption.js";
import "./training.js";
import "./gallery.js";
import { data } from "./data.js";
import { byId, h } from "./dom.js";
import { drawAll, drawWaiting, readAddress } from "./state.js";

if (data.corruptionLeads) {
  byId("lead").before(byId("corruption-section"));
  byId("corruption-section").prepend(byId("corruption-message"));
}
readAddress();
drawAll();
const titles = [...document.querySelectorAll("main h2[id]")].filter((title) => !title.closest("section").hidden);
const jump = (title) => (event) => {
  event.preventDefault(); // the address holds the reader's choices
  title.closest("details")?.setAttribute("open", "");
  title.scrollIntoView();
};
byId("contents").append(
  ...titles.map((title) => h("a", { href: `#${title.id}`, onclick: jump(title) }, title.textContent)),
);
addEventListener("hashchange", () => {
  readAddress();
  drawAll();
});
addEventListener("beforeprint", drawWaiting);
for (const query of ["(prefers-color-scheme: dark)", "print"]) matchMedia(query).addEventListener("change", drawAll);
document.documentElement.dataset.ready = "yes";
