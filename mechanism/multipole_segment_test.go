package mechanism

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/tensor"
)

// longMultipole returns multipole for a causal call of some hundred tokens, and the call.
func longMultipole(t *testing.T, i int) (string, attention.Mechanism, *attention.Call, tensor.Heads) {
	t.Helper()
	set := map[string]string{"cells": "30", "block": []string{"32", "7"}[i%2], "window": []string{"16", "0", "40"}[i%3], "sinks": []string{"1", "70", "0"}[i%3]}
	sh := shape{b: 2, h: 4, hkv: 2, n: 400, m: 400, d: 6, dv: []int{16, 5}[i%2], causal: true, mask: i > 2}
	oc, do := sh.call(uint64(300 + i))
	tilted := i > 2 && i%3 < 2
	set["tilt"] = strconv.FormatBool(tilted)
	m, err := New("multipole", Options{Order: i % 3, Heads: 4, KeyHeads: 2, Width: 6, Set: set})
	if err != nil {
		t.Fatal(err)
	}
	if tilted {
		for j, x := range randomTilts("tilt", []int{2, 30, 6}) {
			m.Params().All()[0].Data[j] = float(x)
		}
	}
	c := callIn(oc)
	if i%2 == 0 {
		c.Rope = attention.NewRope(sh.d, 1e4, 0, sh.n)
	}
	return fmt.Sprintf("order %d, %v, mask %t", i%3, set, sh.mask), m, c, in(do)
}

// maskedPart is tokens i0 ≤ i < i1 of a causal call, with its mask.
func maskedPart(c *attention.Call, i0, i1 int) *attention.Call {
	p := piece(c, i0, i1)
	p.Causal = true
	return p
}

// A state that is fed in pieces, long ones tile by tile, has the bits of single steps.
func TestMultipoleTilesAreSteps(t *testing.T) {
	t.Run(check.Precision, multipoleTiles)
}

func multipoleTiles(t *testing.T) {
	for i := range 6 {
		name, m, c, _ := longMultipole(t, i)
		run := func(cuts ...int) (tensor.Heads, []byte) {
			st, err := m.NewState(c.Shape())
			if err != nil {
				t.Fatal(err)
			}
			out := output(c)
			for j := range len(cuts) - 1 {
				if err := st.Step(out.Tokens(cuts[j], cuts[j+1]), maskedPart(c, cuts[j], cuts[j+1])); err != nil {
					t.Fatal(err)
				}
			}
			b, err := st.AppendBinary(nil)
			if err != nil {
				t.Fatal(err)
			}
			return out, b
		}
		var ones []int
		for j := range c.Q.N + 1 {
			ones = append(ones, j)
		}
		want, state := run(ones...)
		for _, cuts := range [][]int{{0, 400}, {0, 17, 34, 200, 203, 400}, {0, 3, 130, 399, 400}} {
			got, b := run(cuts...)
			if !sameHeads(got, want) {
				t.Errorf("%s: pieces %v have other bits than steps", name, cuts)
			}
			if string(b) != string(state) {
				t.Errorf("%s: pieces %v leave another state than steps", name, cuts)
			}
		}
		st, err := m.NewState(c.Shape())
		if err == nil {
			err = st.Absorb(c)
		}
		if err != nil {
			t.Fatal(err)
		}
		if b, err := st.AppendBinary(nil); err != nil || string(b) != string(state) {
			t.Errorf("%s: absorbing leaves another state than steps: %v", name, err)
		}
	}
}

// Calls that cannot go on from a state are refused.
func TestMultipoleRefusesStatesThatDoNotFit(t *testing.T) {
	_, m, c, _ := longMultipole(t, 0)
	own, err := m.NewState(c.Shape())
	if err != nil {
		t.Fatal(err)
	}
	_, other, _, _ := longMultipole(t, 1)
	foreign, err := other.NewState(c.Shape())
	if err != nil {
		t.Fatal(err)
	}
	narrow, err := m.NewState(attention.Shape{B: 1, H: 4, Hkv: 2, D: 6, Dv: c.V.D})
	if err != nil {
		t.Fatal(err)
	}
	unmasked := *c
	unmasked.Causal, unmasked.Init = false, own
	for want, x := range map[string]*attention.Call{
		"causal calls alone": &unmasked,
		"init: setting is":   {Q: c.Q, K: c.K, V: c.V, Causal: true, Init: foreign},
		"final: B is 1":      {Q: c.Q, K: c.K, V: c.V, Causal: true, Final: narrow},
	} {
		if err := m.Forward(output(c), x, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %s", err, want)
		}
	}
}
