package model

import (
	"slices"
	"sync"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/rng"
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

func TestWatchedShareComputesBesideItsModel(t *testing.T) {
	for _, kind := range []Kind{Decoder, Encoder, EncoderDecoder} {
		m, err := New(Config{Kind: kind, Vocab: 11, Layers: 2, Heads: 2, Width: 8, Context: 16, Positions: Rotary, Mechanism: "softmax"}, rng.New(3))
		if err != nil {
			t.Fatal(err)
		}
		b := &Batch{B: 1, N: 5, Tokens: []int32{1, 2, 3, 4, 5}}
		if kind == EncoderDecoder {
			b.Source, b.SourceN = []int32{6, 7, 8}, 3
		}
		want := make([]float, m.Config().Rows(1, 5)*11)
		if err := m.Logits(t.Context(), b, want); err != nil {
			t.Fatal(err)
		}
		var seen []string
		share := ShareWatched(m, func(name string, of attention.Mechanism, call *attention.Call) error {
			seen = append(seen, name)
			return nil
		})
		var beside sync.WaitGroup
		beside.Go(func() {
			if err := m.Logits(t.Context(), b, make([]float, len(want))); err != nil {
				t.Error(err)
			}
		})
		got := make([]float, len(want))
		if err := share.Logits(t.Context(), b, got); err != nil {
			t.Fatal(err)
		}
		beside.Wait()
		if !slices.Equal(got, want) {
			t.Errorf("%s: the watched pass has other logits", kind)
		}
		if names := m.AttentionNames(); !slices.Equal(seen, names) {
			t.Errorf("%s: saw %q, the model has %q", kind, seen, names)
		}
	}
}
