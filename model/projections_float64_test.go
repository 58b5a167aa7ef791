//go:build float64

package model

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/stream"
	"github.com/farfield-ml/farfield/tensor"
)

// overheard keeps what a pass asks of a mechanism.
type overheard struct {
	attention.Mechanism
	o *tensor.Heads
}

func (m overheard) Forward(o tensor.Heads, c *attention.Call, keep *attention.Saved) error {
	err := m.Mechanism.Forward(o, c, keep)
	*m.o = o
	m.o.Data = slices.Clone(o.Data)
	return err
}

// A stream of a layer's projections gives the projections of a pass over the whole
// text. The rounding errors of float64 are far below the tolerance.
func TestProjectionsAreTheLayers(t *testing.T) {
	const n = 37
	streamed := 0
	for name, c := range decoders() {
		c.Context = 40
		m := made(t, c)
		b := batch(c, 3, 1, n, false)
		layers := make([]tensor.Heads, len(m.layers))
		restore := WrapMechanisms(m, func(name string, of attention.Mechanism) attention.Mechanism {
			i := slices.IndexFunc(m.layers, func(l layer) bool { return l.name == name })
			return overheard{of, &layers[i]}
		})
		logits(t, m, b)
		restore()
		for i, want := range layers {
			p, err := newProjections(m, i, n, giving(b.Tokens))
			if err != nil {
				t.Logf("%s, layer %d: %v", name, i, err)
				continue
			}
			var got bytes.Buffer
			r, err := stream.Run(t.Context(), p.layer.Mechanism, p, stream.NewWriterOutput(&got), stream.Options{Causal: true, Window: 8})
			if err != nil {
				t.Logf("%s, layer %d: %v", name, i, err)
				continue
			}
			streamed++
			o := make([]float64, n*c.Heads*want.D)
			if _, err := binary.Decode(got.Bytes(), binary.LittleEndian, o); err != nil || got.Len() != 8*len(o) || r.Tokens != n {
				t.Fatalf("%s, layer %d: %d tokens, %d bytes, %v", name, i, r.Tokens, got.Len(), err)
			}
			limit := 1e-10 * (1 + check.MaxAbs(want.Data))
			for h := range want.H {
				for j := range n {
					if e := check.ErrorRatio(o[(j*want.H+h)*want.D:][:want.D], want.Head(0, h).Row(j), limit); !(e <= 1) {
						t.Fatalf("%s, layer %d, head %d: o of token %d is off by %.3g limits", name, i, h, j, e)
					}
				}
			}
		}
	}
	if streamed < 10 {
		t.Errorf("%d layers were streamed", streamed)
	}
}
