// Task managers: Spark's executors, with their slots and memory.

import * as api from "./api.js";
import { bytes, clock, exact } from "./format.js";
import { h } from "./vdom.js";
import { card, cut, empty, meter, table, tile } from "./widgets.js";

export const taskManagersPage = {
  section: "taskmanagers",
  title: () => "Task managers",

  async load(_, signal) {
    const answer = await api.get("taskmanagers", signal);
    return answer.taskmanagers || [];
  },

  render(_, managers) {
    const sum = (field) => managers.reduce((total, manager) => total + (field(manager) || 0), 0);
    const slots = sum((manager) => manager.slotsNumber);
    const free = sum((manager) => manager.freeSlots);
    return [
      h("div", { class: "page-head", key: "head" }, h("h1", null, "Task managers")),
      h(
        "div",
        { class: "tiles", key: "tiles" },
        tile("Task managers", exact(managers.length), "Spark executors"),
        tile(
          "Slots in use",
          [`${slots - free}`, h("small", null, ` of ${slots}`)],
          meter(slots ? (slots - free) / slots : 0, `${slots - free} of ${slots} slots in use`),
        ),
        tile("Cores", exact(sum((manager) => manager.hardware?.cpuCores)), "all together"),
        tile("Memory", bytes(sum((manager) => manager.hardware?.physicalMemory)), "all together"),
      ),
      card(
        "All",
        managers.length
          ? list(managers)
          : empty(
              "No task managers.",
              "Executors come with the first job, or with a cluster of your own.",
              "millpond start-cluster",
            ),
      ),
    ];
  },
};

function list(managers) {
  const columns = [
    { label: "Id" },
    { label: "Address" },
    { label: "Last heard", class: "number", width: "116px" },
    { label: "Slots", width: "180px" },
    { label: "Free", class: "number", width: "76px" },
    { label: "Cores", class: "number", width: "76px" },
    { label: "Memory", class: "number", width: "110px" },
    { label: "Free memory", class: "number", width: "120px" },
  ];
  const now = Date.now();
  const rows = managers.map((manager) => {
    const used = manager.slotsNumber - manager.freeSlots;
    const share = manager.slotsNumber ? used / manager.slotsNumber : 0;
    // Flink's field holds the time of the last heartbeat, whatever its name says
    const heard = manager.timeSinceLastHeartbeat;
    return {
      key: manager.id,
      cells: [
        cut(manager.id, "mono"),
        cut(manager.path, "mono"),
        heard > 0 ? `${clock(Math.max(heard > 1e11 ? now - heard : heard, 0))} ago` : null,
        h(
          "span",
          { class: "with-meter" },
          meter(share, `${used} of ${manager.slotsNumber} in use`),
          `${used}/${manager.slotsNumber}`,
        ),
        exact(manager.freeSlots),
        exact(manager.hardware?.cpuCores),
        bytes(manager.hardware?.physicalMemory),
        bytes(manager.hardware?.freeMemory),
      ],
    };
  });
  return table(columns, rows, "Task managers");
}
