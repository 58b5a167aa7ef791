package pretrained

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"

	"github.com/farfield-ml/farfield/internal/exchange"
	"github.com/farfield-ml/farfield/internal/exchanged"
	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/internal/published"
)

// ExchangeOptions holds the choices of WriteExchanged. A zero field is chosen by WriteExchanged.
type ExchangeOptions struct {
	Cosine float64 // least mean cosine between the vectors of an encoder before and after; 0: 0.99
	Nats   float64 // nats a token that a decoder may lose; 0: 0.02
	// Cells, Order, Block and Window are taken as given; nil: chosen. If one is given, and neither
	// Cosine nor Nats, the others have their defaults and any loss is allowed.
	Cells, Order, Block, Window *int
	Length                      int // tokens of a sequence for which cost is counted; 0: the context, at most 4096
	// Positions is "" or Interpolate. Interpolate stretches learned positions for texts of Length
	// tokens, and the folder out is then opened with them.
	Positions string
	Tokens    int // tokens of texts whose keys make the codebooks; 0: 16384
	// Fit is how many of these tokens are used to fit cells of orders 0 and 1 to the trained
	// model's attention; nil: 8192 at most, and none if Order 2 is given, which has no fit.
	Fit *int
	// Updates is how often the queries of fitted cells are then trained towards the outputs of the
	// trained model; 0: never. It needs a Fit above 0, weights in f32 and two windows of text. The
	// result is kept if it loses less on windows set aside, and does not lose a wish that was met.
	Updates int
	Seed    uint64
	// Progress is called with each step and the share of the work that is done. It may be nil.
	Progress func(step string, share float64)
}

// WriteExchanged puts multipole attention, whose cost is linear in the tokens, in place of the
// softmax of the published model in dir, and writes the new model to the folder out, which Open
// reads. It makes codebooks of the keys of texts, and chooses the cheapest cells and near field
// that keep the wished quality on the last fifth of the texts. If none does, it leaves some layers
// as they are. page says in Markdown what the model loses, and whether its near field alone would
// do as well. WriteExchanged returns an error if out exists, if the model cannot have the
// mechanism, if the texts are too short, if the wish can only be met with every layer unchanged, if
// ctx ends, or if a file cannot be written.
func WriteExchanged(ctx context.Context, out, dir string, texts []string, o ExchangeOptions) (page []byte, err error) {
	m, err := published.OpenWith(dir, published.Options{Positions: o.Positions})
	if err != nil {
		return nil, err
	}
	subject, err := m.ExchangeSubject()
	if err != nil {
		return nil, err
	}
	n := subject.WindowTokens(o.Length)
	var windows [][]int32
	for _, text := range texts {
		list, err := m.Windows(text, n)
		if err != nil {
			return nil, err
		}
		windows = append(windows, list...)
	}
	x := exchange.Options{Cells: o.Cells, Order: o.Order, Block: o.Block, Window: o.Window, Length: cmp.Or(o.Length, n), Updates: o.Updates, Seed: o.Seed, Say: o.Progress}
	if o.Cosine != 0 || o.Nats != 0 {
		x.Wish = &exchange.Wish{Cosine: o.Cosine, Nats: o.Nats}
	}
	var in exchange.Texts
	tokens := exchange.BoundTokens(m.Config(), cmp.Or(o.Tokens, exchange.DefaultTokens))
	if x.Fit, err = exchange.FitTokens(o.Fit, o.Order, tokens); err != nil {
		return nil, fault.Mark(fault.ErrInput, err)
	}
	if in.Calibration, in.HeldOut, err = exchange.CutWindows(windows, tokens); err != nil {
		return nil, fault.Mark(fault.ErrInput, err)
	}
	r, err := exchange.Run(ctx, subject, in, x)
	if err != nil {
		return nil, err
	}
	page = r.Page(filepath.Base(dir))
	if len(r.Exchanged) == 0 {
		return page, fmt.Errorf("%s: the wish is met only with every layer exact", dir)
	}
	return page, exchanged.Write(out, dir, r.Manifest(), r.Numbers(), map[string][]byte{exchanged.PageFile: page})
}
