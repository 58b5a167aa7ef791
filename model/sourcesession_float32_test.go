//go:build !float64

package model

import (
	"slices"
	"testing"
)

func TestSourceSessionKeepsItsLens(t *testing.T) {
	m := made(t, tiny(EncoderDecoder, "softmax"))
	lens := []int64{2}
	var got [2][]float32
	for i := range got {
		s, err := m.NewSourceSession([]int32{1, 2, 3, 4}, lens, 1)
		if err != nil {
			t.Fatal(err)
		}
		if i == 1 {
			lens[0] = 4
		}
		if got[i], err = s.Step(t.Context(), []int32{1}, 1); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(got[0], got[1]) {
		t.Errorf("logits are %v, %v after lens changed", got[0], got[1])
	}
}
