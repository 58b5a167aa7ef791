//go:build !float64

package headwise

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/attention/internal/calltest"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
)

func TestWeightedCausalBits(t *testing.T) {
	defer par.SetThreads(0)
	const n = 3 * sumChunk
	r := rand.New(rand.NewPCG(11, 11))
	q, k, v := calltest.Convert(calltest.Normal(r, 4, 4, n, 32)), calltest.Convert(calltest.Normal(r, 4, 2, n, 32)), calltest.Convert(calltest.Normal(r, 4, 2, n, 32))
	run := func(threads int) [][]float32 {
		par.SetThreads(threads)
		out, dq, dk, dv := calltest.Poisoned(4, 4, n, 32), calltest.Poisoned(4, 4, n, 32), calltest.Poisoned(4, 2, n, 32), calltest.Poisoned(4, 2, n, 32)
		dw := make([]float32, n)
		if err := WeightedCausal(out, nil, q, k, v); err != nil {
			t.Fatal(err)
		}
		if err := WeightedCausalGrad(dw, dq, dk, dv, out, nil, q, k, v); err != nil {
			t.Fatal(err)
		}
		return [][]float32{out.Data, dq.Data, dk.Data, dv.Data, dw}
	}
	one, two := run(1), run(3)
	for i := range one {
		if !slices.Equal(one[i], two[i]) {
			t.Errorf("result %d depends on the threads", i)
		}
	}
	// The future changes no bit.
	before := slices.Clone(one[0][:(n-1)*32])
	for c := range 32 {
		k.Head(0, 0).Row(n - 1)[c] *= 3
		v.Head(0, 0).Row(n - 1)[c] -= 5
	}
	if after := run(2)[0]; !slices.Equal(before, after[:(n-1)*32]) {
		t.Error("the last token changes an output before it")
	}
}

func TestWeightedCausalRefuses(t *testing.T) {
	q, k, v := tensor.NewHeads(1, 2, 3, 4), tensor.NewHeads(1, 1, 3, 4), tensor.NewHeads(1, 1, 3, 2)
	out := tensor.NewHeads(1, 2, 3, 2)
	for want, err := range map[string]error{
		"k: N is 2, q has 3":                        WeightedCausal(out, nil, q, k.Tokens(0, 2), v.Tokens(0, 2)),
		"w: has 2 elements, N is 3":                 WeightedCausal(out, make([]float32, 2), q, k, v),
		"out: shape is [1,1,3,2], needs [1,2,3,2]":  WeightedCausal(v, nil, q, k, v),
		"dw: has 1 elements, N is 3":                WeightedCausalGrad(make([]float32, 1), q, k, v, out, nil, q, k, v),
		"dk: shape is [1,2,3,4], needs [1,1,3,4]":   WeightedCausalGrad(nil, q, q, v, out, nil, q, k, v),
		"k: 3 heads do not divide the 2 heads of q": WeightedCausal(out, nil, q, tensor.NewHeads(1, 3, 3, 4), tensor.NewHeads(1, 3, 3, 2)),
	} {
		if err == nil || err.Error() != want {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}
