# What the image contributes (docs/results/index.md): agreement with the image, with the mean features of the training images,
# and with another image of the data set; networks of seeds 1 to 3. 20 minutes on one core, and the trainings.
PAGE := image-contribution
METRICS := vilbertscore dual-encoder tiger reo faier leic
CONFIG_vilbertscore := vilbert-flickr8k
CONFIG_dual-encoder := dual-encoder-flickr8k
CONFIG_tiger := scan-flickr8k-grid
CONFIG_reo := scan-flickr8k-grid
CONFIG_faier := faier-flickr8k
CONFIG_leic := leic-flickr8k
AGREEMENT = $(foreach metric,$(METRICS),$(foreach image,seen mean shuffled,$(foreach seed,1 2 3,$(OUT)/$(metric)-$(image)-seed$(seed)/results.md)))
include scripts/reproduce/rules.mk

FEATURES_vilbertscore := $(WINDOWS10)
FEATURES_leic := $(CELLS)
OPTIONS_mean := --option training_images=$(FLICKR8K)/Flickr_8k.trainImages.txt
define contribution
$(eval $(call agreement,$(1)-$(2)-seed%,$(T)/$(CONFIG_$(1))-seed%/model.safetensors,$(or $(FEATURES_$(1)),$(PYR30)),$(JUDGED) -m $(1) --option image=$(2) $(OPTIONS_$(2))))
endef
$(foreach metric,$(METRICS),$(foreach image,seen mean shuffled,$(eval $(call contribution,$(metric),$(image)))))
$(filter $(OUT)/reo-%,$(AGREEMENT)): $(addsuffix .reo.npz,$(call models,scan-flickr8k-grid,1 2 3))
