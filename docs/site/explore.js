// Draw the pictures to explore of a page, each in place of its still, from the JSON that stands after it.
for (const source of document.querySelectorAll("script.explore")) {
  const { data, layout } = JSON.parse(source.textContent);
  const place = document.createElement("div");
  place.setAttribute("role", "figure");
  place.setAttribute("aria-label", layout.title.text.replaceAll("<br>", " "));
  place.className = "explored";
  source.after(place);
  Plotly.newPlot(place, data, layout, { responsive: true, displaylogo: false }).then(() => {
    source.previousElementSibling?.remove();
  });
}
