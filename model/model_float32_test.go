//go:build !float64

package model

import (
	"reflect"
	"slices"
	"testing"
)

// elements counts what a trace holds. The views of a call, of its gradients and
// its input are of memory counted elsewhere; the sums of keys that attention.Saved holds in its
// field Moments depend on the form that is chosen, not on the tokens. What two fields share counts
// once.
func elements(v reflect.Value) int { return unseenElements(v, map[uintptr]bool{}) }

func unseenElements(v reflect.Value, seen map[uintptr]bool) (n int) {
	switch v.Kind() {
	case reflect.Interface:
		if !v.IsNil() {
			return unseenElements(v.Elem().Elem(), seen) // a trace, by its pointer
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if name := v.Type().Field(i).Name; name != "call" && name != "grads" && name != "in" && name != "source" && name != "Moments" {
				n += unseenElements(v.Field(i), seen)
			}
		}
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Float32 {
			if v.Kind() == reflect.Slice && v.Len() > 0 {
				if seen[v.Pointer()] {
					return 0
				}
				seen[v.Pointer()] = true
			}
			return v.Len()
		}
		for i := range v.Len() {
			n += unseenElements(v.Index(i), seen)
		}
	}
	return n
}

// The table of the package's comment.
func TestEveryActivationIsAccountedFor(t *testing.T) {
	for name, c := range cases() {
		m := made(t, c)
		b := batch(c, 1, 4, 6, false)
		loss(t, m, b)
		kept := elements(reflect.ValueOf(m.train.main)) + elements(reflect.ValueOf(m.train.encoder)) +
			elements(reflect.ValueOf(m.train.net)) + elements(reflect.ValueOf(m.train.pool))
		// Pooling and the units before the head.
		rows := c.Rows(b.B, b.N)
		kept -= rows * c.HeadHidden
		if c.HeadActivation != "" && c.HeadActivation != ReLU {
			kept -= rows * c.HeadHidden
		}
		if c.HeadNorm {
			kept -= rows * (c.HeadHidden + 2)
		}
		if c.Pool != "" {
			kept -= b.B * c.pooledWidth() / max(c.Parts*c.Parts, 1)
		}
		if c.Parts == 2 {
			kept -= b.B / 2 * c.pooledWidth()
		}
		if c.Kind == Convolutional {
			want := b.B * b.N * (c.Conv*c.Inputs + (c.Layers-2)*c.Conv*c.Width + (c.Layers-1)*c.Width + c.Conv*c.Width)
			if c.Mechanism != "" {
				want += b.B * b.N * (2*c.Width + 2*c.kvHeads()*c.headWidth() + c.Heads + c.Width)
			}
			if kept != want {
				t.Errorf("%s: %d elements are kept, the table has %d", name, kept, want)
			}
			continue
		}
		b.N += c.frontPositions()
		w, q, kv := c.Width, c.Heads*c.headWidth(), 2*c.kvHeads()*c.headWidth()
		h := q + c.Heads
		norm := 2*w + 2
		units := 2
		if c.mlpKind().gated {
			units = 3
		}
		layer := norm + q + h + kv + norm + units*c.hiddenWidth()
		if c.QKNorm {
			layer += q + kv/2 + 2*(c.Heads+c.kvHeads())
		}
		if c.AttentionNorm {
			layer += q + 2*c.Heads
		}
		if c.BranchNorm {
			layer += 2 * (w + 2)
		}
		if c.Set["window"] != "" {
			layer += q + 7*c.Heads
		}
		if c.Conv > 0 {
			layer += 2 * w
		}
		entry := 0
		if c.EntryNorm {
			entry = w + 2
		}
		want := b.B * b.N * (c.Layers*layer + norm + entry)
		// Whole heads have no denominators, but what their mechanism keeps.
		switch c.Mechanism {
		case "fourier":
			want -= b.B * b.N * c.Layers * c.Heads
		case "mamba-2": // in place of queries, keys, values, outputs and denominators
			state, groups := 3, 1
			if c.Set["groups"] != "" {
				state, groups = 4, 3
			}
			inner := 2 * w
			want += b.B * b.N * c.Layers * (7*inner + 6*groups*state + 4*c.Heads - w - h - kv)
		case "crate": // one projection, and a step as wide as the model
			want += b.B * b.N * c.Layers * (2*w - 2*c.hiddenWidth() - kv)
		case "retnet": // values, gates, outputs and what is projected are wider; rotations are of places
			inner := 2 * w
			if c.Set["expand"] == "1" {
				inner = w
			}
			want += b.B*b.N*c.Layers*(4*inner-kv) + b.N*c.Layers*2*(c.headWidth()/2)
		case "hyena": // two long convolutions; filters are of places
			want += b.B*b.N*c.Layers*(10*w-w-h-kv) + b.N*c.Layers*(3+3*2*4+2*w)
		case "linformer": // mixtures of keys and values, and a logarithm for each query
			want += b.B * c.Layers * c.Heads * 3 * 2 * c.headWidth()
		}
		if c.hasDecay() {
			want += b.B * b.N * c.Layers * c.kvHeads()
		}
		if c.Kind == EncoderDecoder {
			want += b.B * b.N * c.Layers * (norm + w + h)                                   // cross-attention
			want += b.B * b.SourceN * (c.sourceLayers()*layer + c.Layers*kv + norm + entry) // encoder, and keys of the source
		}
		if kept != want {
			t.Errorf("%s: %d elements are kept, the table has %d", name, kept, want)
		}
	}
}

func TestLaterTokensChangeNothing(t *testing.T) {
	for name, c := range cases() {
		if !c.IsCausal() || c.Pool != "" {
			continue
		}
		c.Context = 40
		if c.PositionTable > 0 {
			c.PositionTable = 44
		}
		m := made(t, c)
		b := batch(c, 3, 2, 37, false)
		before := logits(t, m, b)
		for _, at := range []int{1, 16, 36} {
			changed := *b
			changed.Tokens, changed.Values = slices.Clone(b.Tokens), slices.Clone(b.Values)
			for row := range b.B {
				if c.Inputs > 0 {
					changed.Values[(row*b.N+at)*c.Inputs]++
					continue
				}
				id := &changed.Tokens[row*b.N+at]
				*id = (*id + 1) % int32(c.Vocab)
			}
			after := logits(t, m, &changed)
			for row := range b.B {
				outputs := c.outputSize()
				lo, hi := row*b.N*outputs, (row*b.N+at)*outputs
				if !slices.Equal(before[lo:hi], after[lo:hi]) {
					t.Errorf("%s: token %d changes logits before it", name, at)
				}
				if slices.Equal(before[hi:hi+outputs], after[hi:hi+outputs]) {
					t.Errorf("%s: token %d does not change its own logits", name, at)
				}
			}
		}
	}
}
