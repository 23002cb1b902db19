# Rules of all results pages; the page's file sets PAGE and AGREEMENT and includes this one. Run from the repository's root:
#   make reproduce-flickr8k-grid, or make -f scripts/reproduce/flickr8k-grid.mk
# A file that exists is a finished step, and an interrupted training resumes. Networks are written to results/train,
# agreement with human ratings to results/reproduce/PAGE. CAPBENCH_DATA names the data folder.
CAPBENCH ?= capbench
SHOW ?= grep '^|'
# The committed results were trained with one thread; ViLBERT's differ with more.
export OMP_NUM_THREADS := 1
FLICKR8K := $(CAPBENCH_DATA)/flickr8k
T := results/train
OUT := results/reproduce/$(PAGE)
CELLS := features/flickr8k-grid.h5
PYR30 := features/flickr8k-grid-pyr30.h5
WINDOWS10 := features/flickr8k-grid-windows10.h5
JUDGED := -p flickr8k-expert/no-own-captions/unaggregated-tau-c -p composite@8k/same-text-out/correctness-tau-c

.SECONDARY:
.DELETE_ON_ERROR:
.PHONY: all
all: $(AGREEMENT)
	@for file in $^; do echo; echo $$file; $(SHOW) $$file; done

$(CELLS):
	$(CAPBENCH) features import $(FLICKR8K)/mobilenetv2_grid49_pca256_int8.npz --detector mobilenetv2-grid-pca256 --out $@
$(PYR30): $(CELLS)
	$(CAPBENCH) features pool $< $@ --windows pyr30
$(WINDOWS10): $(CELLS)
	$(CAPBENCH) features pool $< $@ --windows 3x3/2+7x7/1

# $(call models,CONFIG,SEEDS): the files of networks.
models = $(2:%=$(T)/$(1)-seed%/model.safetensors)
# $(call training,NETWORK,CONFIG,FEATURES): a network for each seed, and the ensemble of seeds 1 to 3.
define training
$(T)/$(2)-seed%/model.safetensors: $(3)
	$$(CAPBENCH) train $(1) $(2) --seed $$* --features $$< --out $$(@D)
$(T)/$(2).json: $(call models,$(2),1 2 3)
	$$(CAPBENCH) models combine $$^ --out $$@
endef
$(eval $(call training,scan,scan-flickr8k-grid,$(PYR30)))
$(eval $(call training,faier,faier-flickr8k,$(PYR30)))
$(eval $(call training,faier,faier-flickr8k-paper,$(PYR30)))
$(eval $(call training,vilbert,vilbert-flickr8k,$(WINDOWS10)))
$(eval $(call training,clip,dual-encoder-flickr8k,$(PYR30)))
$(eval $(call training,leic,leic-flickr8k,$(CELLS)))

# REO's covariance is next to its network.
%.safetensors.reo.npz: %.safetensors $(PYR30)
	$(CAPBENCH) train reo-covariance --model $< --features $(PYR30) --captions flickr8k \
	  --images $(FLICKR8K)/Flickr_8k.trainImages.txt

# $(call agreement,NAME,MODEL,FEATURES,ARGUMENTS): agreement of metrics with one network or ensemble. NAME and MODEL have a %.
define agreement
$(OUT)/$(1)/results.md: $(2) $(3)
	$$(CAPBENCH) correlate $(4) --features $(3) --model $$< --out $$(@D) > /dev/null
endef
