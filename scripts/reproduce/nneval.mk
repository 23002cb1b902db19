# NNEval on COCO's machine captions (docs/results/nneval.md), trained in five ways, three seeds each, with the word vectors
# VECTORS (GloVe 6B, 100 components). Half an hour, and as long for SPICE's parser at first (capbench doctor --install spice).
# PASCAL-50S has one caption of 215 words more than the page's numbers; its parse requires 8 GB of memory.
PAGE := nneval
VECTORS ?= glove.6B.100d.txt
KINDS := coco coco-tau paper foreign monotone
RUNS := inputs $(foreach kind,$(KINDS),nneval-$(kind)-seed1 nneval-$(kind)-seed2 nneval-$(kind)-seed3)
AGREEMENT = $(RUNS:%=$(OUT)/%/results.md)
include scripts/reproduce/rules.mk

PROTOCOLS := -p composite/same-text-out/correctness-tau-c -p composite/any-candidate-out/correctness-tau-c \
  -p flickr8k-expert/no-own-captions/unaggregated-tau-c -p pascal-50s/json-5-refs/direct-strict \
  -p distractions/own-caption-out/right-strict

# $(call kind,KIND,CONFIG,SETTINGS)
define kind
$(T)/nneval-$(1)-seed%/model.safetensors: $(VECTORS)
	$$(CAPBENCH) train nneval $(2) --seed $$* --vectors $$< --out $$(@D) $(3)
endef
$(eval $(call kind,coco,nneval-coco))
$(eval $(call kind,coco-tau,nneval-coco,--set stopping.protocol=flickr8k-expert/all-pairs/mode-tau-b))
$(eval $(call kind,paper,nneval-coco-paper,--set evaluation.patience=20))
$(eval $(call kind,foreign,nneval-coco-foreign))
$(eval $(call kind,monotone,nneval-coco-monotone))

$(OUT)/inputs/results.md: $(VECTORS)
	$(CAPBENCH) correlate $(PROTOCOLS) -m meteor -m wmd -m bleu -m spice -m cider --option wmd.vectors=$< \
	  --option cider.df=coco-val --out $(@D) > /dev/null
$(OUT)/%/results.md: $(T)/%/model.safetensors $(VECTORS)
	$(CAPBENCH) correlate $(PROTOCOLS) -m nneval --option nneval.vectors=$(VECTORS) --model $< --out $(@D) > /dev/null
