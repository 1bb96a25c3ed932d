// A slider that points at one distance in every chart and strip that has distances.
const charts = [...document.querySelectorAll("[data-chart]")].map(figure => {
  const data = JSON.parse(figure.dataset.chart), svg = figure.querySelector("svg");
  const marker = document.createElementNS("http://www.w3.org/2000/svg", "line");
  marker.setAttribute("class", "marker");
  svg.append(marker);
  const read = document.createElement("p");
  read.className = "read";
  svg.after(read);
  return {data, marker, read};
});
const chips = [...document.querySelectorAll("[data-first]")];
const distances = [...new Set(charts.flatMap(({data}) => data.at))].sort((a, b) => a - b);
const form = document.getElementById("distance"), slider = form.querySelector("input"), output = form.querySelector("output");
function point() {
  const distance = distances[slider.value];
  output.textContent = distance === 0 ? "0: itself" : `${distance} token${distance > 1 ? "s" : ""} back`;
  for (const {data, marker, read} of charts) {
    const at = data.at.findLastIndex(x => x <= distance);
    const known = at >= 0 && distance <= data.at.at(-1);
    marker.style.display = known ? "" : "none";
    if (known) for (const [name, value] of Object.entries({x1: data.x[at], x2: data.x[at], y1: data.y[0], y2: data.y[1]})) marker.setAttribute(name, value);
    read.replaceChildren(...(known ? Object.entries(data.lines) : []).map(([name, values]) => {
      const part = document.createElement("span");
      part.textContent = `${name ? `${name}: ` : ""}${+values[at].toPrecision(2)}`;
      return part;
    }));
  }
  for (const chip of chips) chip.classList.toggle("here", chip.dataset.first <= distance && distance <= chip.dataset.last);
}
if (distances.length) {
  slider.max = distances.length - 1;
  slider.value = distances.findLastIndex(x => x <= 4);
  slider.oninput = point;
  form.onsubmit = event => event.preventDefault();
  form.hidden = false;
  point();
}

// The sample as buttons: the one chosen is the query, the others get the colour of its attention.
const maps = JSON.parse(document.getElementById("maps").textContent);
for (const box of document.querySelectorAll(".explorer")) explore(box, maps.filter(Boolean)[box.dataset.part]);
function explore(box, {words, shape: [layers, heads, length], weights}) {
  const packed = Uint8Array.from(atob(weights), letter => letter.charCodeAt(0));
  const weight = (layer, head, query, key) => (packed[((layer * heads + head) * length + query) * length + key] / 255) ** 2;
  const choice = document.createElement("select");
  choice.setAttribute("aria-label", "layer and head");
  choice.add(new Option("all layers and heads", ""));
  for (let layer = 0; layer < layers; layer++) {
    choice.add(new Option(`layer ${layer}, all heads`, `${layer}`));
    for (let head = 0; head < heads; head++) choice.add(new Option(`layer ${layer}, head ${head}`, `${layer} ${head}`));
  }
  const text = document.createElement("p"), answer = document.createElement("p");
  answer.setAttribute("aria-live", "polite");
  const buttons = words.map((word, index) => {
    const button = document.createElement("button");
    button.textContent = word;
    button.onclick = button.onmouseenter = button.onfocus = () => show(index);
    return button;
  });
  text.append(...buttons);
  const intro = document.createElement("p");
  intro.append("Tap a word: the bluer another, the more it looks there. ", choice);
  box.append(intro, text, answer);
  box.hidden = false;
  let query = length - 1;
  choice.onchange = () => show(query);
  function show(index) {
    query = index;
    const [only, one] = choice.value === "" ? [] : choice.value.split(" ").map(Number);
    const found = words.map((_, key) => {
      let sum = 0, count = 0;
      for (let layer = only ?? 0; layer <= (only ?? layers - 1); layer++)
        for (let head = one ?? 0; head <= (one ?? heads - 1); head++) { sum += weight(layer, head, query, key); count++; }
      return sum / count;
    });
    buttons.forEach((button, key) => {
      const shade = key > query ? 0 : Math.sqrt(found[key]);
      button.style.setProperty("--v", shade.toFixed(2));
      button.classList.toggle("dark", shade > .6);
      button.setAttribute("aria-pressed", key === query);
      button.title = key > query ? "not seen yet" : `${(100 * found[key]).toFixed(1)} %`;
    });
    const most = found.map((share, key) => [share, key]).filter(([, key]) => key <= query).sort((a, b) => b[0] - a[0]).slice(0, 3);
    answer.textContent = `“${words[query]}” looks at ` + most.map(([share, key]) =>
      `${key === query ? "itself" : `“${words[key]}”, ${query - key} back`} ${(100 * share).toFixed(0)} %`).join("; ");
  }
  show(query);
}

// What the last tokens of a long text retrieve: choose one, and a head, and see its memories with the text around them.
const lookups = JSON.parse(document.getElementById("lookups").textContent);
for (const box of document.querySelectorAll(".lookup")) retrieve(box, lookups[box.dataset.part].script);
function retrieve(box, {pieces, apart, around, gates, queries, found, weights}) {
  const choice = document.createElement("select");
  choice.setAttribute("aria-label", "head");
  gates.forEach((gate, head) => choice.add(new Option(`head ${head}, gate ${gate}`, head)));
  const text = document.createElement("p"), intro = document.createElement("p"), list = document.createElement("ol");
  list.setAttribute("aria-live", "polite");
  const buttons = queries.map((index, query) => {
    const button = document.createElement("button");
    button.textContent = pieces[index].trim() || "␣";
    button.onclick = () => show(query);
    return button;
  });
  text.append(...buttons);
  intro.append("Tap a word to see its memories, the strongest first: weight, how far back, and the text there. ", choice);
  box.append(intro, text, list);
  box.hidden = false;
  let query = queries.length - 1;
  choice.onchange = () => show(query);
  function show(index) {
    query = index;
    buttons.forEach((button, other) => button.setAttribute("aria-pressed", other === query));
    list.replaceChildren(...found[choice.value][query].map((memory, rank) => {
      const weight = weights[choice.value][query][rank];
      const item = document.createElement("li"), mark = document.createElement("mark");
      const piece = (from, to) => pieces.slice(Math.max(0, from), to).join(apart);
      mark.textContent = pieces[memory];
      item.style.setProperty("--v", `${(100 * weight).toFixed(1)}%`);
      item.append(`${(100 * weight).toFixed(1)} %, ${queries[query] - memory} back: … ${piece(memory - around, memory)}${apart}`,
        mark, `${apart}${piece(memory + 1, memory + 1 + around)} …`);
      return item;
    }));
  }
  show(query);
}
