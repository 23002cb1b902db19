# TIGEr and REO on Flickr8k (docs/results/flickr8k-grid.md): nine networks, three ensembles of three; 40 minutes on one core.
PAGE := flickr8k-grid
RUNS := seed1 seed2 seed3 seed4 seed5 seed6 seed7 seed8 seed9 ensemble1 ensemble2 ensemble3
AGREEMENT = $(RUNS:%=$(OUT)/%/results.md) $(RUNS:%=$(OUT)/half-%/results.md)
include scripts/reproduce/rules.mk

N := scan-flickr8k-grid
$(foreach seed,1 2 3 4 5 6 7 8 9,$(eval $(OUT)/seed$(seed)/results.md: $(call models,$(N),$(seed)).reo.npz))
# $(call ensemble,NUMBER,SEEDS): an ensemble, and the covariances that REO reads with it.
define ensemble
$(T)/$(N)-ensemble$(1).json: $(call models,$(N),$(2))
$(OUT)/ensemble$(1)/results.md: $(addsuffix .reo.npz,$(call models,$(N),$(2)))
endef
$(eval $(call ensemble,1,1 2 3))
$(eval $(call ensemble,2,4 5 6))
$(eval $(call ensemble,3,7 8 9))
$(T)/$(N)-ensemble%.json:
	$(CAPBENCH) models combine $^ --out $@

TIGER_HALF := -m tiger --option tiger.d_rel=half --option tiger.tau=1.5
$(eval $(call agreement,half-seed%,$(T)/$(N)-seed%/model.safetensors,$(PYR30),$(JUDGED) $(TIGER_HALF)))
$(eval $(call agreement,half-ensemble%,$(T)/$(N)-ensemble%.json,$(PYR30),$(JUDGED) $(TIGER_HALF)))
$(eval $(call agreement,seed%,$(T)/$(N)-seed%/model.safetensors,$(PYR30),$(JUDGED) -m tiger -m reo))
$(eval $(call agreement,ensemble%,$(T)/$(N)-ensemble%.json,$(PYR30),$(JUDGED) -m tiger -m reo))

# Recall on the test images of seeds 1 to 3.
.PHONY: recall
recall: $(call models,$(N),1 2 3)
	for file in $^; do $(CAPBENCH) train scan $(N) --features $(PYR30) --evaluate test --model $$file; done
