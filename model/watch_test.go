package model

import (
	"testing"

	"github.com/farfield-ml/farfield/attention"
)

// An inner watch that ends leaves the outer one whole.
func TestInnerWatchEnds(t *testing.T) {
	m := made(t, tiny(Decoder, "softmax"))
	look := func(string, attention.Mechanism, *attention.Call) error { return nil }
	outer := Watch(m, look)
	Watch(m, look)()
	if !m.layers[0].attn.Undivided {
		t.Error("the layer is divided while it is watched")
	}
	if outer(); m.layers[0].attn.Undivided {
		t.Error("the layer is not divided after it was watched")
	}
}
