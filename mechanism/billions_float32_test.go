//go:build !float64

package mechanism

import (
	"math"
	"testing"
	"time"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/suite"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// draw sets n tokens from position at on, a byte for each number: around 0 for
// keys and above 0 for values, so that sums grow with the tokens.
func (x *many) draw(at int64, n int) {
	x.k, x.v = x.k.Tokens(0, n), x.v.Tokens(0, n)
	for j := range n {
		bits := x.key.Uint64(uint64(at) + uint64(j))
		k, v := x.k.Data[j*manyWidth:][:manyWidth], x.v.Data[j*manyWidth:][:manyWidth]
		for c := range manyWidth {
			k[c] = float32(bits>>(16*c)&0xff)*manyGrain - 0.5
			v[c] = float32(bits>>(16*c+8)&0xff)*manyGrain + 0.5
		}
	}
}

// normalised is a row of mean 0 and deviation 1, under a one.
func normalised(x []float32) (y [1 + manyWidth]float64) {
	var mean, square float64
	for _, c := range x {
		mean += float64(c) / manyWidth
	}
	for _, c := range x {
		square += (float64(c) - mean) * (float64(c) - mean) / manyWidth
	}
	y[0] = 1
	for i, c := range x {
		if square > 0 {
			y[1+i] = (float64(c) - mean) / math.Sqrt(square)
		}
	}
	return y
}

// add sums the n tokens last drawn from token j on, from zero first.
func (x *many) add(j, n int) {
	var sum [len(x.sum)]float64
	var abs [len(x.abs)]float64
	for ; n > 0; j, n = j+1, n-1 {
		k, v := normalised(x.k.Data[j*manyWidth:][:manyWidth]), x.v.Data[j*manyWidth:][:manyWidth]
		f := 0
		for a := range k {
			for b := a; b < len(k); b++ {
				p := k[a] * k[b]
				abs[f] += math.Abs(p)
				row := sum[f*(1+manyWidth):][:1+manyWidth]
				row[0] += p
				for c, y := range v {
					row[1+c] += p * float64(y)
				}
				f++
			}
		}
	}
	for i, y := range sum {
		x.sum[i] += y
	}
	for i, y := range abs {
		x.abs[i] += y
	}
}

// read applies T₂ of query q to all keys. It returns the weighted average of the values,
// and the sum of the magnitudes of the terms of all weights over the sum of the weights.
func (x *many) read(q []float32) (o [manyWidth]float64, cond float64) {
	a := normalised(q)
	var den, terms float64
	f := 0
	for i := range a {
		for j := i; j < len(a); j++ {
			w := a[i] * a[j]
			if i == j && i > 0 {
				w /= 2
			}
			row := x.sum[f*(1+manyWidth):][:1+manyWidth]
			den += w * row[0]
			terms += math.Abs(w) * x.abs[f]
			for c := range o {
				o[c] += w * row[1+c]
			}
			f++
		}
	}
	for c := range o {
		o[c] /= den
	}
	return o, terms / den
}

// TestStateOfBillionsOfTokensKeepsTheErrorOfOneChunk feeds a small head more tokens than 32 bits count, saves and
// restores it half-way, and holds its last rows against float64, whatever their
// number to the limit of a single chunk.
func TestStateOfBillionsOfTokensKeepsTheErrorOfOneChunk(t *testing.T) {
	total := int64(1) << 18
	switch {
	case *billions:
		total = 1<<31 + manyLast
	case suite.IsLong():
		total = 1<<24 + manyLast
	}
	m, err := New("fastmax", Options{})
	if err != nil {
		t.Fatal(err)
	}
	shape := attention.Shape{B: 1, H: 1, Hkv: 1, D: manyWidth, Dv: manyWidth, Chunk: 96}
	states := map[attention.Carry]attention.State{}
	for _, carry := range []attention.Carry{attention.Rounded, attention.Compensated} {
		shape.Carry = carry
		if states[carry], err = m.NewState(shape); err != nil {
			t.Fatal(err)
		}
	}
	x := &many{key: rng.New(7), k: tensor.NewHeads(1, 1, manyPiece, manyWidth), v: tensor.NewHeads(1, 1, manyPiece, manyWidth)}
	start, saved := time.Now(), false
	for at := int64(0); at < total-manyLast; {
		n := int(min(manyPiece, total-manyLast-at))
		x.draw(at, n)
		summed := make(chan bool)
		go func() {
			x.add(0, n)
			summed <- true
		}()
		for _, st := range states {
			if err := st.Absorb(&attention.Call{K: x.k, V: x.v}); err != nil {
				t.Fatal(err)
			}
		}
		<-summed
		if at += int64(n); !saved && at > total/2 {
			saved = true
			for carry, st := range states {
				if states[carry], err = m.RestoreState(bytesOf(t, st)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	took := time.Since(start)

	q := &many{key: rng.New(8), k: tensor.NewHeads(1, 1, manyLast, manyWidth), v: tensor.NewHeads(1, 1, manyLast, manyWidth)}
	q.draw(0, manyLast)
	x.draw(total-manyLast, manyLast)
	out := map[attention.Carry]tensor.Heads{}
	for carry, st := range states {
		out[carry] = poisoned(1, 1, manyLast, manyWidth)
		if err := st.Step(out[carry], &attention.Call{Q: q.k, K: x.k, V: x.v}); err != nil {
			t.Fatal(err)
		}
		if st.Tokens() != total {
			t.Errorf("%v: %d tokens, want %d", carry, st.Tokens(), total)
		}
	}
	l := check.LinearLimits[float32](15, shape.Chunk)
	worst := map[attention.Carry]float64{}
	for j := range manyLast {
		x.add(j, 1)
		want, cond := x.read(q.k.Data[j*manyWidth:][:manyWidth])
		limit := l.Output(cond, check.MaxAbs(x.v.Data)+check.MaxAbs(want[:]))
		for carry, o := range out {
			worst[carry] = max(worst[carry], check.ErrorRatio(o.Head(0, 0).Row(j), want[:], limit))
		}
	}
	t.Logf("%d tokens in %.1f s: the last rows are off by %.3g limits compensated, %.3g rounded", total, took.Seconds(), worst[attention.Compensated], worst[attention.Rounded])
	if worst[attention.Compensated] > 1 {
		t.Errorf("the last rows are off by %.3g limits", worst[attention.Compensated])
	}
}
