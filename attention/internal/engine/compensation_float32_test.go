//go:build !float64

package engine

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/suite"
	"github.com/farfield-ml/farfield/tensor"
)

// worst is the largest error of the moments among those that n times one token
// gives, by the size of their terms.
func worst(st *RecurrentState, x []float64, v []float64, n float64) float64 {
	p, f, most := &st.Heads[0].Moments, 0, 0.0
	judge := func(got float32, want float64) { most = max(most, math.Abs(float64(got)-want)/math.Abs(want)) }
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

// A token that repeats itself for ever rounds its sums the same way every time.
// Compensated sums stay at what the chunks themselves lose, half the size of
// features and tokens of a chunk.
func TestRepeatedTokenForEver(t *testing.T) {
	const piece = 64 * 96
	n := 170 * piece // a million
	k, v := tensor.NewHeads(1, 1, piece, 3), tensor.NewHeads(1, 1, piece, 2)
	x, y := []float64{1, 0.1, -0.7, 0.3}, []float64{1.1, -0.3}
	for _, row := range [][]float64{x, y} {
		for i, c := range row {
			row[i] = float64(float32(c))
		}
	}
	for j := range piece {
		for c := range k.D {
			k.Head(0, 0).Row(j)[c] = float32(x[c+1])
		}
		for c := range v.D {
			v.Head(0, 0).Row(j)[c] = float32(y[c])
		}
	}
	chunkLevel := (4 + 96) * 0x1p-24 // a rounding for each factor and token of a chunk
	errs := map[attention.Carry]float64{}
	for _, carry := range []attention.Carry{attention.Rounded, attention.Compensated} {
		_, st := sumsState(t, 3, 2, carry)
		for range n / piece {
			if err := st.Absorb(&attention.Call{K: k, V: v}); err != nil {
				t.Fatal(err)
			}
		}
		errs[carry] = worst(st, x, y, float64(n))
		t.Logf("%d times, %v: the largest relative error of a moment is %.2g", n, carry, errs[carry])
	}
	if !(errs[attention.Compensated] <= chunkLevel) {
		t.Errorf("compensated moments are off by %.2g, a chunk's by %.2g", errs[attention.Compensated], chunkLevel)
	}
	if !(errs[attention.Rounded] >= 2*chunkLevel) {
		t.Errorf("rounded moments are off by %.2g alone: the test shows nothing", errs[attention.Rounded])
	}
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
				k.Data[i] = r.Float32() + 0.5
			}
			for i := range v.Data {
				v.Data[i] = r.Float32() + 0.5
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
