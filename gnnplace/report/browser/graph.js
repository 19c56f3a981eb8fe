// The op graph: groups in layers, laid out before; a group opens into its ops, which dagre lays out.
"use strict";
{
  const LAYER = 66, LANE = 30, WIDE = 50, HIGH = 20, MARGIN = 16, MOST_LAID_OUT = 400, PER_COLUMN = 20, MOST_OPEN = 3000;
  const MOST_FOUND = 20, TRANSFER = "#e45756", opened = new Map(); // group -> {x, y: of its ops; width, height}
  let cy, members, placed, found = new Set();

  const tight = text => text.length <= 10 ? text : `${text.slice(0, 9)}…`;
  const isOp = group => members[group].length === 1;
  const about = node => node.data("op") === undefined ? aboutGroup(node.data("group")) : report.aboutOp(node.data("op"));

  const aboutGroup = group => {
    const {ops, devices} = report.run, all = members[group], counts = new Map();
    for (const op of all) counts.set(ops.type[op], (counts.get(ops.type[op]) ?? 0) + 1);
    const types = [...counts].sort((one, other) => other[1] - one[1]).slice(0, 4).map(([type, count]) => `${count} ${report.short(type, 30)}`);
    return [
      `${all.length.toLocaleString("en")} ops, the first: ${report.short(ops.name[all[0]])}`, types.join(", "),
      `device: ${[...new Set(all.map(op => report.short(devices[ops.device[op]].name, 30)))].join(", ")}`,
      `computing: ${report.seconds(all.reduce((sum, op) => sum + ops.end_s[op] - ops.start_s[op], 0))}`,
      "click to open or close",
    ];
  };

  // Ops of one group by dagre; of very many, in columns by start.
  const inner = group => {
    const {ops, edges} = report.run, all = [...members[group]].sort((one, other) => ops.start_s[one] - ops.start_s[other]);
    const x = new Map(), y = new Map();
    if (all.length > MOST_LAID_OUT)
      all.forEach((op, place) => { x.set(op, Math.floor(place / PER_COLUMN) * LAYER); y.set(op, place % PER_COLUMN * LANE); });
    else {
      const inside = new dagre.graphlib.Graph();
      inside.setGraph({rankdir: "LR", nodesep: LANE - HIGH, ranksep: LAYER - WIDE}).setDefaultEdgeLabel(() => ({}));
      for (const op of all) inside.setNode(String(op), {width: WIDE, height: HIGH});
      for (const [tail, head] of edges)
        if (report.graph.of_op[tail] === group && report.graph.of_op[head] === group) inside.setEdge(String(tail), String(head));
      dagre.layout(inside);
      for (const op of all) { x.set(op, inside.node(String(op)).x); y.set(op, inside.node(String(op)).y); }
    }
    const left = Math.min(...x.values()), top = Math.min(...y.values());
    for (const op of all) { x.set(op, x.get(op) - left); y.set(op, y.get(op) - top); }
    return {x, y, width: Math.max(...x.values()) + 2 * MARGIN, height: Math.max(...y.values()) + 2 * MARGIN};
  };

  // In which row of the folded graph a height is.
  const foldOf = y => Math.max(0, report.graph.tops.findLastIndex(top => top <= y + 1e-3));

  // Layers become as wide as the widest group that is opened in them, rows of layers as high as the highest.
  const makeRoom = () => {
    const {x, y} = report.graph, wide = new Map(), high = new Map();
    for (const [group, size] of opened) {
      const fold = foldOf(y[group]), key = `${fold} ${x[group]}`;
      wide.set(x[group], Math.max(wide.get(x[group]) ?? 0, size.width));
      high.set(key, {fold, height: (high.get(key)?.height ?? 0) + size.height});
    }
    const grown = report.graph.tops.map(() => 0);
    for (const {fold, height} of high.values()) grown[fold] = Math.max(grown[fold], height);
    const {tops} = report.graph, columns = [...wide];
    const above = new Map();
    for (const [group, size] of opened) {
      const key = `${foldOf(y[group])} ${x[group]}`;
      above.set(key, [...(above.get(key) ?? []), [y[group], size.height]]);
    }
    placed = ([column, row]) => {
      const fold = tops.length ? foldOf(row) : 0;
      const right = columns.reduce((sum, [other, width]) => sum + (other < column ? width : 0), 0);
      const before = grown.slice(0, fold).reduce((sum, height) => sum + height, 0);
      const below = (above.get(`${fold} ${column}`) ?? []).reduce((sum, [other, height]) => sum + (other < row ? height : 0), 0);
      return {x: column * LAYER + right, y: row * LANE + before + below};
    };
  };

  // How Cytoscape wants the bends of an edge: how far along the straight line, and how far from it.
  const bends = (from, to, points) => {
    const [dx, dy] = [to.x - from.x, to.y - from.y], square = dx * dx + dy * dy || 1, length = Math.sqrt(square);
    return {
      weights: points.map(point => ((point.x - from.x) * dx + (point.y - from.y) * dy) / square),
      distances: points.map(point => ((point.y - from.y) * dx - (point.x - from.x) * dy) / length),
    };
  };

  const elements = () => {
    const {run, graph, colours} = report, {ops} = run, nodes = [], lines = new Map();
    makeRoom();
    members.forEach((all, group) => {
      const at = placed([graph.x[group], graph.y[group]]), data = {id: `n${group}`, group, colour: colours[ops.device[all[0]]]};
      if (isOp(group)) data.op = all[0];
      data.label = isOp(group) ? tight(ops.type[all[0]]) : `${all.length} ops`;
      const classes = (isOp(group) ? "op" : opened.has(group) ? "opened" : "group") + (all.some(op => found.has(op)) ? " found" : "");
      nodes.push({group: "nodes", data, position: at, classes});
      if (opened.has(group))
        for (const op of all) nodes.push({
          group: "nodes", classes: found.has(op) ? "op found" : "op",
          data: {id: `o${op}`, parent: `n${group}`, op, colour: data.colour, label: tight(ops.type[op])},
          position: {x: at.x + MARGIN + opened.get(group).x.get(op), y: at.y + MARGIN + opened.get(group).y.get(op)},
        });
    });
    for (const [tail, head, lane] of graph.edges) {
      if (opened.has(tail) || opened.has(head)) continue;
      const data = {id: `n${tail} n${head}`, source: `n${tail}`, target: `n${head}`};
      const crosses = ops.device[members[tail][0]] !== ops.device[members[head][0]];
      const points = lane.map(placed), [from, to] = [tail, head].map(group => placed([graph.x[group], graph.y[group]]));
      if (points.length) Object.assign(data, bends(from, to, points));
      lines.set(data.id, {group: "edges", data, classes: `${crosses ? "crosses" : ""} ${points.length ? "bent" : ""}`});
    }
    if (opened.size) for (const [tail, head] of run.edges) {
      const [from, to] = [graph.of_op[tail], graph.of_op[head]];
      if (!opened.has(from) && !opened.has(to)) continue;
      const source = opened.has(from) ? `o${tail}` : `n${from}`, target = opened.has(to) ? `o${head}` : `n${to}`;
      if (source === target) continue;
      const id = `${source} ${target}`, crosses = ops.device[tail] !== ops.device[head];
      lines.set(id, {group: "edges", data: {id, source, target}, classes: crosses ? "crosses" : ""});
    }
    return [...nodes, ...lines.values()];
  };

  const style = () => [
    {selector: "node", style: {
      width: WIDE, height: HIGH, shape: "rectangle", label: "data(label)", "background-color": "data(colour)", color: "#ffffff",
      "font-size": 9, "font-family": "system-ui, sans-serif", "text-valign": "center", "text-halign": "center", "min-zoomed-font-size": 7,
    }},
    {selector: ".group", style: {shape: "round-rectangle", "border-width": 2, "border-color": report.colour("text"), "border-opacity": 0.55}},
    {selector: ".opened", style: {
      shape: "round-rectangle", "background-opacity": 0.12, "border-width": 1, "border-color": "data(colour)", padding: "8px",
      "text-valign": "top", color: report.colour("text"),
    }},
    {selector: "edge", style: {
      width: 1, "line-color": "#8b8f98", opacity: 0.55, "curve-style": "straight", "target-arrow-shape": "triangle",
      "target-arrow-color": "#8b8f98", "arrow-scale": 0.6,
    }},
    {selector: ".bent", style: {
      "curve-style": "segments", "segment-weights": "data(weights)", "segment-distances": "data(distances)", "edge-distances": "node-position",
    }},
    {selector: ".crosses", style: {"line-color": TRANSFER, "target-arrow-color": TRANSFER, opacity: 0.85}},
    {selector: ".found, :selected", style: {"border-width": 4, "border-color": "#d6248f", "border-opacity": 1}},
  ];

  const redraw = () => cy.batch(() => { cy.elements().remove(); cy.add(elements()); });

  const toggle = (group, isOpen = !opened.has(group)) => {
    if (isOp(group)) return;
    if (isOpen) opened.set(group, inner(group)); else opened.delete(group);
  };

  // Opens what holds an op, and goes there.
  const show = op => {
    const group = report.graph.of_op[op];
    toggle(group, true);
    redraw();
    const node = cy.getElementById(isOp(group) ? `n${group}` : `o${op}`);
    cy.elements().unselect();
    node.select();
    cy.zoom(1.2);
    cy.center(node);
    tell(report.aboutOp(op));
  };

  const filled = (element, lines) => {
    const [name, ...rest] = lines.map(line => Object.assign(document.createElement("div"), {textContent: line}));
    name.style.fontWeight = 600;
    element.replaceChildren(name, ...rest);
    element.hidden = false;
  };
  const tell = lines => filled(document.getElementById("graph-details"), lines);

  const search = text => {
    const {name, type} = report.run.ops, wanted = text.trim().toLowerCase(), hits = [];
    if (wanted) name.forEach((one, op) => { if (one.toLowerCase().includes(wanted) || type[op].toLowerCase() === wanted) hits.push(op); });
    found = new Set(hits);
    const items = hits.slice(0, MOST_FOUND).map(op => {
      const button = Object.assign(document.createElement("button"), {textContent: report.short(`${name[op]} (${type[op]})`)});
      button.addEventListener("click", () => show(op));
      return button;
    });
    const count = document.createElement("span");
    count.textContent = !wanted ? "" : hits.length > MOST_FOUND ? `${hits.length.toLocaleString("en")} ops, the first ${MOST_FOUND}:` : `${hits.length} ops`;
    document.getElementById("graph-found").replaceChildren(count, ...items);
    redraw();
  };

  report.drawGraph = () => {
    const {graph, run} = report, box = document.getElementById("graph-chart"), tip = document.getElementById("graph-tip");
    members = graph.x.map(() => []);
    graph.of_op.forEach((group, op) => members[group].push(op));
    cy = report.cy = cytoscape({
      container: box, elements: elements(), style: style(), layout: {name: "preset"}, minZoom: 0.02, maxZoom: 4,
      hideEdgesOnViewport: run.ops.name.length > MOST_OPEN, userZoomingEnabled: false, boxSelectionEnabled: false, autoungrabify: true,
    });
    cy.fit(undefined, 20);
    cy.on("tap", "node", event => {
      const node = event.target, group = node.data("group");
      if (group !== undefined && !isOp(group)) { toggle(group); redraw(); tip.hidden = true; }
      else tell(report.aboutOp(node.data("op")));
    });
    cy.on("mouseover", "node", event => {
      const {x, y} = event.renderedPosition;
      filled(tip, about(event.target));
      tip.style.left = `${Math.max(0, Math.min(x + 12, box.clientWidth - tip.offsetWidth - 4))}px`;
      tip.style.top = `${Math.max(0, Math.min(y + 12, box.clientHeight - tip.offsetHeight - 4))}px`;
    });
    cy.on("mouseout viewport", () => { tip.hidden = true; });
    // The wheel scrolls the page until the graph is touched.
    box.addEventListener("pointerdown", () => cy.userZoomingEnabled(true));
    box.addEventListener("pointerleave", () => cy.userZoomingEnabled(false));
    let waiting;
    document.getElementById("graph-search").addEventListener("input", event => {
      clearTimeout(waiting);
      waiting = setTimeout(() => search(event.target.value), 150);
    });
    const groups = members.map((_, group) => group).filter(group => !isOp(group));
    const zoom = factor => cy.zoom({level: cy.zoom() * factor, renderedPosition: {x: box.clientWidth / 2, y: box.clientHeight / 2}});
    const actions = {
      "see all": () => cy.fit(undefined, 20), "+": () => zoom(1.5), "−": () => zoom(1 / 1.5),
      "open all": () => { groups.forEach(group => toggle(group, true)); redraw(); cy.fit(undefined, 20); },
      "close all": () => { opened.clear(); redraw(); cy.fit(undefined, 20); },
    };
    for (const [name, act] of Object.entries(actions)) {
      const isLarge = name === "open all" && run.ops.name.length > MOST_OPEN;
      if (name.endsWith(" all") && name !== "see all" && !groups.length || isLarge) continue;
      const button = Object.assign(document.createElement("button"), {textContent: name});
      button.addEventListener("click", act);
      document.getElementById("graph-actions").append(button);
    }
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => cy.style(style()));
  };

  const tag = (name, attributes, text = "") => {
    const written = Object.entries(attributes).map(([key, value]) => ` ${key}="${typeof value === "number" ? +value.toFixed(1) : value}"`);
    return `<${name}${written.join("")}>${report.inert(text)}</${name}>`;
  };

  const svg = () => {
    const box = cy.elements().boundingBox(), parts = [];
    for (const edge of cy.edges()) {
      const points = [edge.sourceEndpoint(), ...(edge.segmentPoints() ?? []), edge.targetEndpoint()];
      parts.push(tag("polyline", {
        points: points.map(({x, y}) => `${x.toFixed(1)},${y.toFixed(1)}`).join(" "), fill: "none", "stroke-width": 1,
        stroke: edge.hasClass("crosses") ? TRANSFER : "#8b8f98",
      }));
    }
    for (const node of cy.nodes()) {
      const {x, y} = node.position(), isOpen = node.hasClass("opened"), [width, height] = [node.outerWidth(), node.outerHeight()];
      const shape = tag("rect", {
        x: x - width / 2, y: y - height / 2, width, height, rx: node.hasClass("op") ? 0 : 5, fill: node.data("colour"), "fill-opacity": isOpen ? 0.12 : 1,
      });
      const label = tag("text", {x, y: isOpen ? y - height / 2 - 3 : y + 3, fill: isOpen ? "#1c1f26" : "#ffffff", "text-anchor": "middle"}, node.data("label"));
      if (isOpen) parts.unshift(shape, label); else parts.push(shape, label);
    }
    const attributes = `viewBox="${box.x1 - 10} ${box.y1 - 10} ${box.w + 20} ${box.h + 20}" font-family="Helvetica, Arial, sans-serif" font-size="9"`;
    return `<svg xmlns="http://www.w3.org/2000/svg" ${attributes}>${parts.join("")}</svg>`;
  };

  // A data URL of the whole graph as it is opened.
  report.graphPicture = format => format === "svg"
    ? `data:image/svg+xml,${encodeURIComponent(svg())}`
    : cy.png({full: true, bg: "#ffffff", maxWidth: 6000, maxHeight: 6000, output: "base64uri"});
}
