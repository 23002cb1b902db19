"""A dual encoder of captions and region features, and CLIPScore's formulas over it: a plug-in of capbench."""
