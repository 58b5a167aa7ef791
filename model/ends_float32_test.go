//go:build !float64

package model

import (
	"math"
	"strings"
	"testing"
)

func TestBatchesFitTheEnds(t *testing.T) {
	all := cases()
	for _, x := range []struct {
		name   string
		change func(*Batch)
		want   string
	}{
		{"numbers", func(b *Batch) { b.Values[17] = float32(math.NaN()) }, "values: row 1, position 1 has NaN"},
		{"numbers", func(b *Batch) { b.Values = b.Values[1:] }, "values: has 23 elements, B·N·inputs is 2·4·3"},
		{"numbers", func(b *Batch) { b.Tokens = make([]int32, 8) }, "tokens: there are 8, but the model reads numbers"},
		{"outputs", func(b *Batch) { b.Values = make([]float32, 8) }, "values: there are 8, but the model reads tokens"},
		{"outputs", func(b *Batch) { b.Targets[5] = 4 }, "targets: row 1, position 1 is 4"},
		{"outputs", func(b *Batch) { b.Numbers = make([]float32, 1) }, "numbers: there are 1, but the targets of this model are classes"},
		{"mean", func(b *Batch) { b.Targets = make([]int32, 8) }, "targets: has 8 elements, 2 are needed"},
		{"mean", func(b *Batch) { b.Targets[1] = 11 }, "targets: row 1 is 11, there are 11 classes"},
		{"pairs", func(b *Batch) { b.B, b.Tokens = 1, b.Tokens[:4] }, "batch: 1 sequences, pairs need an even number"},
		{"squared", func(b *Batch) { b.Numbers = b.Numbers[1:] }, "numbers: has 39 elements, 8 rows of 5 are needed"},
		{"squared", func(b *Batch) { b.Numbers[6] = float32(math.Inf(1)) }, "numbers: row 1 has +Inf"},
		{"squared", func(b *Batch) { b.Targets = make([]int32, 8) }, "targets: there are 8, but the targets of this model are numbers"},
		{"logistics", func(b *Batch) { b.Numbers[1] = 0.5 }, "numbers: row 1 is 0.5, levels are whole numbers from 0 to 255"},
		{"logistics", func(b *Batch) { b.Numbers[2] = 256 }, "numbers: row 2 is 256, levels"},
	} {
		b := batch(all[x.name], 1, 2, 4, false)
		x.change(b)
		if _, err := made(t, all[x.name]).Forward(t.Context(), b); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%s: error is %v, want %q", x.name, err, x.want)
		}
	}
	for _, name := range []string{"numbers decoder", "last", "net"} {
		if _, err := made(t, all[name]).NewSession(1); err == nil {
			t.Errorf("%s has a session", name)
		}
	}
}
