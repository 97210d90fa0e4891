// Draws the charts of a report anew, so that they can be looked into: values under the pointer, zoom, log axes,
// smoothing, lines left out. Without it the page shows the same charts as they were drawn beforehand.
// All text goes in as text, never as markup; only what the server itself has made is put in as markup.
(function () {
  "use strict";
  const SVG = "http://www.w3.org/2000/svg", COLOURS = 8, HEIGHT = 260, FAR = 100, EARLY = 0.02, LONG = 100;
  const MARGIN = { left: 56, right: 8, top: 8, bottom: 24 };
  const controls = { logX: false, smooth: 0 };
  const states = new Map(); // by name of the chart, so that they outlive what the server sends anew
  let charts = new Map(), printing = false;

  function state(name) {
    if (!states.has(name)) states.set(name, { hidden: new Set(), logY: false, zoom: null, full: false });
    return states.get(name);
  }

  function element(tag, attributes, content) {
    const made = document.createElementNS(SVG, tag);
    for (const name in attributes) made.setAttribute(name, attributes[name]);
    if (content !== undefined) made.textContent = content;
    return made;
  }

  function short(value) {
    const size = Math.abs(value);
    if (size >= 1e15 || (size && size < 1e-3)) return value.toExponential(1).replace("e+", "e");
    for (const [limit, divisor, letter] of [[1e12, 1e12, "T"], [1e9, 1e9, "G"], [1e6, 1e6, "M"], [1e4, 1e3, "k"]])
      if (size >= limit) return Number((value / divisor).toPrecision(4)) + letter;
    return String(Number(value.toPrecision(4)));
  }

  function ticks(low, high, about) {
    const raw = high / about - low / about;
    if (!(raw > 0 && isFinite(raw))) return [low, high];
    const power = Math.pow(10, Math.floor(Math.log10(raw)));
    const step = power * ([1, 2, 5].find((factor) => power * factor >= raw) || 10);
    const found = [], first = Math.ceil(low / step);
    for (let n = first; n * step <= high + step * 1e-9 && found.length < 3 * about; n++) found.push(n * step);
    return found.length ? found : [low, high];
  }

  function logTicks(low, high) {
    const found = [], decades = Math.log10(high / low), factors = decades > 3 ? [1] : decades > 1 ? [1, 3] : [1, 2, 3, 5, 7];
    for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e++)
      for (const factor of factors) {
        const tick = factor * Math.pow(10, e);
        if (tick >= low * 0.999 && tick <= high * 1.001) found.push(tick);
      }
    return found.length > 1 ? found : [low, high];
  }

  // A running mean that begins with the first value; `smooth` is the share that is kept from point to point.
  function smoothed(values, smooth) {
    let mean = 0, weight = 0;
    return values.map((value) => {
      if (value === null) return null;
      mean = smooth * mean + (1 - smooth) * value;
      weight = smooth * weight + (1 - smooth);
      return mean / weight;
    });
  }

  function scale(low, high, from, to, log) {
    if (log) {
      const a = Math.log10(low), b = Math.log10(high);
      return (value) => from + ((Math.log10(value) - a) / (b - a)) * (to - from);
    }
    return (value) => {
      const share = (value / 2 - low / 2) / (high / 2 - low / 2); // halves: the largest numbers lie too far apart
      return from + Math.max(-FAR, Math.min(FAR, share)) * (to - from);
    };
  }

  function range(lines, own, logY, logX) {
    let x0 = Infinity, x1 = -Infinity, y0 = Infinity, y1 = -Infinity;
    const first = Math.min(...lines.map((line) => line.x[0])), last = Math.max(...lines.map((line) => line.x.at(-1)));
    const early = own.full || own.zoom || logX ? first : first + EARLY * (last - first); // as they were drawn beforehand
    for (const line of lines)
      line.x.forEach((x, n) => {
        if ((own.zoom && (x < own.zoom[0] || x > own.zoom[1])) || (logX && x <= 0)) return;
        x0 = Math.min(x0, x); x1 = Math.max(x1, x);
        if (x < early && line.x.length >= LONG) return;
        for (const y of [line.low ? line.low[n] : line.shown[n], line.high ? line.high[n] : line.shown[n], line.shown[n]])
          if (y !== null && !(logY && y <= 0)) { y0 = Math.min(y0, y); y1 = Math.max(y1, y); }
      });
    if (own.zoom) [x0, x1] = [Math.max(own.zoom[0], logX ? 1 : -Infinity), own.zoom[1]];
    if (!(x0 <= x1)) [x0, x1] = [1, 2];
    if (x0 === x1) [x0, x1] = [logX ? x0 * 0.9 : x0 - 1, logX ? x0 * 1.1 : x0 + 1];
    if (!(y0 <= y1)) [y0, y1] = [1, 2];
    if (!(y1 / 2 - y0 / 2 > 0)) {
      const margin = Math.abs(y0) * 0.05 || 1;
      [y0, y1] = [y0 - margin, y1 + margin];
    }
    return [x0, x1, y0, y1];
  }

  function path(line, values, across, up, logX, logY) {
    let d = "", open = false, count = 0;
    values.forEach((value, n) => {
      if (value === null || (logY && value <= 0) || (logX && line.x[n] <= 0)) {
        if (open && count === 1) d += "h.01";
        open = false;
        return;
      }
      d += (open ? "L" : "M") + across(line.x[n]).toFixed(1) + "," + up(value).toFixed(1);
      count = open ? count + 1 : 1;
      open = true;
    });
    return open && count === 1 ? d + "h.01" : d;
  }

  function band(line, across, up, logX, logY) {
    const parts = [];
    let there = [], back = [];
    const close = () => { if (there.length) parts.push("M" + there.concat(back.reverse()).join("L") + "Z"); there = []; back = []; };
    line.x.forEach((x, n) => {
      if (line.low[n] === null || (logX && x <= 0) || (logY && line.low[n] <= 0)) return close();
      there.push(across(x).toFixed(1) + "," + up(line.high[n]).toFixed(1));
      back.push(across(x).toFixed(1) + "," + up(line.low[n]).toFixed(1));
    });
    close();
    return parts;
  }

  function style(kind, line) {
    const dashed = line.reference || line.colour >= COLOURS ? " dashed" : "";
    return kind + " c" + (line.colour % COLOURS) + (kind === "line" ? dashed : "");
  }

  function draw(figure) {
    const chart = charts.get(figure.dataset.chart), before = figure.querySelector("svg");
    if (!chart || !before) return;
    const own = state(chart.name), logX = controls.logX;
    const width = printing ? 640 : Math.max(Math.round(figure.clientWidth) || 640, 240);
    const lines = chart.lines.filter((line) => !own.hidden.has(line.colour));
    for (const line of lines) line.shown = controls.smooth ? smoothed(line.y, controls.smooth) : line.y;
    const anyPositive = lines.some((line) => line.shown.some((y) => y !== null && y > 0));
    const logY = own.logY && anyPositive;
    const [x0, x1, y0, y1] = range(lines, own, logY, logX);
    const right = width - MARGIN.right, bottom = HEIGHT - MARGIN.bottom;
    const across = scale(x0, x1, MARGIN.left, right, logX), up = scale(y0, y1, bottom, MARGIN.top, logY);
    const svg = element("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": before.getAttribute("aria-label") });
    const clip = "clip-" + [...figures()].indexOf(figure);
    const clipped = element("clipPath", { id: clip });
    clipped.append(element("rect", { x: MARGIN.left, y: 0, width: right - MARGIN.left, height: HEIGHT }));
    svg.append(clipped);
    for (const tick of logY ? logTicks(y0, y1) : ticks(y0, y1, 5)) {
      svg.append(element("line", { class: "grid", x1: MARGIN.left, x2: right, y1: up(tick), y2: up(tick) }));
      svg.append(element("text", { x: MARGIN.left - 6, y: up(tick) + 4, "text-anchor": "end" }, short(tick)));
    }
    for (const tick of logX ? logTicks(x0, x1) : ticks(x0, x1, Math.max(2, Math.round(width / 100)))) {
      const anchor = across(tick) > right - 16 ? "end" : "middle";
      svg.append(element("text", { x: across(tick), y: HEIGHT - 7, "text-anchor": anchor }, short(tick)));
    }
    for (const [step, label] of chart.borders) {
      if (step < x0 || step > x1 || (logX && step <= 0)) continue;
      svg.append(element("line", { class: "border", x1: across(step), x2: across(step), y1: MARGIN.top, y2: bottom }));
      svg.append(element("text", { x: across(step) + 3, y: MARGIN.top + 10 }, label));
    }
    const inside = element("g", { "clip-path": `url(#${clip})` });
    for (const line of lines) {
      if (line.low) for (const d of band(line, across, up, logX, logY)) inside.append(element("path", { class: style("band", line), d }));
      else if (controls.smooth) inside.append(element("path", { class: style("raw", line), d: path(line, line.y, across, up, logX, logY) }));
      inside.append(element("path", { class: style("line", line), d: path(line, line.shown, across, up, logX, logY) }));
    }
    svg.append(inside);
    before.replaceWith(svg);
    pointing(figure, svg, { lines, x0, x1, across, width, logX, bottom, own, right });
  }

  function pointing(figure, svg, view) {
    const note = figure.querySelector(".values"), cursor = element("line", { class: "cursor", y1: MARGIN.top, y2: view.bottom, visibility: "hidden" });
    const selection = element("rect", { class: "selection", y: MARGIN.top, height: view.bottom - MARGIN.top, visibility: "hidden" });
    svg.append(selection, cursor);
    let from = null;
    const place = (event) => {
      const box = svg.getBoundingClientRect();
      const x = ((event.clientX - box.left) / box.width) * view.width;
      return Math.min(Math.max(x, MARGIN.left), view.right);
    };
    const step = (x) => {
      const share = (x - MARGIN.left) / (view.right - MARGIN.left);
      return view.logX ? view.x0 * Math.pow(view.x1 / view.x0, share) : view.x0 + share * (view.x1 - view.x0);
    };
    const hide = () => { cursor.setAttribute("visibility", "hidden"); note.textContent = ""; };
    svg.addEventListener("pointermove", (event) => {
      const x = place(event), at = step(x);
      cursor.setAttribute("x1", x); cursor.setAttribute("x2", x); cursor.setAttribute("visibility", "visible");
      const found = view.lines.map((line) => nearest(line, at)).filter(Boolean);
      note.textContent = found.length ? "step " + found[0].step.toLocaleString("en") + ": " + found.map((one) => one.text).join(", ") : "";
      if (from !== null) {
        selection.setAttribute("x", Math.min(from, x)); selection.setAttribute("width", Math.abs(x - from));
        selection.setAttribute("visibility", "visible");
      }
    });
    svg.addEventListener("pointerdown", (event) => { from = place(event); });
    svg.addEventListener("pointerup", (event) => {
      const to = place(event), start = from;
      from = null;
      selection.setAttribute("visibility", "hidden");
      if (start === null || Math.abs(to - start) < 8) return;
      view.own.zoom = [step(Math.min(start, to)), step(Math.max(start, to))];
      draw(figure);
    });
    svg.addEventListener("pointerleave", () => { from = null; selection.setAttribute("visibility", "hidden"); hide(); });
    svg.addEventListener("dblclick", () => { view.own.zoom = null; draw(figure); });
  }

  function nearest(line, at) {
    let best = -1;
    line.x.forEach((x, n) => { if (line.shown[n] !== null && (best < 0 || Math.abs(x - at) < Math.abs(line.x[best] - at))) best = n; });
    return best < 0 ? null : { step: line.x[best], text: line.label + " " + Number(line.shown[best].toPrecision(5)) };
  }

  function attach(figure) {
    const own = state(figure.dataset.chart);
    for (const button of figure.querySelectorAll(".legend button")) {
      const colour = Number(button.dataset.colour);
      button.setAttribute("aria-pressed", String(!own.hidden.has(colour)));
      button.onclick = () => {
        own.hidden.has(colour) ? own.hidden.delete(colour) : own.hidden.add(colour);
        button.setAttribute("aria-pressed", String(!own.hidden.has(colour)));
        draw(figure);
      };
    }
    const log = figure.querySelector("button.log");
    log.setAttribute("aria-pressed", String(own.logY));
    log.onclick = () => { own.logY = !own.logY; log.setAttribute("aria-pressed", String(own.logY)); draw(figure); };
    const whole = figure.querySelector("button.whole");
    whole.setAttribute("aria-pressed", String(own.full));
    whole.onclick = () => {
      if (own.zoom) own.zoom = null;
      else own.full = !own.full;
      whole.setAttribute("aria-pressed", String(own.full));
      draw(figure);
    };
  }

  const figures = () => document.querySelectorAll("figure[data-chart]");
  const drawAll = () => { for (const figure of figures()) draw(figure); };

  function begin(data) {
    charts = new Map(data.map((chart) => [chart.name, chart]));
    for (const figure of figures()) attach(figure);
    const smooth = document.getElementById("smooth"), logX = document.getElementById("log-x");
    if (smooth) {
      smooth.value = String(controls.smooth);
      logX.checked = controls.logX;
      smooth.oninput = () => { controls.smooth = Number(smooth.value); drawAll(); };
      logX.onchange = () => { controls.logX = logX.checked; drawAll(); };
    }
    drawAll();
  }

  // The page of a run that goes on asks for what has come, and puts it in the place of what it shows.
  function follow(seconds) {
    const main = document.querySelector("main"), status = document.getElementById("status");
    let version = "";
    async function ask() {
      try {
        const answer = await fetch("live?after=" + encodeURIComponent(version), { cache: "no-store" });
        if (answer.status === 200) {
          const found = await answer.json(), open = [...main.querySelectorAll("details")].map((one) => one.open);
          version = found.version;
          main.innerHTML = found.main; // made and escaped by the server, as the page was
          main.querySelectorAll("details").forEach((one, n) => { if (n in open) one.open = open[n]; });
          begin(found.charts);
          status.textContent = "live, read at " + new Date().toLocaleTimeString();
        } else if (answer.status !== 204) throw new Error(answer.status);
        else status.textContent = status.textContent.replace(/^.*gone.*$/, "live");
      } catch (error) {
        status.textContent = "spanloom watch is gone: this is what it showed last";
      }
      setTimeout(ask, (document.hidden ? 5 : 1) * seconds * 1000);
    }
    ask();
  }

  let resized = 0;
  window.addEventListener("resize", () => { clearTimeout(resized); resized = setTimeout(drawAll, 100); });
  window.addEventListener("beforeprint", () => { printing = true; drawAll(); });
  window.addEventListener("afterprint", () => { printing = false; drawAll(); });
  begin(JSON.parse(document.getElementById("charts").textContent));
  if (document.body.dataset.live) follow(Number(document.body.dataset.live));
})();
