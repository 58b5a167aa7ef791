package reproduce

import "github.com/farfield-ml/farfield/model"

// lraTask is a task of the Long Range Arena, in the setting of the PyTorch codes
// (Nyströmformer, Skyformer) that FAST's tables agree with: 2 layers of width 64
// with 2 heads, an MLP of 128 and a head of 128 units on the mean of all outputs.
type lraTask struct {
	Name    string
	N       int // tokens of a sequence
	Vocab   int
	Classes int
	Batch   int // of Skyformer; of pairs where Parts is 2
	Parts   int
}

var lraTasks = []lraTask{
	{"listops", 2000, 17, 10, 32, 1},
	{"text", 4000, 257, 2, 32, 1},
	{"retrieval", 4000, 257, 2, 16, 2},
	{"image", 1024, 256, 10, 256, 1},
	{"pathfinder", 1024, 256, 2, 128, 1},
}

const (
	lraLayers = 2
	lraWidth  = 64
	lraHeads  = 2
	lraHidden = 128
)

// config returns the published model with a mechanism.
func (t *lraTask) config(m *method) model.Config {
	return model.Config{
		Kind: model.Encoder, Vocab: t.Vocab, Outputs: t.Classes, Pool: model.PoolMean, Parts: t.Parts, HeadHidden: lraHidden,
		Layers: lraLayers, Heads: lraHeads, Width: lraWidth, Hidden: lraHidden, Context: t.N,
		Positions: model.Learned, Bias: true,
		Mechanism: m.Name, Order: m.Order, Set: m.Set,
	}
}

// lraFLOPs counts forward operations of a token in the published model, as
// projections, MLP and attention: 8wd + 4wm and either 4Nd for all pairs, or
// 4F(D+1) a head with F features.
func lraFLOPs(n, features int) float64 {
	const d = lraWidth / lraHeads
	layer := float64(8*lraWidth*lraWidth + 4*lraWidth*lraHidden)
	if features == 0 {
		return lraLayers * (layer + float64(4*n*lraWidth))
	}
	return lraLayers * (layer + float64(4*features*(d+1)*lraHeads))
}
