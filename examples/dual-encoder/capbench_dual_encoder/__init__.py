"""A plug-in of capbench: a dual encoder of captions and region features, scored with CLIPScore's formulas."""
