# The rows of FAIEr's Table 4 on Flickr8k (docs/results/faier-flickr8k.md): three seeds each; four hours on one core. Requires
# SPICE's parser (capbench doctor --install spice).
PAGE := faier-flickr8k-table4
ROWS := fier aier-4-ref fier-aier-4-ref faier-rel-4-ref faier-4-ref faier-rel-1-ref faier-1-ref faier-rel-r-ref faier-r-ref
RUNS := $(foreach row,$(ROWS),faier-flickr8k-$(row)-seed1 faier-flickr8k-$(row)-seed2 faier-flickr8k-$(row)-seed3)
AGREEMENT = $(foreach references,one all none,$(RUNS:%=$(OUT)/$(references)-%/results.md))
include scripts/reproduce/rules.mk
include scripts/reproduce/faier-references.mk

define variant
$(T)/faier-flickr8k-$(1)-seed%/model.safetensors: $(PYR30)
	$$(CAPBENCH) train faier faier-flickr8k --variant $(1) --seed $$* --features $$< --out $$(@D)
endef
$(foreach row,$(ROWS),$(eval $(call variant,$(row))))
