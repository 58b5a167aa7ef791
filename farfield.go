package farfield

import (
	"fmt"
	"math"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/tensor"
)

// Options says how Attend reads its slices and what it computes.
type Options struct {
	Width  int               // D, channels of a query and a key per head
	Heads  int               // query heads; 0 means 1
	KV     int               // key heads; 0 means Heads, otherwise it divides Heads
	Keys   int               // M, keys per head; 0: N
	Causal bool              // query i sees keys j ≤ i + (M-N)
	Order  int               // p of fastmax and taylorshift; 0: their default
	Set    map[string]string // settings of the mechanism, as "scale": "1/sqrt(D)"
}

// Attend returns attention o [H,N,Dv] of contiguous slices q [H,N,D], k [Hkv,M,D] and
// v [Hkv,M,Dv]. The shape decides between the direct and the linear form. name is a name
// of the catalogue, mechanism.Names(). It returns an error for an unknown name or
// setting, and for slices whose lengths do not fit the options; the error names the
// field and both values.
func Attend(name string, q, k, v []float32, o Options) ([]float32, error) {
	for _, x := range []struct {
		field string
		value int
		least int
	}{{"Width", o.Width, 1}, {"Heads", o.Heads, 0}, {"KV", o.KV, 0}, {"Keys", o.Keys, 0}} {
		if x.value < x.least {
			return nil, fmt.Errorf("farfield: %s is %d, needs %d or more", x.field, x.value, x.least)
		}
	}
	h, kv := max(o.Heads, 1), o.KV
	if kv == 0 {
		kv = h
	}
	row := product(h, o.Width)
	if len(q)%row != 0 {
		return nil, fmt.Errorf("farfield: q has %d elements, not a multiple of %d heads of width %d", len(q), h, o.Width)
	}
	n := len(q) / row
	m := o.Keys
	if m == 0 {
		m = n
	}
	if need := product(kv, m, o.Width); len(k) != need {
		return nil, fmt.Errorf("farfield: k has %d elements, %d heads of %d keys of width %d need %d", len(k), kv, m, o.Width, need)
	}
	dv, keys := o.Width, product(kv, m)
	if keys == 0 && len(v) > 0 {
		return nil, fmt.Errorf("farfield: v has %d elements, there are no keys", len(v))
	}
	if keys > 0 {
		if len(v)%keys != 0 {
			return nil, fmt.Errorf("farfield: v has %d elements, not a multiple of %d heads of %d keys", len(v), kv, m)
		}
		dv = len(v) / keys
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
	if err != nil {
		return nil, err
	}
	return out.Data, nil
}

// product multiplies sizes of 0 or more. One that no slice can have is math.MaxInt.
func product(sizes ...int) int {
	p := 1
	for _, x := range sizes {
		if x > 0 && p > math.MaxInt/x {
			return math.MaxInt
		}
		p *= x
	}
	return p
}
