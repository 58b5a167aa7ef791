package reproduce

import "github.com/farfield-ml/farfield/model"

// pixelModel is a published model of pixels (Katharopoulos et al. 2020, section
// 4.2): 8 heads of width 32, an MLP of 1024, and the next level by a mixture of 10
// logistics. A pixel is one of 256 levels; the last token stands before the first.
type pixelModel struct {
	Name   string
	Pixels int // of an image, a value of each channel
	Layers int
}

var (
	mnistPixels = pixelModel{"mnist", 28 * 28, 8}
	cifarPixels = pixelModel{"cifar", 3 * 32 * 32, 16}
)

const (
	pixelLevels = 256
	pixelHeads  = 8
	pixelWidth  = 256
	pixelHidden = 1024
	pixelParts  = 10 // of the mixture
)

func (p *pixelModel) config(m *method) model.Config {
	return model.Config{
		Kind: model.Decoder, Vocab: pixelLevels + 1, Outputs: 3 * pixelParts, Loss: model.Logistics,
		Layers: p.Layers, Heads: pixelHeads, Width: pixelWidth, Hidden: pixelHidden, Context: p.Pixels,
		Positions: model.Learned, Bias: true, Mechanism: m.Name, Order: m.Order, Set: m.Set,
	}
}
