package mechanism

import (
	"fmt"
	"testing"

	"github.com/farfield-ml/farfield/attention"
)

// Every way to have fewer features than channels, on rows of 16 and more: a token
// alone has the bits of the pieces that tokens come in.
func TestOneTokenNeedsNoMoreFeaturesThanItHas(t *testing.T) {
	for _, x := range []struct {
		name string
		set  map[string]string
	}{
		{"performer", map[string]string{"features": "1"}},
		{"performer", map[string]string{"features": "4"}},
		{"performer", map[string]string{"features": "2", "kernel": "relu", "eps": "1e-3"}},
		{"rfa", map[string]string{"features": "1"}},
		{"rfa", map[string]string{"features": "3", "kernel": "arccos", "eps": "1e-6"}},
		{"rfa", map[string]string{"features": "2", "gate": "true"}},
	} {
		for _, d := range []int{16, 64, 257} {
			for _, theta := range []float64{0, 100} {
				t.Run(fmt.Sprintf("%s %v D=%d theta=%v", x.name, x.set, d, theta), func(t *testing.T) {
					sh := shape{b: 2, h: 4, hkv: 2, n: 3, m: 3, d: d, dv: 3, causal: true, theta: theta}
					oc, _ := sh.call(71)
					oneByOne(t, x.name, Options{Width: d, Heads: sh.h, Set: x.set}, callIn(oc))
				})
			}
		}
	}
}

func oneByOne(t *testing.T, name string, o Options, c *attention.Call) {
	m, err := New(name, o)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := m.NewState(c.Shape())
	if err != nil {
		t.Fatal(err)
	}
	single, err := m.NewState(c.Shape())
	if err != nil {
		t.Fatal(err)
	}
	n := c.Q.N
	want, got := output(c), output(c)
	step(t, whole, want, c, 0, n, n)
	step(t, single, got, c, 0, n, 1)
	if !sameHeads(got, want) {
		t.Errorf("tokens one by one give %v, together %v", got.Data, want.Data)
	}
}
