//go:build !float64

package mechanism

import (
	"testing"
)

func TestTemperaturesStartWhereTheyAreSet(t *testing.T) {
	for _, c := range []struct {
		o    Options
		want []float32
	}{
		{Options{}, []float32{1}},
		{Options{Heads: 2}, []float32{1, 1}},
		{Options{Heads: 3, Set: map[string]string{"tau": "2.5"}}, []float32{2.5, 2.5, 2.5}},
		{Options{Heads: 1, Width: 16, Set: map[string]string{"tau": "sqrt(D)"}}, []float32{4}},
	} {
		m, err := New("taylorshift", c.o)
		if err != nil {
			t.Fatal(err)
		}
		tau, err := m.Params().Get("tau")
		if err != nil {
			t.Fatal(err)
		}
		if len(tau.Data) != len(c.want) || len(tau.Grad) != len(c.want) || tau.Shape[0] != len(c.want) {
			t.Fatalf("%+v: tau has %d elements, want %d", c.o, len(tau.Data), len(c.want))
		}
		for h, x := range tau.Data {
			if x != c.want[h] {
				t.Errorf("%+v: tau of head %d is %v, want %v", c.o, h, x, c.want[h])
			}
		}
	}
}
