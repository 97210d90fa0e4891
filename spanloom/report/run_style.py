"""How charts, fills and tables of a run's page look, beside what all pages share: on a phone and on paper, too."""

CSS_OF_COLOURS = "\n".join(
    f".c{number} {{ --line-colour: hsl({hue} var(--line-saturation) var(--line-light)); }}"
    for number, hue in enumerate((211, 24, 145, 280, 0, 185, 48, 325))
)

RUN_CSS = (
    """:root { --line-saturation: 70%; --line-light: 42%; --right: 145; --wrong: 10; }
@media (prefers-color-scheme: dark) { :root { --line-saturation: 65%; --line-light: 64%; } }
body { max-width: 90rem; overflow-wrap: anywhere; } th, td { overflow-wrap: normal; vertical-align: top; }
td.name { white-space: normal; min-width: 5rem; max-width: 40rem; overflow-wrap: anywhere; }
td.name:first-child { white-space: nowrap; }
td.name:last-child, td.name:nth-child(2):nth-last-child(2) { min-width: 14rem; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 30rem), 1fr)); gap: 1rem 1.5rem; }
figure.chart { width: auto; margin: 0; display: block; min-width: 0; } .chart svg { width: 100%; height: auto;
  display: block;
  touch-action: pan-y; user-select: none; } .chart figcaption { display: flex; gap: .5rem; align-items: baseline;
  flex-wrap: wrap; color: var(--ink); } .tools { margin-left: auto; } .values { min-height: 1.5em; margin: 0; }
.line, .raw { fill: none; stroke: var(--line-colour); stroke-width: 1.6; stroke-linejoin: round; stroke-linecap:
  round; }
.raw { opacity: .3; stroke-width: 1; } .band { fill: var(--line-colour); opacity: .2; }
.line.dashed { stroke-dasharray: 5 4; } .grid { stroke: var(--line); } .border, .cursor { stroke: var(--soft);
  stroke-dasharray: 2 3; } .selection { fill: var(--ink); opacity: .12; }
button { font: inherit; font-size: .82rem; color: inherit; background: var(--shade); border: 1px solid var(--line);
  border-radius: .3rem; padding: 0 .5rem; cursor: pointer; } .tools [aria-pressed=true] { border-color: var(--ink); }
.legend { display: flex; flex-wrap: wrap; gap: .3rem; margin: .2rem 0 .6rem; } .legend button { text-align: left; }
.legend [aria-pressed=false] { opacity: .45; text-decoration: line-through; }
.legend i { display: inline-block; width: 1.1rem; border-top: 3px solid var(--line-colour); margin-right: .4rem;
  vertical-align: middle; } .legend .dashed i { border-top-style: dashed; }
.controls { display: flex; flex-wrap: wrap; gap: .4rem 1.2rem; align-items: center; } .controls input {
  vertical-align: middle; }
.heat { background: hsl(10 75% 55% / calc(var(--heat) * .45)); } tr.sum td { font-weight: bold; }
.right, .wrong, .known { border-radius: .2rem; padding: 0 .1rem; }
.right { background: hsl(var(--right) 60% var(--back)); color: hsl(var(--right) 80% var(--fore)); }
.wrong { background: hsl(var(--wrong) 70% var(--back)); color: hsl(var(--wrong) 80% var(--fore)); text-decoration:
  line-through; }
.known { border-bottom: 2px solid var(--soft); margin-left: .15rem; } .filled { background: var(--shade); padding:
  .3rem .6rem; }
pre { font-size: .85rem; } details > summary { cursor: pointer; margin: .5rem 0; } #status { margin: -.6rem 0 .8rem;
  }
@media (max-width: 40rem) { body { margin: .8rem auto; padding: 0 .7rem; } h1 { font-size: 1.25rem; } dl { display:
  block; }
  dt { margin-top: .4rem; } th, td { padding: .2rem .45rem; } }
@media print { :root { color-scheme: light; --ink: #000; --paper: #fff; --soft: #555; --line: #ccc; --shade: #f4f4f4;
  --back: 88%; --fore: 25%; --line-saturation: 70%; --line-light: 38%; } body { max-width: none; margin: 0; font-size:
  10pt; }
  .tools, .controls, .values, #status, details:not([open]) { display: none; } .charts { grid-template-columns: 1fr
  1fr; }
  figure.chart, tr, dl, .filled { break-inside: avoid; } h2, h3 { break-after: avoid; } .scroll { overflow: visible; }
  table { font-size: 8pt; } td, th { white-space: normal; padding: .1rem .3rem; } .legend button { border: 0; padding:
  0 .3rem 0 0; }
  * { print-color-adjust: exact; -webkit-print-color-adjust: exact; } }
"""
    + CSS_OF_COLOURS
)
