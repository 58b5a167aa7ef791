//go:build !float64

package model

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/nn"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/tensor"
)

// With the vocabulary of GPT-2 the rows go by in stretches, and logits take no
// more memory for more of them.
func TestLargeVocabulary(t *testing.T) {
	const vocab, width, rows = 50257, 4, 100
	r := rand.New(rand.NewPCG(1, 2))
	var set param.Set
	h := head{Linear: new(nn.Linear)}
	h.W = set.New("head", true, vocab, width)
	x, dx := tensor.NewMat(rows, width), tensor.NewMat(rows, width)
	for _, data := range [][]float32{h.W.Data, x.Data} {
		for i := range data {
			data[i] = float32(r.NormFloat64())
		}
	}
	want := make([]int32, rows)
	for i := range want {
		want[i] = r.Int32N(vocab)
	}
	want[3], want[rows-1] = -1, vocab-1

	judged := targets{classes: want}
	losses := make([]float64, rows)
	h.setLosses(losses, x, &judged)
	h.backward(dx, x, &judged, 0.5)
	if n := cap(h.logits); n > headElements*5/4 {
		t.Errorf("%d rows: logits take %d elements, want at most %d", rows, n, headElements)
	}

	wantX, wantW := make([]float64, rows*width), make([]float64, vocab*width)
	p := make([]float64, vocab)
	for i, target := range want {
		if target < 0 {
			if losses[i] != 0 {
				t.Errorf("row %d is not counted, its loss is %v", i, losses[i])
			}
			continue
		}
		var sum float64
		for v := range p {
			var s float64
			for c := range width {
				s += float64(x.Row(i)[c]) * float64(h.W.Data[v*width+c])
			}
			p[v] = math.Exp(s)
			sum += p[v]
		}
		// Logits are below 50 in size. Their error in float32 is at most 50 units, and
		// the relative error of their exponentials is the same.
		if want := math.Log(sum / p[target]); math.Abs(losses[i]-want) > 50*0x1p-22 {
			t.Errorf("row %d: loss %v, want %v", i, losses[i], want)
		}
		for v := range p {
			g := 0.5 * p[v] / sum
			if v == int(target) {
				g -= 0.5
			}
			for c := range width {
				wantX[i*width+c] += g * float64(h.W.Data[v*width+c])
				wantW[v*width+c] += g * float64(x.Row(i)[c])
			}
		}
	}
	for _, g := range []struct {
		name string
		got  []float32
		want []float64
	}{{"dx", dx.Data, wantX}, {"dW", h.W.Grad, wantW}} {
		if ratio := check.ErrorRatio(g.got, g.want, 50*0x1p-22*check.MaxAbs(g.want)); ratio > 1 {
			t.Errorf("%s is off by %.3g of the limit", g.name, ratio)
		}
	}
}
