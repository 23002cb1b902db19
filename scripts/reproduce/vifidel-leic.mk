# VIFIDEL and LEIC on Flickr8k (docs/results/vifidel-leic.md): VIFIDEL and WMD with the word vectors VECTORS; three networks of
# LEIC and their ensemble, with the mean image vector, too; LEIC against twelve systems, in five folds. 20 minutes on one core.
PAGE := vifidel-leic
VECTORS ?= glove.6B.100d.txt
RUNS := leic-flickr8k-seed1 leic-flickr8k-seed2 leic-flickr8k-seed3 leic-flickr8k
AGREEMENT = $(OUT)/vifidel/results.md $(RUNS:%=$(OUT)/%/results.md) $(RUNS:%=$(OUT)/mean-%/results.md) $(OUT)/leic-parts/results.md
include scripts/reproduce/rules.mk

$(OUT)/vifidel/results.md: $(VECTORS)
	$(CAPBENCH) correlate $(JUDGED) -m vifidel -m wmd --option wmd.vectors=$< --option vifidel.vectors=$< \
	  --option vifidel.labels=$(FLICKR8K)/yolox_nano_boxes.npz --option vifidel.classes=coco-80 \
	  --option vifidel.threshold=0.03 --option vifidel.repeats=once --out $(@D) > /dev/null
$(T)/leic-part%/model.safetensors: $(CELLS)
	$(CAPBENCH) train leic leic-flickr8k-systems --features $< --set folds.out=$* --seed 1 --out $(@D)
$(T)/leic-parts.json: $(foreach part,1 2 3 4 5,$(T)/leic-part$(part)/model.safetensors)
	$(CAPBENCH) models combine $^ --out $@

MEAN := --option image=mean --option training_images=$(FLICKR8K)/Flickr_8k.trainImages.txt
$(eval $(call agreement,mean-%,$(T)/%/model.safetensors,$(CELLS),$(JUDGED) -m leic $(MEAN)))
$(eval $(call agreement,mean-%,$(T)/%.json,$(CELLS),$(JUDGED) -m leic $(MEAN)))
$(eval $(call agreement,%,$(T)/%/model.safetensors,$(CELLS),$(JUDGED) -m leic))
$(eval $(call agreement,%,$(T)/%.json,$(CELLS),$(JUDGED) -m leic))
