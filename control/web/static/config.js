// The desired state: which epoch is in force, who made which, what is overridden, and what differs
// from the file.

import { get, post } from "./api.js";
import { h, say } from "./dom.js";
import { count, moment } from "./format.js";
import { badge, facts, linkColumn, problemBox, section } from "./parts.js";
import { to } from "./router.js";
import { Table } from "./table.js";

export const title = () => "Configuration";

const KINDS = {
  service: "Service",
  pool: "Pool",
  check: "Health check",
  snat: "Source NAT",
  section: "Section",
};

/** Shows the page in `root`; gives a function that ends it. */
export function open(root, { feeds, may }) {
  const view = { facts: h("div"), overrides: overridesTable(), history: historyTable() };
  view.objects = objectsTable();
  view.file = h("div");
  const compare = h(
    "button",
    { type: "button", onclick: () => compareFile(view) },
    "Compare with the file",
  );
  const differs = may("operate") ? [compare] : [];
  root.append(
    h("div", { class: "head" }, h("h1", { tabindex: "-1" }, "Configuration"), ...differs),
    section("In force", view.facts, view.file),
    section("Overrides of real servers", view.overrides.root),
    section("History", view.history.root),
    section("Objects", view.objects.root),
  );
  const show = () => update(view, feeds);
  const stops = [feeds.config.watch(show), feeds.history.watch(show), feeds.status.watch(show)];
  return () => stops.forEach((stop) => stop());
}

function update(view, { config, history, status }) {
  if (config.now) showConfig(view, config.now.data, history.now?.data, status.now?.data);
  if (history.now) view.history.update(history.now.data.epochs);
}

function showConfig(view, config, history, status) {
  const last = history?.epochs.find((epoch) => epoch.epoch === config.epoch);
  const reload = status?.last_reload;
  const told = facts([
    ["Epoch", String(config.epoch)],
    ["Made by", last && author(last.author)],
    ["At", last && moment(last.at_unix_ms)],
    ["File", status?.config],
    [
      "Beside the file",
      config.differs_from_file
        ? badge("warn", "what runs is not what it says")
        : badge("good", "what runs is what it says"),
    ],
    ["Changes survive a restart", config.durable ? badge("good", "yes") : badge("warn", "no")],
    [
      "Last reload",
      reload &&
        (reload.ok
          ? badge("good", `accepted ${moment(reload.at_unix_s * 1000)}`)
          : badge("bad", `refused ${moment(reload.at_unix_s * 1000)}`)),
    ],
    ["Why", reload && !reload.ok ? reload.error : null],
  ]);
  if (view.facts.textContent !== told.textContent) view.facts.replaceChildren(told);
  const overrides = config.objects.flatMap(({ name, overrides: over = [] }) =>
    over.map((it) => ({ service: name, ...it })),
  );
  view.overrides.update(overrides);
  view.objects.update(config.objects);
}

/** Who made a change: the source, and the name when there is one. */
function author({ source, name }) {
  const sources = { file: "the file", api: "the API" };
  return name ? `${name} (${sources[source] || source})` : sources[source] || String(source);
}

async function compareFile(view) {
  view.file.replaceChildren(h("p", { class: "about" }, "Reading the file…"));
  try {
    const { changes, summary } = await post("/v1/config/reload?dry_run=true");
    const none = "A reload would change nothing: what runs is what the file says.";
    const said = changes.length === 0 ? none : `A reload would: ${summary}`;
    view.file.replaceChildren(
      h("p", { role: "status" }, badge(changes.length === 0 ? "good" : "warn", said)),
      steps(changes),
    );
  } catch (problem) {
    view.file.replaceChildren(problemBox(problem));
  }
}

/** The steps of a change, before and after. */
function steps(changes) {
  return h(
    "ol",
    { class: "steps" },
    changes.map((change) =>
      h("li", {}, h("pre", { tabindex: "0" }, JSON.stringify(change, null, 2))),
    ),
  );
}

function overridesTable() {
  const said = ({ state, weight }) =>
    [state && `state ${state}`, Number.isFinite(weight) && `weight ${weight}`]
      .filter(Boolean)
      .join(", ");
  return new Table({
    caption: "Overrides of real servers",
    key: (row) => `${row.service} ${row.real}`,
    empty: "Every real server is as configured.",
    columns: [
      { label: "Real server", value: (row) => row.real, text: (row) => row.real },
      linkColumn(
        "Service",
        (row) => row.service,
        (row) => to("services", row.service),
      ),
      { label: "Override", value: said, text: said },
    ],
  });
}

function historyTable() {
  return new Table({
    caption: "Epochs, the newest first",
    key: (row) => row.epoch,
    empty: "Nothing was changed yet.",
    columns: [
      { label: "Epoch", value: (row) => row.epoch, text: (row) => String(row.epoch) },
      { label: "When", value: (row) => row.at_unix_ms, text: (row) => moment(row.at_unix_ms) },
      { label: "By", value: (row) => author(row.author), text: (row) => author(row.author) },
      { label: "What", plain: true, text: (row) => row.summary },
      {
        label: "Steps",
        number: true,
        value: (row) => row.changes,
        control: (row) => stepsOf(row),
        refresh: (cell, row) => say(cell.querySelector("summary"), count(row.changes)),
      },
    ],
  });
}

/** The steps of an epoch, asked for when somebody wants to see them. */
function stepsOf(row) {
  const shown = h("div");
  const load = async (event) => {
    if (!event.currentTarget.open || shown.hasChildNodes()) return;
    try {
      shown.append(steps((await get(`/v1/config/history/${row().epoch}`)).changes));
    } catch (problem) {
      shown.append(problemBox(problem));
    }
  };
  return h("details", { class: "reason", ontoggle: load }, h("summary", {}), shown);
}

function objectsTable() {
  const kind = (row) => KINDS[row.kind] || row.kind;
  return new Table({
    caption: "Objects and their owners",
    key: (row) => `${row.kind} ${row.name}`,
    columns: [
      { label: "Name", value: (row) => row.name, text: (row) => row.name },
      { label: "Kind", value: kind, text: kind },
      { label: "Owner", value: (row) => author(row.owner), text: (row) => author(row.owner) },
    ],
  });
}
