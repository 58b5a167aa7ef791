package nn

import (
	"errors"
	"math"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/param"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// A long pass in groups of heads has the bits of all heads at once, and its error the same
// rows.
func TestGroupsOfHeadsHaveTheBitsOfAll(t *testing.T) {
	defer par.SetThreads(par.Threads())
	par.SetThreads(1)
	defer func(n int) { groupElements = n }(groupElements)
	s := &source{key: rng.New(5)}
	const h, hkv, d, b, n, width = 6, 3, 8, 2, 70, 40
	var set param.Set
	project := func(name string, out, in int) Linear {
		l := Linear{W: set.New(name, true, out, in), B: set.New(name+"b", false, out)}
		for _, p := range []*param.Param{l.W, l.B} {
			for i := range p.Data {
				p.Data[i] = float(s.normal()) / 4
			}
		}
		return l
	}
	norm := func(name string) *RMSNorm {
		g := set.New(name, false, d)
		for i := range g.Data {
			g.Data[i] = float(s.normal())
		}
		return &RMSNorm{Gain: g, Eps: 1e-6, Offset: true}
	}
	outputs := norm("on")
	outputs.Residual = true
	a := &Attention{
		Q: project("q", h*d, width), K: project("k", hkv*d, width), V: project("v", hkv*d, width), O: project("o", width, h*d),
		QNorm: norm("qn"), KNorm: norm("kn"), ONorm: outputs, H: h, Hkv: hkv, D: d,
	}
	x := tensor.NewMat(b*n, width)
	for i := range x.Data {
		x.Data[i] = float(s.normal())
	}
	for _, f := range []struct {
		name string
		set  map[string]string
	}{{"softmax", nil}, {"local", map[string]string{"span": "9"}}, {"fastmax", nil}, {"longnet", map[string]string{"segments": "16,64", "ratios": "1,2"}}, {"retention", nil}} {
		var err error
		if a.Mechanism, err = mechanism.New(f.name, mechanism.Options{Width: d, Heads: h, Set: f.set}); err != nil {
			t.Fatal(err)
		}
		traits := a.Mechanism.Traits()
		for _, causal := range []bool{false, true} {
			if traits.CausalOnly && !causal {
				continue
			}
			scope := Scope{B: b, Causal: causal, KeyLens: []int64{n, 50}, Rope: attention.NewRope(d/2, 100, 0, n)}
			forward := func(elements int) ([]float, error) {
				groupElements = elements
				y, tr := tensor.NewMat(b*n, width), a.NewTrace()
				if got := a.groupSize(b*n, &scope) < hkv; got != (elements == 0 && !traits.PlacedHeads) {
					t.Fatalf("%d elements: groups %t", elements, got)
				}
				err := a.Forward(y, x, x, scope, tr, false)
				return y.Data, err
			}
			want, err := forward(1 << 30)
			if err != nil {
				t.Fatal(err)
			}
			got, err := forward(0)
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s causal %t: groups have other bits", f.name, causal)
			}
			v := a.V.W.Data[2*d*width]
			a.V.W.Data[2*d*width] = float(math.Inf(1)) // of the last key head
			var one, two *attention.NonFiniteError
			_, err = forward(1 << 30)
			_, groups := forward(0)
			if !errors.As(err, &one) || !errors.As(groups, &two) || *one != *two {
				t.Errorf("%s causal %t: error is %v, of all heads %v", f.name, causal, groups, err)
			}
			a.V.W.Data[2*d*width] = v
		}
	}
}
