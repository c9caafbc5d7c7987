// The frame around the pages: which one is open, who is looking, whether the director answers,
// light or dark. Each page is a module with `title` and `open(root, context, parts)`, which gives a
// function that ends it.

import { get, token } from "./api.js";
import * as config from "./config.js";
import { h, say } from "./dom.js";
import * as elephants from "./elephants.js";
import * as events from "./events.js";
import { Feed, Link } from "./feed.js";
import { clock } from "./format.js";
import { Hour } from "./hour.js";
import * as overview from "./overview.js";
import { follow, here } from "./router.js";
import * as service from "./service.js";
import * as services from "./services.js";
import { signIn } from "./signin.js";
import * as workers from "./workers.js";

const PAGES = [
  ["", "Overview", overview],
  ["services", "Services", services],
  ["workers", "Workers", workers],
  ["elephants", "Elephants", elephants],
  ["events", "Events", events],
  ["config", "Configuration", config],
];
const RANKS = ["read", "operate", "admin"];
const THEMES = ["auto", "light", "dark"];

const part = (id) => document.getElementById(id);
const link = new Link(linkChanged);
const feeds = {
  status: new Feed(link, "/v1/status", 2000),
  services: new Feed(link, "/v1/services", 2000),
  health: new Feed(link, "/v1/health", 3000),
  drops: new Feed(link, "/v1/drops", 3000),
  ports: new Feed(link, "/v1/ports", 3000),
  ha: new Feed(link, "/v1/ha", 3000),
  stages: new Feed(link, "/v1/stages", 3000),
  elephants: new Feed(link, "/v1/elephants", 2000),
  events: new Feed(link, "/v1/events", 5000),
  config: new Feed(link, "/v1/config", 10_000),
  history: new Feed(link, "/v1/config/history?limit=100", 10_000),
};
const me = { role: "read", name: "" };
const whole = new Hour(link);
const context = {
  feeds,
  link,
  may: (role) => RANKS.indexOf(me.role) >= RANKS.indexOf(role),
  hour: (name) => (name === undefined ? whole : new Hour(link, name, 5000)),
};
let close = null;
let shown = false;

function pageOf({ page, rest }) {
  if (page === "services" && rest.length > 0) return service;
  return PAGES.find(([name]) => name === page)?.[2];
}

/** Shows the page that the address names. */
function show(place) {
  close?.();
  close = null;
  const view = part("view");
  view.replaceChildren();
  const page = pageOf(place);
  for (const item of part("pages").querySelectorAll("a")) {
    if (item.dataset.page === place.page) item.setAttribute("aria-current", "page");
    else item.removeAttribute("aria-current");
  }
  openMenu(false);
  if (!page) {
    view.append(
      h("h1", { tabindex: "-1" }, "No such page"),
      h("p", {}, h("a", { href: "#/" }, "To the overview")),
    );
  } else close = page.open(view, context, place.rest);
  document.title = `${page ? page.title(place.rest) : "No such page"} – Sluice`;
  // At the first page the skip link stays the first stop; afterwards the new page is where one is.
  if (shown) view.querySelector("h1")?.focus({ preventScroll: true });
  shown = true;
  scrollTo(0, 0);
}

function frame() {
  part("pages").append(
    ...PAGES.map(([name, label]) =>
      h("li", {}, h("a", { href: `#/${name}`, "data-page": name }, label)),
    ),
  );
  part("menu").addEventListener("click", () =>
    openMenu(part("menu").getAttribute("aria-expanded") !== "true"),
  );
  addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || part("menu").getAttribute("aria-expanded") !== "true") return;
    openMenu(false);
    part("menu").focus();
  });
  part("skip").addEventListener("click", (event) => {
    event.preventDefault();
    part("main").focus();
  });
}

function openMenu(open) {
  part("menu").setAttribute("aria-expanded", String(open));
  part("side").classList.toggle("open", open);
}

/** Who is looking, and the switch between light and dark. */
function showWho() {
  const theme = h("button", { type: "button", class: "plain", onclick: nextTheme });
  const names = { read: "may look", operate: "may operate", admin: "may do everything" };
  const who = me.name ? `${me.name}: ${names[me.role]}` : `You ${names[me.role]}`;
  const out = h("button", { type: "button", class: "plain", onclick: signOut }, "Sign out");
  part("who").replaceChildren(h("p", {}, who), theme, ...(token.get() ? [out] : []));
  sayTheme(theme);
}

const themeNow = () => document.documentElement.dataset.theme || "auto";

function sayTheme(button) {
  const names = { auto: "as the system", light: "light", dark: "dark" };
  say(button, `Colours: ${names[themeNow()]}`);
}

function nextTheme(event) {
  const next = THEMES[(THEMES.indexOf(themeNow()) + 1) % THEMES.length];
  if (next === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = next;
  try {
    localStorage.setItem("sluice-theme", next);
  } catch {
    // It holds until the page is loaded again.
  }
  sayTheme(event.currentTarget);
}

function signOut() {
  token.forget();
  location.reload();
}

/** The director was lost or found again, or does not take the token any more. */
function linkChanged(state, problem) {
  if (problem?.status === 401) return askToken();
  const banner = part("banner");
  banner.hidden = state.reached;
  document.body.classList.toggle("stale", !state.reached);
  const last = state.lastMs ? ` What you see is from ${clock(state.lastMs)}.` : "";
  const detail = problem?.message || "it does not answer";
  say(banner, state.reached ? "" : `Not connected: ${detail}.${last} Trying again by itself.`);
  say(part("link"), state.reached ? "● connected" : "✕ not connected");
}

function askToken() {
  if (part("view").querySelector(".signin")) return;
  close?.();
  close = null;
  token.forget();
  document.title = "Sign in – Sluice";
  document.body.classList.add("outside");
  signIn(part("view"), () => location.reload());
}

/** What the token may do; without one, over the control socket, everything. */
async function whoAmI() {
  for (;;) {
    try {
      const { role, name } = await get("/v1/whoami");
      return Object.assign(me, { role, name: name || "" });
    } catch (problem) {
      if (problem.status === 401) throw problem;
      link.lost(problem);
    }
    await new Promise((resolve) => setTimeout(resolve, 2000));
  }
}

async function start() {
  frame();
  try {
    await whoAmI();
  } catch {
    return askToken();
  }
  link.found();
  say(part("link"), "● connected");
  showWho();
  follow((place) => show(place || here()));
}

start();
