package engine

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/attention/calltest"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/internal/suite"
	"github.com/farfield-ml/farfield/tensor"
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

// worst is the largest error of the moments among those that n times one token
// gives, by the size of their terms.
func worst(st *RecurrentState, x []float64, v []float64, n float64) float64 {
	p, f, most := &st.Heads[0].Moments, 0, 0.0
	judge := func(got float, want float64) { most = max(most, math.Abs(float64(got)-want)/math.Abs(want)) }
	for a := range x {
		for b := a; b < len(x); b++ {
			phi := x[a] * x[b] * n
			judge(p.Z[f], phi)
			for c, y := range v {
				judge(p.S[f*p.Stride+c], phi*y)
			}
			f++
		}
	}
	return most
}

// The sums of random tokens of one sign equal float64's within the error of a chunk,
// because its roundings average out.
func TestCompensatedRandomTokens(t *testing.T) {
	const size, d, dv = 86 * 96, 2, 1 // whole chunks
	pieces := 128                     // a million tokens
	if suite.IsLong() {
		pieces = 8192 // more than 2^26
	}
	for _, carry := range []attention.Carry{attention.Rounded, attention.Compensated} {
		r := rand.New(rand.NewPCG(3, 4))
		_, st := sumsState(t, d, dv, carry)
		k, v := tensor.NewHeads(1, 1, size, d), tensor.NewHeads(1, 1, size, dv)
		var sum [6]float64
		for range pieces {
			for i := range k.Data {
				k.Data[i] = float(r.Float32()) + 0.5
			}
			for i := range v.Data {
				v.Data[i] = float(r.Float32()) + 0.5
			}
			if err := st.Absorb(&attention.Call{K: k, V: v}); err != nil {
				t.Fatal(err)
			}
			for j := range size {
				x, f := [3]float64{1, float64(k.Data[2*j]), float64(k.Data[2*j+1])}, 0
				for a := range x {
					for b := a; b < len(x); b++ {
						sum[f] += x[a] * x[b] * float64(v.Data[j])
						f++
					}
				}
			}
		}
		p, most := &st.Heads[0].Moments, 0.0
		for f, want := range sum {
			most = max(most, math.Abs(float64(p.S[f*p.Stride])-want)/want)
		}
		t.Logf("%d tokens, %v: the largest relative error of a moment is %.2g", pieces*size, carry, most)
		if limit := (8 + math.Sqrt(96)) * 0x1p-24; carry == attention.Compensated && most > limit {
			t.Errorf("off by %.2g, the limit of a chunk is %.2g", most, limit)
		}
	}
}
