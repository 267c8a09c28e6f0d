// The page: which tab is shown, and what each is given.

import { get } from "./api.js";
import { all, find } from "./ui.js";

// Each tab is loaded when it is first shown.
const MODULES = {
  sample: () => import("./sample.js"),
  inpaint: () => import("./inpaint.js"),
  understand: () => import("./understand.js"),
  monitor: () => import("./monitor.js"),
};
const tabs = {};
const links = all("[role=tab]");
let known; // models and limits

/** The address after # says the tab and its settings: #/sample?seed=1. */
async function route() {
  const [, name = "sample", query = ""] = /^#\/(\w+)(?:\?(.*))?$/.exec(location.hash) ?? [];
  const shown = Object.hasOwn(MODULES, name) ? name : "sample";
  for (const link of links) {
    const own = link.id === `tab-${shown}`;
    link.setAttribute("aria-selected", String(own));
    link.tabIndex = own ? 0 : -1;
    find(`#${link.getAttribute("aria-controls")}`).hidden = !own;
  }
  document.title = `${find(`#tab-${shown}`).textContent} · scorefield`;
  const module = MODULES[shown]();
  if (!known) return; // start() comes here again
  const { makeTab } = await module;
  if (find(`#${shown}`).hidden) return; // left already
  tabs[shown] ??= makeTab(find(`#${shown}`), known);
  tabs[shown].open(new URLSearchParams(query));
}

/** Arrow keys go from tab to tab. */
find("[role=tablist]").addEventListener("keydown", (event) => {
  const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!by) return;
  const next = links[(links.indexOf(document.activeElement) + by + links.length) % links.length];
  next.focus();
  next.click();
});

async function start() {
  try {
    known = await get("/api/models");
    if (!known.models.length) throw new Error("The server has no model. Give it one: scorefield serve mnist-small, or the folder of a run.");
  } catch (error) {
    known = null;
    if (!error.status && error.name === "ApiError") return;
    find("#gone").textContent = error.message;
    find("#gone").hidden = false;
    return;
  }
  route();
}

addEventListener("hashchange", route);
document.addEventListener("server-back", () => { if (!known) start(); });
find(".skip").addEventListener("click", (event) => { event.preventDefault(); find("#main").focus(); });
route();
start();
