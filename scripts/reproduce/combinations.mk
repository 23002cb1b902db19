# Combinations of metrics (docs/results/combinations.md): of text metrics, and with the stored scores of trained ones, so that
# nothing is trained. Ten minutes, and an hour of SPICE's parser at first (capbench doctor --install spice).
PAGE := combinations
TEXT := $(addprefix -m ,bleu-1 bleu-4 rouge-l meteor cider spice)
# $(call stored,FILE,COLUMNS): columns of stored scores.
stored = --scores results/leaderboard/scores/$(1).csv.gz $(addprefix -m ,$(2))
READ := -m meteor -m cider $(call stored,spice-parsed,spice-parsed) $(call stored,wmd-glove,wmd-glove) \
  $(call stored,nneval-coco,nneval-foreign) $(call stored,bertscore-bert,bertscore-f-bert) $(call stored,bert-tbr-bert,bert-tbr-bert)
TRAINED := $(READ) $(call stored,scan-flickr8k-grid,tiger-8k reo-relevance-8k reo-extraness-8k reo-omission-8k) \
  $(call stored,faier-flickr8k,faier-8k) $(call stored,vifidel-glove,vifidel-ref-glove) \
  $(call stored,dual-encoder-flickr8k,ref-dual-encoder-8k) $(call stored,vilbert-flickr8k,vilbertscore-f-8k)
RATINGS := ridge monotone
PAIRS := logistic monotone
AGREEMENT = $(foreach set,expert composite expert-trained composite-8k-trained composite-trained,$(RATINGS:%=$(OUT)/$(set)-%.txt)) \
  $(foreach set,pascal pascal-random pascal-trained,$(PAIRS:%=$(OUT)/$(set)-%.txt))
SHOW := cat
include scripts/reproduce/rules.mk

EXPERT := flickr8k-expert/no-own-captions/unaggregated-tau-c
COMPOSITE := composite/same-text-out/correctness-tau-c
PASCAL := pascal-50s/json-5-refs/direct-strict
# $(call combination,NAME,ARGUMENTS): a combination by each learner.
define combination
$(OUT)/$(1)-%.txt:
	mkdir -p $$(@D)
	$$(CAPBENCH) train combination $(2) --learner $$* > $$@
endef
$(eval $(call combination,expert,-d flickr8k-expert -p $(EXPERT) $(TEXT)))
$(eval $(call combination,composite,-d composite -p $(COMPOSITE) $(TEXT)))
$(eval $(call combination,pascal,-d pascal-50s -p $(PASCAL) $(TEXT)))
$(eval $(call combination,pascal-random,-d pascal-50s -p pascal-50s/random-5-refs/direct-strict $(TEXT)))
$(eval $(call combination,expert-trained,-d flickr8k-expert -p $(EXPERT) $(TRAINED)))
$(eval $(call combination,composite-8k-trained,-d composite@8k -p composite@8k/same-text-out/correctness-tau-c $(TRAINED)))
$(eval $(call combination,composite-trained,-d composite -p $(COMPOSITE) $(READ)))
$(eval $(call combination,pascal-trained,-d pascal-50s -p $(PASCAL) $(READ)))
