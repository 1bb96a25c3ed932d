// Points at one distance in every chart and strip that has distances, by a slider or by the pointer on a chart.
const charts = [...document.querySelectorAll("[data-chart]")].map(panel => {
  const data = JSON.parse(panel.dataset.chart), svg = panel.querySelector("svg");
  const marker = document.createElementNS("http://www.w3.org/2000/svg", "line");
  marker.setAttribute("class", "marker");
  svg.append(marker);
  const read = document.createElement("p");
  read.className = "read";
  svg.after(read);
  svg.onpointermove = svg.onpointerdown = event => {
    const matrix = svg.getScreenCTM().inverse(), {x} = new DOMPoint(event.clientX, event.clientY).matrixTransform(matrix);
    const nearest = data.x.reduce((best, place, n) => Math.abs(place - x) < Math.abs(data.x[best] - x) ? n : best, 0);
    point(data.at[nearest]);
  };
  return {data, marker, read};
});
const chips = [...document.querySelectorAll("[data-first]")];
const pointers = [...document.querySelectorAll(".pointer")];
const distances = [...new Set([...charts.flatMap(({data}) => data.at), ...chips.map(chip => +chip.dataset.first)])].sort((a, b) => a - b);
const inWords = distance => distance === 0 ? "0: the token itself" : distance < 0 ? `${-distance} ahead` : `${distance} back`;
function point(distance) {
  for (const pointer of pointers) {
    pointer.querySelector("input").value = distances.indexOf(distance);
    pointer.querySelector("output").textContent = inWords(distance);
  }
  for (const {data, marker, read} of charts) {
    const at = data.at.findLastIndex(x => x <= distance);
    const known = at >= 0 && distance <= data.at.at(-1);
    marker.style.display = known ? "" : "none";
    read.replaceChildren();
    if (!known) continue;
    for (const [name, value] of Object.entries({x1: data.x[at], x2: data.x[at], y1: data.y[0], y2: data.y[1]})) marker.setAttribute(name, value);
    const values = data.lines.map(([name, values]) => `${name ? `${name} ` : ""}${+values[at].toPrecision(2)}`);
    const where = document.createElement("b");
    where.textContent = `at distance ${data.at[at]}`;
    read.append(where, `: ${values.join(", ")}`);
  }
  for (const chip of chips) chip.classList.toggle("here", chip.dataset.first <= distance && distance <= chip.dataset.last);
}
for (const pointer of pointers) {
  const slider = pointer.querySelector("input");
  slider.max = distances.length - 1;
  slider.oninput = () => point(distances[slider.value]);
  pointer.onsubmit = event => event.preventDefault();
  pointer.hidden = false;
}
if (distances.length) point(distances[Math.max(0, distances.findLastIndex(x => x <= document.body.dataset.distance))]);

// Maps of attention: a head is chosen, and a token's row says where it looks.
const maps = JSON.parse(document.getElementById("maps").textContent);
for (const figure of document.querySelectorAll(".map")) explore(figure, maps[figure.dataset.map]);
function explore(figure, {words, shape: [layers, heads, length], weights, layer, head}) {
  const packed = Uint8Array.from(atob(weights), letter => letter.charCodeAt(0));
  const weight = (layer, head, query, key) => (packed[((layer * heads + head) * length + query) * length + key] / 255) ** 2;
  const choice = document.createElement("select"), which = figure.querySelector(".which"), read = figure.querySelector(".read");
  choice.setAttribute("aria-label", "layer and head");
  choice.add(new Option("mean of all heads", ""));
  for (let n = 0; n < layers; n++) {
    choice.add(new Option(`layer ${n}, mean of its heads`, `${n}`));
    for (let m = 0; m < heads; m++) choice.add(new Option(`layer ${n}, head ${m}`, `${n} ${m}`));
  }
  choice.value = `${layer} ${head}`;
  which.replaceWith(choice);
  const shown = (query, key) => {
    const [only, one] = choice.value === "" ? [] : choice.value.split(" ").map(Number);
    let sum = 0, count = 0;
    for (let n = only ?? 0; n <= (only ?? layers - 1); n++)
      for (let m = one ?? 0; m <= (one ?? heads - 1); m++) { sum += weight(n, m, query, key); count++; }
    return sum / count;
  };
  const rows = [...figure.querySelectorAll(".word")].map((name, query) => {
    const button = document.createElement("button"), cells = [];
    button.className = "word";
    button.textContent = name.textContent;
    for (let cell = name.nextElementSibling; cells.length <= query; cell = cell.nextElementSibling) cells.push(cell);
    for (const part of [button, ...cells]) part.onclick = part.onmouseenter = part.onfocus = () => say(query);
    name.replaceWith(button);
    return {button, cells};
  });
  let query = length - 1;
  function say(index) {
    query = index;
    rows.forEach(({button, cells}, row) => {
      button.setAttribute("aria-pressed", row === query);
      for (const cell of cells) cell.classList.toggle("here", row === query);
    });
    const shares = rows[query].cells.map((_, key) => [shown(query, key), key]).sort((a, b) => b[0] - a[0]).slice(0, 3);
    read.textContent = `“${words[query]}” looks at ` + shares.map(([share, key]) =>
      `${key === query ? "itself" : `“${words[key]}”, ${query - key} back`}: ${(100 * share).toFixed(0)}%`).join("; ");
  }
  choice.onchange = () => {
    rows.forEach(({cells}, row) => cells.forEach((cell, key) => cell.style.setProperty("--v", Math.sqrt(shown(row, key)).toFixed(2))));
    say(query);
  };
  say(query);
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
      item.append(`${(100 * weight).toFixed(1)}%, ${queries[query] - memory} back: … ${piece(memory - around, memory)}${apart}`,
        mark, `${apart}${piece(memory + 1, memory + 1 + around)} …`);
      return item;
    }));
  }
  show(query);
}
