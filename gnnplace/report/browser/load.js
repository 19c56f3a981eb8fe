// Unpacks what the page carries, runs the libraries, and draws. Everything hangs below `report`.
"use strict";
const report = {};

report.unpack = async id => {
  const packed = atob(document.getElementById(id).textContent);
  const bytes = new Uint8Array(packed.length);
  for (let place = 0; place < packed.length; place++) bytes[place] = packed.charCodeAt(place);
  return new Response(new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
};

report.colour = name => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

report.seconds = value => {
  if (value === null || !isFinite(value)) return "–";
  for (const [unit, scale] of [["s", 1], ["ms", 1e-3], ["us", 1e-6]])
    if (Math.abs(value) >= scale) {
      const scaled = value / scale;
      return `${scaled.toFixed(scaled < 10 ? 2 : scaled < 100 ? 1 : 0)} ${unit}`;
    }
  return `${(value * 1e9).toFixed(0)} ns`;
};

report.bytes = count => {
  for (const [unit, scale] of [["TiB", 2 ** 40], ["GiB", 2 ** 30], ["MiB", 2 ** 20], ["KiB", 2 ** 10]])
    if (count >= scale) return `${(count / scale).toFixed(1)} ${unit}`;
  return `${count} B`;
};

report.short = (text, most = 80) => text.length <= most ? text : `${text.slice(0, most / 2)}…${text.slice(-most / 2)}`;

// Plotly reads tags in texts.
report.inert = text => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

// What is known of an op, a line of text each; the first is its name.
report.aboutOp = op => {
  const {ops, devices} = report.run, lines = [report.short(ops.name[op]), `type: ${report.short(ops.type[op])}`];
  if (ops.shapes?.[op]) lines.push(`shapes: ${report.short(ops.shapes[op], 120)}`);
  const name = devices[ops.device[op]].name;
  lines.push(`device: ${report.short(name)}`);
  lines.push(`from ${report.seconds(ops.start_s[op])} to ${report.seconds(ops.end_s[op])} (${report.seconds(ops.end_s[op] - ops.start_s[op])})`);
  if (ops.cost_s) lines.push("cost: " + [...new Set(devices.map((device, index) =>
    `${report.seconds(ops.cost_s[op][index])} on ${report.short(device.kind, 30)}`))].slice(0, 6).join(", "));
  if (ops.memory_bytes[op]) lines.push(`weights: ${report.bytes(ops.memory_bytes[op])}`);
  if (ops.held) lines.push(ops.held[op] ? `why it may not move: ${report.short(ops.held[op], 300)}` : "may move to any device");
  return lines;
};

report.aboutTransfer = index => {
  const row = report.run.transfers[index], name = device => report.short(report.run.devices[device].name);
  return [
    report.short(row.tensor), `${name(row.source)} → ${name(row.target)}`,
    `${report.bytes(row.bytes)} from ${report.seconds(row.start_s)} to ${report.seconds(row.end_s)} (${report.seconds(row.end_s - row.start_s)})`,
  ];
};

report.SETTINGS = {
  displaylogo: false, responsive: true,
  modeBarButtonsToRemove: ["sendChartToCloud", "select2d", "lasso2d", "autoScale2d", "toImage"],
};

// On touch screens a drag scrolls the page instead of zooming a chart.
report.drag = () => matchMedia("(pointer: coarse)").matches ? false : "zoom";

report.draw = async () => {
  const libraries = ["plotly-basic", "cytoscape", "dagre"].map(report.unpack), data = await report.unpack("data");
  for (const library of libraries) {
    const script = document.createElement("script");
    script.textContent = await library;
    document.head.append(script);
  }
  Object.assign(report, JSON.parse(data));
  report.drawSchedule();
  for (const [name, figure] of Object.entries(report.figures))
    await Plotly.newPlot(`${name}-chart`, figure.data, {...figure.layout, dragmode: report.drag()}, report.SETTINGS);
  report.drawGraph();
  report.offerPictures();
  report.drawn_ms = performance.now();
  document.documentElement.dataset.drawn = "yes";
};

addEventListener("DOMContentLoaded", () => report.draw().catch(problem => {
  console.error(problem);
  document.documentElement.dataset.drawn = "no";
  for (const chart of document.querySelectorAll(".chart"))
    chart.textContent = "This browser cannot draw it; a current version of Chromium, Firefox or Safari can.";
}));
