package model

import (
	"slices"
	"testing"
)

// A model that shares the weights of a frozen model drops the copy with it.
func TestThawReachesSharedModels(t *testing.T) {
	c := with(tiny(Decoder, "softmax"), func(c *Config) { c.Tied = false })
	m := made(t, c)
	m.Freeze()
	shared := m.Share()
	m.Thaw()
	for i := range m.head.W.Data {
		m.head.W.Data[i]++
	}
	if b := batch(c, 1, 1, 7, false); !slices.Equal(logits(t, shared, b), logits(t, m, b)) {
		t.Error("a shared model has the weights of before")
	}
}
