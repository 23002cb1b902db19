"""The image under the weights of its regions, as drawings."""

from __future__ import annotations

import numpy as np

from capbench.explain.charts import scale_legend
from capbench.explain.drawing import Drawing, rect, text_at
from capbench.explain.heatmaps import HEAT_ALPHA, Pixels, Scene, data_uri, glow, heat, label_places
from capbench.explanations import RegionMap, RegionMaps, Regions

__all__ = ["COLOUR_ID", "GREY_ID", "draw_map", "picture_source"]

GREY_ID, COLOUR_ID = "picture", "colour-picture"
_LARGE, _SMALL = 360, 122
_LEGEND = 36


def picture_source(pixels: Pixels, name: str) -> str:
    """The picture, once for a whole page; drawings refer to it by its name."""
    address = data_uri(pixels, photograph=True)
    return (
        f'<image id="{name}" width="{pixels.shape[1]}" height="{pixels.shape[0]}" href="{address}" '
        'preserveAspectRatio="none"/>'
    )


def draw_map(maps: RegionMaps, region_map: RegionMap, scene: Scene, regions: Regions | None) -> Drawing:
    """One of several maps: heat with its scale below, a glow if it is small, or the bare picture without weights."""
    size = _SMALL if maps.small else _LARGE
    factor = min(size / scene.width, size / scene.height)
    label = f"{region_map.title}: {region_map.note}" if region_map.note else region_map.title
    weights = region_map.weights
    body = [f'<use href="#{COLOUR_ID if weights is None else GREY_ID}"/>']
    if weights is not None:
        lay = glow if maps.small else heat
        layer = data_uri(lay(scene, weights, maps.low, maps.high))
        body.append(f'<image width="{scene.width}" height="{scene.height}" href="{layer}"/>')
    if scene.boxes is not None and regions is not None:
        if weights is not None and not maps.small:
            body += _hints(region_map, scene, regions)
            best = ", ".join(regions.names[region] for region in region_map.top)
            label += f"; best are {best}" if best else ""
        body += _outlines(region_map, scene, factor, numbered=not maps.small)
    drawn = f'<g transform="scale({factor:.5f})">{"".join(body)}</g>'
    width, height = scene.width * factor, scene.height * factor
    if weights is not None and not maps.small:
        drawn += scale_legend(0, height + 6, width, maps.low, maps.high, HEAT_ALPHA)
        height += _LEGEND
    return Drawing(drawn, width, height, label)


def _hints(region_map: RegionMap, scene: Scene, regions: Regions) -> list[str]:
    """What each region weighs; the smallest lie on top, so that a pointer reaches all of them."""
    assert scene.boxes is not None
    assert region_map.weights is not None
    areas = (scene.boxes[:, 2] - scene.boxes[:, 0]) * (scene.boxes[:, 3] - scene.boxes[:, 1])
    return [
        _box(scene, region, "touch", f"region {regions.names[region]}: {region_map.weights[region]:.3f}")
        for region in np.argsort(-areas, kind="stable").tolist()
    ]


def _outlines(region_map: RegionMap, scene: Scene, factor: float, *, numbered: bool) -> list[str]:
    drawn = []
    for region in reversed(region_map.top):
        for kind, thick in (("edge", 4.0), ("box", 2.0)):
            drawn.append(_box(scene, region, kind, more=f' stroke-width="{thick / factor**0.5:.1f}"'))
    if numbered:
        for region, (x, y) in zip(region_map.top, label_places(scene, region_map.top, 20), strict=True):
            drawn.append(text_at(x, y + 15, str(region), "tag"))
    return drawn


def _box(scene: Scene, region: int, kind: str, hint: str = "", more: str = "") -> str:
    assert scene.boxes is not None
    x1, y1, x2, y2 = scene.boxes[region].tolist()
    return rect(x1, y1, x2 - x1, y2 - y1, kind, hint, more)
