# ViLBERTScore on Flickr8k (docs/results/vilbert-flickr8k.md): three networks and their ensemble, both layers, with images and
# with blank ones; 20 minutes on one core, three hours if it emulates bfloat16.
PAGE := vilbert-flickr8k
RUNS := vilbert-flickr8k-seed1 vilbert-flickr8k-seed2 vilbert-flickr8k-seed3 vilbert-flickr8k
AGREEMENT = $(foreach image,seen blank,$(RUNS:%=$(OUT)/$(image)-%/results.md))
include scripts/reproduce/rules.mk

define shown
$(eval $(call agreement,$(1)-%,$(T)/%/model.safetensors,$(WINDOWS10),$(JUDGED) -m vilbertscore --option layer=1-2 --option image=$(1)))
$(eval $(call agreement,$(1)-%,$(T)/%.json,$(WINDOWS10),$(JUDGED) -m vilbertscore --option layer=1-2 --option image=$(1)))
endef
$(foreach image,seen blank,$(eval $(call shown,$(image))))
