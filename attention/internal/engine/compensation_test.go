package engine

import (
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/attention/internal/calltest"
	"github.com/farfield-ml/farfield/internal/oracle"
)

// sumsState is a state of one head whose moments are the moments of unchanged keys.
func sumsState(t *testing.T, d, dv int, carry attention.Carry) (attention.Mechanism, *RecurrentState) {
	t.Helper()
	e := mechanismOf(t, "taylor", &oracle.Mechanism{Scale: 1, Coef: oracle.TaylorCoef(2)})
	st, err := e.NewState(attention.Shape{B: 1, H: 1, Hkv: 1, D: d, Dv: dv, Carry: carry})
	if err != nil {
		t.Fatal(err)
	}
	return e, st.(*RecurrentState)
}

// The setting changes nothing else: pieces, snapshots and clones keep their bits.
func TestCompensatedPieces(t *testing.T) {
	const n, d, dv = 131, 5, 3
	for name, m := range polynomials() {
		e := mechanismOf(t, name, sixHeads(m))
		c := stateCall(n, d, dv, 16)
		shape := c.Shape()
		shape.Carry = attention.Compensated
		state := func() *RecurrentState {
			st, err := e.NewState(shape)
			if err != nil {
				t.Fatal(err)
			}
			return st.(*RecurrentState)
		}
		whole, pieces := state(), state()
		want, got := calltest.Poisoned(2, 6, n, dv), calltest.Poisoned(2, 6, n, dv)
		steps(t, whole, want, c, 0, n)
		steps(t, pieces, got, c, 0, 1, 3, 20, 64)
		data, err := pieces.AppendBinary(nil)
		if err != nil {
			t.Fatal(err)
		}
		restored, err := e.RestoreState(data)
		if err != nil {
			t.Fatal(err)
		}
		sameState(t, name+", restored", restored, pieces)
		clone := pieces.Clone()
		steps(t, restored, got, c, 64, 100, n)
		sameState(t, name+", in pieces", restored, whole)
		steps(t, clone, got, c, 64, 65, n)
		sameState(t, name+", cloned", clone, whole)
		if !slices.Equal(got.Data, want.Data) {
			t.Errorf("%s: pieces change bits of the outputs", name)
		}
		if plain := newState(t, e, c).Bytes(); whole.Bytes() <= plain {
			t.Errorf("%s: %d bytes compensated, %d rounded", name, whole.Bytes(), plain)
		}
	}
}
