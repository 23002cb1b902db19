# Agreement of FAIEr's networks and ensembles with all references, without any and with one (five draws).
ONE := -p flickr8k-expert/one-reference/unaggregated-tau-c -p composite@8k/one-reference/correctness-tau-c
define references
$(eval $(call agreement,all-$(1),$(2),$(PYR30),$(JUDGED) -m faier --option faier.references=all))
$(eval $(call agreement,none-$(1),$(2),$(PYR30),$(JUDGED) -m faier --option faier.references=none))
$(eval $(call agreement,one-$(1),$(2),$(PYR30),$(ONE) -m faier --option faier.references=all))
endef
$(eval $(call references,%,$(T)/%/model.safetensors))
$(eval $(call references,%,$(T)/%.json))
