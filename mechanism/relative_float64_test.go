//go:build float64

package mechanism

import (
	"math"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/mechanism/internal/zoo"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// Outputs are the plain softmax of scores with their terms, and gradients its slopes.
func TestRelativeSoftmax(t *testing.T) {
	const b, h, n, d, buckets = 2, 3, 150, 4, 8
	m, err := NewRelativeSoftmax(h, buckets)
	if err != nil {
		t.Fatal(err)
	}
	fill := func(seed uint64, x []float64) {
		for i := range x {
			x[i] = rng.New(seed).Normal(uint64(i))
		}
	}
	table := m.Params().All()[0]
	fill(1, table.Data)
	var in [3]tensor.Heads
	for i := range in {
		in[i] = tensor.NewHeads(b, h, n, d)
		fill(uint64(2+i), in[i].Data)
	}
	dout := tensor.NewHeads(b, h, n, d)
	fill(9, dout.Data)
	for _, causal := range []bool{false, true} {
		c := &attention.Call{Q: in[0], K: in[1], V: in[2], KeyLens: []int64{n, 40}, Causal: causal}
		out := tensor.NewHeads(b, h, n, d)
		sum := func(keep *attention.Saved) (s float64) {
			if err := m.Forward(out, c, keep); err != nil {
				t.Fatal(err)
			}
			for i, x := range out.Data {
				s += x * dout.Data[i]
			}
			return s
		}
		var keep attention.Saved
		sum(&keep)
		for row := range b {
			for head := range h {
				for i := range n {
					want, all := make([]float64, d), 0.0
					for j := range int(c.KeyLens[row]) {
						if causal && j > i {
							break
						}
						score := table.Data[zoo.DistanceBucket(j-i, buckets)*h+head]
						for x, q := range in[0].Head(row, head).Row(i) {
							score += q * in[1].Head(row, head).Row(j)[x] / math.Sqrt(d)
						}
						w := math.Exp(score)
						all += w
						for x, v := range in[2].Head(row, head).Row(j) {
							want[x] += w * v
						}
					}
					for x, got := range out.Head(row, head).Row(i) {
						if math.Abs(got-want[x]/all) > 1e-13 {
							t.Fatalf("causal %t, row %d, head %d, query %d: %v, want %v", causal, row, head, i, got, want[x]/all)
						}
					}
				}
			}
		}
		g := attention.Grads{DQ: tensor.NewHeads(b, h, n, d), DK: tensor.NewHeads(b, h, n, d), DV: tensor.NewHeads(b, h, n, d)}
		clear(table.Grad)
		if err := m.Backward(&g, dout, out, c, &keep); err != nil {
			t.Fatal(err)
		}
		slope := func(x *float64) float64 {
			const step = 1e-4
			at := *x
			*x = at + step
			up := sum(nil)
			*x = at - step
			down := sum(nil)
			*x = at
			return (up - down) / (2 * step)
		}
		for i := range table.Data {
			if got, want := table.Grad[i], slope(&table.Data[i]); math.Abs(got-want) > 1e-6*(1+math.Abs(want)) {
				t.Errorf("causal %t: gradient %d of the table is %v, want %v", causal, i, got, want)
			}
		}
		for i, dx := range []tensor.Heads{g.DQ, g.DK, g.DV} {
			if got, want := dx.Data[77], slope(&in[i].Data[77]); math.Abs(got-want) > 1e-6*(1+math.Abs(want)) {
				t.Errorf("causal %t: gradient of input %d is %v, want %v", causal, i, got, want)
			}
		}
	}
	for _, buckets := range []int{2, 7, 258} {
		if _, err := NewRelativeSoftmax(h, buckets); err == nil {
			t.Errorf("%d buckets are accepted", buckets)
		}
	}
	for _, heads := range []int{-1, 0, 1 << 40} {
		if _, err := NewRelativeSoftmax(heads, buckets); err == nil {
			t.Errorf("%d heads are accepted", heads)
		}
	}
}
