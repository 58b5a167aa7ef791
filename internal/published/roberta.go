package published

import "github.com/farfield-ml/farfield/model"

// readRoBERTa reads roberta (Liu et al. 2019, arXiv 1907.11692) and xlm-roberta (Conneau
// et al. 2020, arXiv 1911.02116).
func readRoBERTa(f *fields, h head) *plan {
	p := f.encoder(h, "roberta")
	p.padPositions(f, 1)
	p.addBERTLayers()
	p.addRoBERTaHead(f)
	return p
}

// padPositions sets the positions that count from the id of padding.
func (p *plan) padPositions(f *fields, byDefault int) {
	c := &p.config
	if p.padPosition = f.id("pad_token_id"); p.padPosition < 0 {
		p.padPosition = byDefault
	}
	c.PositionOffset = p.padPosition + 1
	if c.Context = c.PositionTable - c.PositionOffset; c.Context < 1 {
		f.fail("max_position_embeddings", "is %d, but positions begin at %d", c.PositionTable, c.PositionOffset)
		c.Context = 1
	}
}

// addRoBERTaHead adds the heads that roberta and mpnet have.
func (p *plan) addRoBERTaHead(f *fields) {
	c := &p.config
	w := c.Width
	switch p.head {
	case bodyHead:
		p.addPooler("pooler.dense")
	case sequenceHead:
		c.Pool, c.HeadHidden, c.HeadActivation = model.PoolFirst, w, model.Tanh
		p.addLinear("classifier.dense", "head_hidden", true, w, w)
		p.addLinear("classifier.out_proj", "head", true, c.Outputs, w)
	case tokenHead:
		p.addLinear("classifier", "head", true, c.Outputs, w)
	case maskedHead:
		c.HeadHidden, c.HeadActivation, c.HeadNorm = w, model.GELU, true
		p.addLinear("lm_head.dense", "head_hidden", true, w, w)
		p.addNorm("lm_head.layer_norm", "head_norm", true, w)
		p.addDecoder(f, "lm_head.decoder", "lm_head.bias")
	}
	p.unused = []string{"lm_head.", "pooler.", "classifier."}
}
