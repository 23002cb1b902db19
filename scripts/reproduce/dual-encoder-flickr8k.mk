# A dual encoder on Flickr8k (docs/results/dual-encoder-flickr8k.md): three networks and their ensemble; 3 minutes on one core.
# It is a plug-in: pip install ./examples/dual-encoder.
PAGE := dual-encoder-flickr8k
RUNS := dual-encoder-flickr8k-seed1 dual-encoder-flickr8k-seed2 dual-encoder-flickr8k-seed3 dual-encoder-flickr8k
AGREEMENT = $(RUNS:%=$(OUT)/%/results.md)
include scripts/reproduce/rules.mk

$(eval $(call agreement,%,$(T)/%/model.safetensors,$(PYR30),$(JUDGED) -m dual-encoder))
$(eval $(call agreement,%,$(T)/%.json,$(PYR30),$(JUDGED) -m dual-encoder))
