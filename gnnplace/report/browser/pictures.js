// Every picture as SVG or PNG, on white ground, as a paper wants it.
"use strict";
{
  const WIDTH = 1000, FONT = {family: "Helvetica, Arial, sans-serif", size: 12, color: "#1c1f26"};

  const chartPicture = (chart, format) => Plotly.toImage(
    {
      data: chart.data,
      layout: {...chart.layout, font: FONT, paper_bgcolor: "#ffffff", plot_bgcolor: "#ffffff", width: WIDTH, autosize: false},
    },
    {format, width: WIDTH, height: chart.layout.height, scale: format === "png" ? 2 : 1},
  );

  report.pictures = () => [...document.querySelectorAll(".chart")].map(chart => chart.id.replace(/-chart$/, ""));

  // A data URL.
  report.picture = (name, format) => name === "graph" ? report.graphPicture(format) : chartPicture(document.getElementById(`${name}-chart`), format);

  report.offerPictures = () => {
    for (const name of report.pictures()) {
      const offer = document.createElement("p");
      offer.className = "offer";
      for (const format of ["svg", "png"]) {
        const button = document.createElement("button");
        button.textContent = format.toUpperCase();
        button.title = `save this picture as ${format.toUpperCase()}`;
        button.addEventListener("click", async () => {
          const link = document.createElement("a");
          link.href = await report.picture(name, format);
          link.download = `${name}.${format}`;
          link.click();
        });
        offer.append(button);
      }
      document.getElementById(`${name}-chart`).after(offer);
    }
  };
}
