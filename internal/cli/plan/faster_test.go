package plan

import (
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/mechanism"
)

// Below the returned length softmax is the faster one, from it on multipole. More cells take more
// tokens to pay; what has no measured cost is never faster.
func TestMultipoleIsFasterThanSoftmaxFromSomeLengthOn(t *testing.T) {
	softmax, err := mechanism.New("softmax", mechanism.Options{})
	if err != nil {
		t.Fatal(err)
	}
	from := map[string]int{}
	s := attention.Shape{B: 1, H: 2, Hkv: 2, D: 32, Dv: 32}
	for _, cells := range []string{"64", "1024"} {
		m, err := mechanism.New("multipole", mechanism.Options{Width: 32, Heads: 2, Set: map[string]string{"cells": cells}})
		if err != nil {
			t.Fatal(err)
		}
		from[cells] = fasterFrom(m, softmax, s)
		for d, want := range map[int]bool{-1: false, 0: true} {
			s.N = from[cells] + d
			s.M = s.N
			if faster := m.Plan(s).Cost < softmax.Plan(s).Cost; faster != want {
				t.Errorf("%s cells: faster at %d tokens is %t, from %d on", cells, s.N, faster, from[cells])
			}
		}
	}
	if from["64"] < 1 || from["1024"] < 2*from["64"] {
		t.Errorf("multipole is faster from %v on", from)
	}
	informer, err := mechanism.New("informer", mechanism.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if n := fasterFrom(informer, softmax, s); n != 0 {
		t.Errorf("a mechanism without a measured cost is faster from %d on", n)
	}
}
