# The rows of FAIEr's Table 4 on Flickr8k (docs/results/faier-flickr8k.md): three seeds each; four hours on one core. Requires
# SPICE's parser (capbench doctor --install spice).
PAGE := faier-flickr8k-table4
ROWS := fier aier-4-ref fier-aier-4-ref faier-rel-4-ref faier-4-ref faier-rel-1-ref faier-1-ref faier-rel-r-ref faier-r-ref
RUNS := $(foreach row,$(ROWS),faier-flickr8k-$(row)-seed1 faier-flickr8k-$(row)-seed2 faier-flickr8k-$(row)-seed3)
AGREEMENT = $(foreach references,one all none,$(RUNS:%=$(OUT)/$(references)-%/results.md))
include scripts/reproduce/rules.mk
include scripts/reproduce/faier-references.mk

# $(call row,ROW,VARIANT,DRAW,MOST): the networks of a row; its variant, and the sampling and maximum number of references.
define row
$(T)/faier-flickr8k-$(1)-seed%/model.safetensors: $(PYR30)
	$$(CAPBENCH) train faier faier-flickr8k --set network.variant=$(2) --set references.draw=$(3) --set references.most=$(4) --seed $$* --features $$< --out $$(@D)
endef
$(eval $(call row,fier,fier,all,4))
$(eval $(call row,aier-4-ref,aier,all,4))
$(eval $(call row,fier-aier-4-ref,fier+aier,all,4))
$(eval $(call row,faier-rel-4-ref,faier-object,all,4))
$(eval $(call row,faier-4-ref,faier,all,4))
$(eval $(call row,faier-rel-1-ref,faier-object,all,1))
$(eval $(call row,faier-1-ref,faier,all,1))
$(eval $(call row,faier-rel-r-ref,faier-object,random,4))
$(eval $(call row,faier-r-ref,faier,random,4))
