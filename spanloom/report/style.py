"""How a page looks: light or dark as the reader has it, and on paper."""

_HUES = (190, 300, 130, 50, 230, 10, 90, 265)
SPAN_COLOURS = len(_HUES)
"""Colours before they come round again."""

_SPANS = "\n".join(f".s{number} {{ --hue: {hue}; }}" for number, hue in enumerate(_HUES))

CSS = (
    """:root { color-scheme: light dark; --ink: #1c1e21; --paper: #ffffff; --soft: #6a7078; --line: #d8dce1;
  --shade: #f4f6f8; --bar: #5b8db8; --bad: #c0392b; --back: 86%; --fore: 28%; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e6e9; --paper: #16181b; --soft: #9aa1a9; --line: #353a40;
  --shade: #1e2125; --bar: #6d9fca; --bad: #ff7b6b; --back: 24%; --fore: 82%; } }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 72rem;
  margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2.2rem; } h3 { font-size: 1rem; margin-bottom: .3rem; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .7rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child, .name { text-align: left; }
.note, figcaption, dt { color: var(--soft); font-size: .87rem; }
.warning { border-left: 4px solid var(--bad); background: var(--shade); padding: .5rem .8rem; margin: .5rem 0; }
figure { display: inline-block; margin: .4rem 1.5rem .4rem 0; width: 20rem; max-width: 100%; }
svg text { font-size: 11px; fill: var(--soft); } .bar { fill: var(--bar); } .over { fill: var(--bad); }
.axis { stroke: var(--line); } .row { stroke: var(--bad); stroke-dasharray: 3 3; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem .8rem; margin: 0 0 1rem; }
dd { margin: 0; min-width: 0; overflow-wrap: anywhere; background: var(--shade); padding: .25rem .5rem; }
.text { font-family: ui-monospace, monospace; font-size: .9rem; unicode-bidi: plaintext; }
.ids { font-family: ui-monospace, monospace; font-size: .8rem; }
.span, .sentinel, .begin { background: hsl(var(--hue) 70% var(--back)); color: hsl(var(--hue) 80% var(--fore));
  border-radius: .2rem; }
.sentinel, .begin { font-weight: bold; } .begin { font-size: .75em; vertical-align: super; }
.eos, .mode { color: var(--soft); } .mode { font-weight: bold; }
.stray { color: var(--paper); background: var(--bad); font-weight: bold; }
.meter { display: inline-flex; width: 16rem; height: .8rem; background: var(--line); vertical-align: middle; }
.meter i { background: hsl(var(--hue) 60% 55%); }
"""
    + _SPANS
)
