package farfield

import (
	"fmt"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/tensor"
)

// Options says how Attend reads its slices and what it computes.
type Options struct {
	Width  int               // D, channels of a query and a key per head
	Heads  int               // query heads; 0 means 1
	KV     int               // key heads; 0 means Heads, otherwise it divides Heads
	Keys   int               // M, keys per head; 0: as many as queries
	Causal bool              // query i sees keys j ≤ i + (M-N)
	Order  int               // p of fastmax and taylorshift; 0: their default
	Set    map[string]string // settings of the mechanism, as "scale": "1/sqrt(D)"
}

// Attend computes attention over slices: q is [H,N,D], k [Hkv,M,D] and v
// [Hkv,M,Dv], each contiguous. It returns o, [H,N,Dv], and chooses the direct
// or the linear form by the shape. name is one of the catalogue,
// mechanism.Names().
func Attend(name string, q, k, v []float32, o Options) ([]float32, error) {
	h := max(o.Heads, 1)
	kv := o.KV
	if kv == 0 {
		kv = h
	}
	if o.Width <= 0 || kv < 0 || o.Keys < 0 {
		return nil, fmt.Errorf("farfield: Width %d, KV %d, Keys %d: not possible", o.Width, o.KV, o.Keys)
	}
	n, err := rows("q", len(q), h, o.Width)
	if err != nil {
		return nil, err
	}
	m := o.Keys
	if m == 0 {
		m = n
	}
	if len(k) != kv*m*o.Width {
		return nil, fmt.Errorf("farfield: k has %d elements, %d heads of %d keys of width %d need %d", len(k), kv, m, o.Width, kv*m*o.Width)
	}
	dv := o.Width
	if m > 0 {
		if len(v)%(kv*m) != 0 {
			return nil, fmt.Errorf("farfield: v has %d elements, not a multiple of %d heads of %d keys", len(v), kv, m)
		}
		dv = len(v) / (kv * m)
	}
	mech, err := mechanism.New[float32](name, mechanism.Options{Order: o.Order, Heads: h, Width: o.Width, Length: m, Set: o.Set})
	if err != nil {
		return nil, err
	}
	out := tensor.NewHeads[float32](1, h, n, dv)
	err = mech.Forward(out, &attention.Call[float32]{
		Q:      tensor.HeadsOf(q, 1, h, n, o.Width),
		K:      tensor.HeadsOf(k, 1, kv, m, o.Width),
		V:      tensor.HeadsOf(v, 1, kv, m, dv),
		Causal: o.Causal,
	}, nil)
	return out.Data, err
}

func rows(name string, size, heads, width int) (int, error) {
	if size%(heads*width) != 0 {
		return 0, fmt.Errorf("farfield: %s has %d elements, not a multiple of %d heads of width %d", name, size, heads, width)
	}
	return size / (heads * width), nil
}
