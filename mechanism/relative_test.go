package mechanism

import (
	"math"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// The bucket grows with the distance, singly at first and by powers up to the last.
func TestDistanceBuckets(t *testing.T) {
	for distance, want := range map[int]int{
		0: 0, -1: 1, -7: 7, -8: 8, -11: 8, -12: 9, -15: 9, -16: 10, -31: 11, -32: 12, -63: 13, -64: 14, -90: 14, -91: 15, -127: 15, -128: 15, -500: 15,
		1: 17, 7: 23, 8: 24, 16: 26, 32: 28, 64: 30, 127: 31, 500: 31,
	} {
		if got := distanceBucket(distance, 32); got != want {
			t.Errorf("distance %d is in bucket %d, want %d", distance, got, want)
		}
	}
}

// Outputs are the plain softmax of scores with their terms, and gradients its slopes.
func TestRelativeSoftmax(t *testing.T) {
	const b, h, n, d, buckets = 2, 3, 150, 4, 8
	m, err := NewRelativeSoftmax[float64](h, buckets)
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
	var in [3]tensor.Heads[float64]
	for i := range in {
		in[i] = tensor.NewHeads[float64](b, h, n, d)
		fill(uint64(2+i), in[i].Data)
	}
	dout := tensor.NewHeads[float64](b, h, n, d)
	fill(9, dout.Data)
	for _, causal := range []bool{false, true} {
		c := &attention.Call[float64]{Q: in[0], K: in[1], V: in[2], KeyLens: []int64{n, 40}, Causal: causal}
		out := tensor.NewHeads[float64](b, h, n, d)
		sum := func(keep *attention.Saved[float64]) (s float64) {
			if err := m.Forward(out, c, keep); err != nil {
				t.Fatal(err)
			}
			for i, x := range out.Data {
				s += x * dout.Data[i]
			}
			return s
		}
		var keep attention.Saved[float64]
		sum(&keep)
		for row := range b {
			for head := range h {
				for i := range n {
					want, all := make([]float64, d), 0.0
					for j := range int(c.KeyLens[row]) {
						if causal && j > i {
							break
						}
						score := table.Data[distanceBucket(j-i, buckets)*h+head]
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
		g := attention.Grads[float64]{DQ: tensor.NewHeads[float64](b, h, n, d), DK: tensor.NewHeads[float64](b, h, n, d), DV: tensor.NewHeads[float64](b, h, n, d)}
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
		for i, dx := range []tensor.Heads[float64]{g.DQ, g.DK, g.DV} {
			if got, want := dx.Data[77], slope(&in[i].Data[77]); math.Abs(got-want) > 1e-6*(1+math.Abs(want)) {
				t.Errorf("causal %t: gradient of input %d is %v, want %v", causal, i, got, want)
			}
		}
	}
	for _, buckets := range []int{2, 7, 258} {
		if _, err := NewRelativeSoftmax[float64](h, buckets); err == nil {
			t.Errorf("%d buckets are accepted", buckets)
		}
	}
	for _, heads := range []int{-1, 0, 1 << 40} {
		if _, err := NewRelativeSoftmax[float64](heads, buckets); err == nil {
			t.Errorf("%d heads are accepted", heads)
		}
	}
}
