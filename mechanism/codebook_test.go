package mechanism

import (
	"context"
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// sampleKeys returns keys of 2 batch rows, 3 heads and 40 tokens of width 5.
func sampleKeys() tensor.Heads {
	keys := tensor.NewHeads(2, 3, 40, 5)
	for i := range keys.Data {
		keys.Data[i] = float(float32(rng.New(1).Normal(uint64(i))))
	}
	return keys
}

func TestCodebookDependsOnKeysOfItsHeadAlone(t *testing.T) {
	keys := sampleKeys()
	book := func(keys tensor.Heads) []float {
		centres, err := Codebook(t.Context(), keys, 7, 2)
		if err != nil {
			t.Fatal(err)
		}
		return centres
	}
	all := book(keys)
	if len(all) != 3*7*5 {
		t.Fatalf("%d numbers, needs [3,7,5]", len(all))
	}
	// The same keys as heads of a projection: tokens before heads.
	split := tensor.Split(make([]float, 2*40*15), 2, 40, 15, 0, 3, 5)
	for b := range keys.B {
		for h := range keys.H {
			for j := range keys.N {
				copy(split.Head(b, h).Row(j), keys.Head(b, h).Row(j))
			}
		}
	}
	if !slices.Equal(book(split), all) {
		t.Error("centres depend on the layout of the keys")
	}
	defer par.SetThreads(0)
	for _, threads := range []int{1, 3} {
		par.SetThreads(threads)
		if !slices.Equal(book(keys), all) {
			t.Errorf("%d threads give other centres", threads)
		}
	}
	keys.Head(1, 2).Row(39)[0]++
	if after := book(keys); !slices.Equal(after[:2*35], all[:2*35]) || slices.Equal(after[2*35:], all[2*35:]) {
		t.Error("a key of the last head changes centres of others, or none of its own")
	}
	// A centre for each key is the key.
	few, err := Codebook(t.Context(), keys.Tokens(0, 4), 8, 0)
	if err != nil {
		t.Fatal(err)
	}
	for b := range keys.B {
		for j := range 4 {
			row := keys.Head(b, 0).Row(j)
			if !slices.ContainsFunc([]int{0, 1, 2, 3, 4, 5, 6, 7}, func(c int) bool { return slices.Equal(few[c*5:][:5], row) }) {
				t.Errorf("no centre is key %d of batch row %d", j, b)
			}
		}
	}
}

func TestCodebookRefuses(t *testing.T) {
	with := func(x float64) tensor.Heads {
		keys := sampleKeys()
		keys.Head(1, 2).Row(30)[4] = float(x)
		return keys
	}
	for _, x := range []struct {
		keys  tensor.Heads
		cells int
		want  string
	}{
		{tensor.NewHeads(2, 0, 40, 5), 4, "keys: 0 heads of width 5, needs 1 or more of each"},
		{tensor.NewHeads(2, 3, 40, 0), 4, "keys: 3 heads of width 0, needs 1 or more of each"},
		{sampleKeys(), 0, "cells: 0, needs 1 to 65536"},
		{sampleKeys(), -3, "cells: -3, needs 1 to 65536"},
		{tensor.NewHeads(1, 1, 1<<16+1, 1), 1<<16 + 1, "cells: 65537, needs 1 to 65536"},
		{sampleKeys(), 81, "cells: 81, but keys has only 80 of a head"},
		{tensor.NewHeads(0, 3, 40, 5), 1, "cells: 1, but keys has only 0 of a head"},
		{with(math.NaN()), 4, "keys: token 30 of head 2 of batch row 1 has length NaN, needs to be at most 2^62"},
		{with(math.Inf(-1)), 4, "keys: token 30 of head 2 of batch row 1 has length +Inf, needs to be at most 2^62"},
		{with(0x1p63), 4, "keys: token 30 of head 2 of batch row 1 has length 9.223372036854776e+18, needs to be at most 2^62"},
	} {
		if _, err := Codebook(t.Context(), x.keys, x.cells, 0); err == nil || err.Error() != x.want {
			t.Errorf("%v, needs %s", err, x.want)
		}
	}
	short := sampleKeys()
	short.Data = short.Data[:10]
	if _, err := Codebook(t.Context(), short, 4, 0); err == nil {
		t.Error("keys beyond their data are taken")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Codebook(ctx, sampleKeys(), 4, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("after the end of its context: %v", err)
	}
}
