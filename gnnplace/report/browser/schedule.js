// The schedule as a Gantt chart: all bars of what is in view while they are few, else stretches of those too short to see.
"use strict";
{
  const MOST_BARS = 1500, RESOLUTION = 600, ROW = 26, CRITICAL = "#d6248f", SHADES = [1, 0.72];
  let rows, unit, critical;

  const byStart = (one, other) => one.start - other.start || one.end - other.end;

  // The rows of each device: its own one, or where devices share resources those of its resources.
  const rowsOfDevices = devices => {
    const used = devices.map(device => device.resources ?? [device.name]), names = [...new Set(used.flat())];
    if (names.length === used.flat().length) return {labels: devices.map(device => device.name), places: devices.map((_, index) => [index])};
    return {labels: names, places: used.map(resources => resources.map(resource => names.indexOf(resource)))};
  };

  // Devices or their resources, then the channels that carried something. An op on several resources has a bar in each row.
  const allRows = () => {
    const {run, colours} = report, {ops, devices, transfers} = run, {name} = ops, {labels, places} = rowsOfDevices(devices);
    const found = labels.map(label => ({label: report.short(label, 24), pattern: "", bars: []}));
    for (let op = 0; op < name.length; op++)
      for (const place of places[ops.device[op]])
        found[place].bars.push({start: ops.start_s[op], end: ops.end_s[op], kind: "op", index: op, colour: colours[ops.device[op]]});
    const channels = new Map();
    transfers.forEach((row, index) => {
      const label = row.channel ?? `${devices[row.source].name} → ${devices[row.target].name}`, key = JSON.stringify([label, row.source]);
      if (!channels.has(key)) channels.set(key, {label: report.short(label, 24), pattern: "/", bars: []});
      channels.get(key).bars.push({start: row.start_s, end: row.end_s, kind: "transfer", index, colour: colours[row.source]});
    });
    for (const key of [...channels.keys()].sort()) found.push(channels.get(key));
    found.forEach((row, place) => {
      row.bars.sort(byStart);
      for (const bar of row.bars) bar.row = place;
    });
    return found;
  };

  // Neighbours too short to be told apart become one stretch; `finest` is in seconds, and 0 keeps all.
  const joined = (bars, finest) => {
    const found = [];
    for (const bar of bars) {
      const last = found.at(-1), isShort = bar.end - bar.start < finest;
      if (last && isShort && last.isShort && bar.start - last.end < finest && bar.colour === last.colour) {
        last.end = Math.max(last.end, bar.end);
        last.count++;
      } else found.push({...bar, isShort, count: 1});
    }
    return found;
  };

  const about = bar => {
    const lines = bar.kind === "op" ? report.aboutOp(bar.index) : report.aboutTransfer(bar.index);
    const text = `<b>${report.inert(lines[0])}</b><br>${lines.slice(1).map(report.inert).join("<br>")}`;
    return bar.count > 1 ? `${bar.count.toLocaleString("en")} of these; zoom in to see each. The first:<br>${text}` : text;
  };

  const inside = (bar, width_s, width_px) => {
    const letters = Math.floor((bar.end - bar.start) / width_s * width_px / 7) - 1;
    if (letters < 3 || bar.count > 1 || bar.kind !== "op") return "";
    const type = report.run.ops.type[bar.index];
    return report.inert(type.length <= letters ? type : `${type.slice(0, letters)}…`);
  };

  const traces = (from, to) => {
    const inView = bars => bars.filter(bar => bar.end >= from && bar.start <= to);
    const shown = rows.map(row => inView(row.bars)), path = inView(critical);
    const finest = shown.reduce((sum, bars) => sum + bars.length, 0) > MOST_BARS ? (to - from) / RESOLUTION : 0;
    const width_px = document.getElementById("schedule-chart").clientWidth || 1000;
    const found = rows.map((row, place) => {
      const bars = joined(shown[place], finest);
      return {
        type: "bar", orientation: "h", name: row.label, y: bars.map(() => place), base: bars.map(bar => bar.start / unit.scale),
        x: bars.map(bar => (bar.end - bar.start) / unit.scale), hovertext: bars.map(about), hovertemplate: "%{hovertext}<extra></extra>",
        text: bars.map(bar => inside(bar, to - from, width_px)), textposition: "inside", insidetextanchor: "start", textangle: 0,
        insidetextfont: {color: "#ffffff", size: 11}, constraintext: "none", cliponaxis: true,
        marker: {
          color: bars.map(bar => bar.colour), line: {width: 0.5, color: bars.map(bar => bar.colour)}, opacity: bars.map((_, number) => SHADES[number % 2]),
          pattern: {shape: row.pattern},
        },
      };
    });
    const strips = rows.map((_, place) => joined(path.filter(bar => bar.row === place), finest)).flat();
    found.push({
      type: "bar", orientation: "h", name: "critical path", y: strips.map(bar => bar.row + 0.46), width: 0.14, hoverinfo: "skip",
      base: strips.map(bar => bar.start / unit.scale), x: strips.map(bar => (bar.end - bar.start) / unit.scale),
      marker: {color: CRITICAL, line: {width: 0.5, color: CRITICAL}},
    });
    const turns = path.slice(1).map((bar, place) => [path[place], bar]).filter(([one, other]) => one.row !== other.row);
    found.push({
      type: "scatter", mode: "lines", name: "critical path", hoverinfo: "skip", line: {color: CRITICAL, width: 1},
      x: (turns.length > MOST_BARS ? [] : turns).flatMap(([one, other]) => [one.end / unit.scale, other.start / unit.scale, null]),
      y: (turns.length > MOST_BARS ? [] : turns).flatMap(([one, other]) => [one.row + 0.46, other.row + 0.46, null]),
    });
    return found;
  };

  report.drawSchedule = () => {
    rows = allRows();
    const longest = rows.reduce((most, row) => row.bars.reduce((end, bar) => Math.max(end, bar.end), most), 0);
    unit = longest >= 1 ? {name: "s", scale: 1} : longest >= 1e-3 ? {name: "ms", scale: 1e-3} : {name: "us", scale: 1e-6};
    const barOf = new Map(rows.flatMap(row => row.bars.map(bar => [`${bar.kind} ${bar.index}`, bar])));
    critical = (report.run.critical_path ?? []).map(([kind, index]) => barOf.get(`${kind} ${index}`));
    const whole = [0, longest / unit.scale || 1], chart = document.getElementById("schedule-chart");
    const axis = {gridcolor: "rgba(128,128,128,0.25)", zeroline: false, automargin: true};
    const layout = {
      height: 80 + ROW * rows.length, margin: {l: 8, r: 8, t: 32, b: 8}, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      font: {family: "system-ui, sans-serif", size: 12, color: "#8b8f98"}, showlegend: false, barmode: "overlay", bargap: 0.25,
      hoverlabel: {align: "left"}, hovermode: "closest", modebar: {bgcolor: "rgba(0,0,0,0)"}, dragmode: report.drag(),
      xaxis: {...axis, title: {text: `time of one step (${unit.name}, simulated)`}, range: whole},
      yaxis: {
        ...axis, fixedrange: true, range: [rows.length - 0.3, -0.6], tickvals: rows.map((_, place) => place),
        ticktext: rows.map(row => report.inert(row.label)), showgrid: false,
      },
    };
    Plotly.newPlot(chart, traces(0, longest || 1), layout, report.SETTINGS);
    let waiting;
    chart.on("plotly_relayout", change => {
      if (!Object.keys(change).some(key => key.startsWith("xaxis"))) return;
      clearTimeout(waiting);
      waiting = setTimeout(() => {
        if (change["xaxis.autorange"]) chart.layout.xaxis.range = [...whole];
        chart.layout.xaxis.autorange = false;
        const [from, to] = chart.layout.xaxis.range.map(value => value * unit.scale);
        Plotly.react(chart, traces(from, to), chart.layout, report.SETTINGS);
      }, 50);
    });
  };
}
