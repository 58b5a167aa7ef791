package farfield

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/fault"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/tensor"
)

// Options says how Attend reads its slices, and what it computes.
type Options struct {
	Width  int               // D, channels of a query and a key per head
	Heads  int               // query heads; 0 means 1
	KV     int               // key heads; 0 means Heads, otherwise it divides Heads
	Keys   int               // M, keys per head; 0: N
	Causal bool              // query i sees keys j ≤ i + (M-N)
	Order  int               // order p of fastmax and taylorshift; 0: their default
	Set    map[string]string // settings of the mechanism by name, such as "scale": "1/sqrt(D)"
	// Params sets learned parameters and constants of the mechanism, by the names that its row of
	// the catalogue lists. The others keep their initial values.
	Params map[string][]float32
}

// Attend computes attention o [H,N,Dv] of the slices q [H,N,D], k [Hkv,M,D] and v [Hkv,M,Dv], which
// are contiguous. name is one of mechanism.Names(). The shape decides whether the direct or the
// linear form is computed. Attend returns an error for an unknown name or setting, for slices whose
// lengths do not fit the options, and for values of which rows are not finite; the error wraps
// ErrInput and names the field.
//
// Some mechanisms are useless before their parameters are learned (mechanism.Row.Untrained):
// linformer, luna, eva, primal, transformer-xl, and multipole, whose codebook [KV,cells,Width]
// mechanism.Codebook makes from keys. Attend refuses them unless Options.Params sets all of these
// parameters, or the setting seed asks for random ones. Random features that approximate a function,
// such as performer's, are drawn with the setting seed, which is 0 by default.
func Attend(name string, q, k, v []float32, o Options) ([]float32, error) {
	out, err := attend(name, q, k, v, o)
	return out, fault.Mark(fault.ErrInput, err)
}

// attend is Attend without the mark of its errors.
func attend(name string, q, k, v []float32, o Options) ([]float32, error) {
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
	if h%kv != 0 {
		return nil, fmt.Errorf("farfield: KV is %d, which does not divide Heads, %d", kv, h)
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
	mech, err := mechanism.New(name, mechanism.Options{Order: o.Order, Heads: h, KeyHeads: kv, Width: o.Width, Length: m, Set: o.Set})
	if err != nil {
		return nil, err
	}
	if err := setParams(name, mech, o); err != nil {
		return nil, err
	}
	out := tensor.NewHeads(1, h, n, dv)
	err = mech.Forward(out, &attention.Call{
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

// setParams sets the numbers of a mechanism to those of o. It returns an error for numbers
// that the mechanism does not have, and for a mechanism whose numbers mean nothing and are
// neither given nor drawn by a seed.
func setParams(name string, m attention.Mechanism, o Options) error {
	for _, key := range slices.Sorted(maps.Keys(o.Params)) {
		p, err := m.Params().Get(key)
		if err != nil {
			p, err = m.Constants().Get(key)
		}
		if err != nil {
			return fmt.Errorf("farfield: Params: %s has no %s", name, key)
		}
		if data := o.Params[key]; len(data) != len(p.Data) {
			return fmt.Errorf("farfield: Params: %s has %d elements, %s needs %d of shape %v", key, len(data), name, len(p.Data), p.Shape)
		}
		copy(p.Data, o.Params[key])
	}
	row, err := mechanism.Lookup(name)
	if err != nil || row.UntrainedWith(o.Set) == "" {
		return err
	}
	hasSeed := slices.ContainsFunc(row.Settings, func(s mechanism.Setting) bool { return s.Name == "seed" })
	if _, given := o.Set["seed"]; given && hasSeed {
		return nil
	}
	learned := m.Params().All()
	if p, err := m.Constants().Get(row.Untrained); err == nil {
		learned = append(slices.Clip(learned), p)
	}
	for _, p := range learned {
		if _, given := o.Params[p.Name]; given {
			continue
		}
		way := "set Params"
		if hasSeed {
			way += ", or the setting seed for random numbers"
		}
		return fmt.Errorf("farfield: %s has learned parameters (%s), and without training they mean nothing: %s of shape %v is not given; %s",
			name, row.Untrained, p.Name, p.Shape, way)
	}
	return nil
}

// SetThreads sets how many goroutines of this process compute at the same time, in all packages of
// farfield; 0 means runtime.GOMAXPROCS(0). Results do not depend on it. Calls that are running may
// finish with the former number. SetThreads returns an ErrInput if n is negative.
func SetThreads(n int) error {
	if n < 0 {
		return refuse("threads: %d, needs 0 or more", n)
	}
	par.SetThreads(n)
	return nil
}

// Threads returns the number of goroutines that compute at the same time.
func Threads() int { return par.Threads() }

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
