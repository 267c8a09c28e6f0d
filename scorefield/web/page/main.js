// The page: shows the tab that the address names, and gives each tab the models and limits.

import { get, gone } from "./api.js";
import { showGallery } from "./gallery.js";
import { all, find } from "./ui.js";

// Each tab is loaded when it is first shown.
const MODULES = {
  sample: () => import("./sample.js"),
  restore: () => import("./restore.js"),
  interpolate: () => import("./interpolate.js"),
  understand: () => import("./understand.js"),
  monitor: () => import("./monitor.js"),
};
const FORMER = { inpaint: "restore" }; // names in old links
const IMAGES = ["sample", "restore", "interpolate"]; // tabs whose results are kept
const tabs = {};
const links = all("[role=tab]");
let known; // models and limits

/** The part of the address after # names the tab and its settings: #/sample?seed=1. */
async function route() {
  const [, named = "sample", query = ""] = /^#\/?(\w+)(?:\?(.*))?$/.exec(location.hash) ?? [];
  const name = FORMER[named] ?? named, shown = Object.hasOwn(MODULES, name) ? name : "sample";
  for (const link of links) {
    const own = link.id === `tab-${shown}`;
    link.setAttribute("aria-selected", String(own));
    link.tabIndex = own ? 0 : -1;
    find(`#${link.getAttribute("aria-controls")}`).hidden = !own;
  }
  showGallery(IMAGES.includes(shown));
  document.title = `${find(`#tab-${shown}`).textContent} · scorefield`;
  const module = MODULES[shown]().catch(gone); // the server may be gone: this is called again when it is back
  if (!known) return; // start() calls this again
  const { makeTab } = (await module) ?? {};
  if (!makeTab) return;
  if (find(`#${shown}`).hidden) return; // the user has chosen another tab meanwhile
  tabs[shown] ??= makeTab(find(`#${shown}`), known);
  tabs[shown].open(new URLSearchParams(query));
}

/** Arrow keys move from tab to tab. */
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
    if (!known.models.length) throw new Error("The server has no model. Start it with one: scorefield serve MODEL, or with the folder of a run.");
  } catch (error) {
    known = null;
    if (!error.status && error.name === "ApiError") return;
    find("#gone").textContent = error.message;
    find("#gone").hidden = false;
    return;
  }
  route();
}

/** Loads the list of models again: runs write new checkpoints while the page is open. */
async function renew() {
  const now = known && (await get("/api/models").catch(() => null));
  const versions = ({ models }) => JSON.stringify(models.map(({ name, trained }) => [name, trained]));
  if (!now?.models.length || versions(now) === versions(known)) return;
  known.models.splice(0, Infinity, ...now.models); // in place: all tabs share this list
  document.dispatchEvent(new Event("models"));
}

addEventListener("hashchange", () => { route(); renew(); });
document.addEventListener("visibilitychange", () => { if (!document.hidden) renew(); });
// the browser would open a file that is dropped elsewhere instead of this page
for (const kind of ["dragover", "drop"]) addEventListener(kind, (event) => event.preventDefault());
document.addEventListener("server-back", () => {
  if (!known) start();
  else if (tabs[find("[role=tab][aria-selected=true]").getAttribute("aria-controls")]) renew();
  else route(); // its module could not be loaded
});
find(".skip").addEventListener("click", (event) => { event.preventDefault(); find("#main").focus(); });
route();
start();
