"use strict";
const specs = JSON.parse(document.getElementById("specs").textContent);
function chartConfig(theme) {
  const dark = theme === "dark";
  const ink = dark ? "#ece9e2" : "#26241f", soft = dark ? "#a29d92" : "#6d685d", line = dark ? "#34353b" : "#e9e7e2";
  return {
    background: null, font: "system-ui, sans-serif", view: { stroke: null },
    axis: { gridColor: line, domainColor: soft, tickColor: soft, labelColor: soft, titleColor: soft, titleFontWeight: 500 },
    legend: { labelColor: ink, titleColor: soft }, title: { anchor: "start", color: ink, fontSize: 13 },
    rule: { color: soft },
  };
}
async function drawCharts(theme) {
  for (const [id, spec] of Object.entries(specs)) {
    const place = document.getElementById(id);
    if (place) await vegaEmbed(place, { ...spec, config: chartConfig(theme) }, { actions: false, renderer: "svg" });
  }
  root.dataset.drawn = theme;
}
themed.push(drawCharts);
drawCharts(root.dataset.theme);
