# FAIEr on Flickr8k (docs/results/faier-flickr8k.md): InfoNCE, the paper's loss with 225 and 900 steps, three seeds each, by
# number of references; an hour on one core. Requires SPICE's parser (capbench doctor --install spice).
PAGE := faier-flickr8k
RUNS := $(foreach config,faier-flickr8k faier-flickr8k-paper faier-flickr8k-paper-900,$(config)-seed1 $(config)-seed2 $(config)-seed3 $(config))
AGREEMENT = $(foreach references,all none one,$(RUNS:%=$(OUT)/$(references)-%/results.md))
include scripts/reproduce/rules.mk
include scripts/reproduce/faier-references.mk

$(T)/faier-flickr8k-paper-900-seed%/model.safetensors: $(PYR30)
	$(CAPBENCH) train faier faier-flickr8k-paper --seed $* --features $< --out $(@D) \
	  --set epochs=3 --set max_steps=900 --set loss.hardest_after=300
$(T)/faier-flickr8k-paper-900.json: $(call models,faier-flickr8k-paper-900,1 2 3)
	$(CAPBENCH) models combine $^ --out $@
