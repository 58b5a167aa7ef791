package exchange

import (
	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// call returns a call of a layer of n tokens, whose keys are those of the calibration in turn, and
// room for its outputs.
func (r *run) call(layer, n int) (*attention.Call, tensor.Heads) {
	k := r.keys[layer]
	c := &attention.Call{Causal: k.causal,
		Q: tensor.NewHeads(1, k.heads, n, k.d), K: tensor.NewHeads(1, k.keyHeads, n, k.d), V: tensor.NewHeads(1, k.keyHeads, n, k.dv)}
	key := rng.New(r.Seed)
	for i := range c.Q.Data {
		c.Q.Data[i] = float32(key.Normal(uint64(i)))
	}
	for i := range c.V.Data {
		c.V.Data[i] = float32(key.Fold(1).Normal(uint64(i)))
	}
	for h := range k.keyHeads {
		to, rows := c.K.Data[h*n*k.d:][:n*k.d], k.rows[h]
		for len(to) > 0 {
			to = to[copy(to, rows):]
		}
	}
	return c, tensor.NewHeads(1, k.heads, n, k.dv)
}
