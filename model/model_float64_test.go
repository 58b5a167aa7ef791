//go:build float64

package model

import (
	"math"
	"slices"
	"testing"
)

// Tokens beyond a row's length are as if they were not there.
func TestPaddingIsNotSeen(t *testing.T) {
	for name, c := range cases() {
		m := made(t, c)
		size := max(c.Parts, 1)
		b := batch(c, 5, size, 6, false)
		b.Lens = slices.Repeat([]int64{4}, size)
		short := part(c, b, 0, size, 4)
		if c.Loss == CrossEntropy {
			short.Targets = b.Targets[:c.Rows(size, 4)]
		} else {
			short.Numbers = b.Numbers[:c.Rows(size, 4)*c.Numbers()]
		}
		if b.SourceN > 0 {
			b.SourceLens = []int64{3}
			short.Source, short.SourceN = b.Source[:3], 3
		}
		want, got := loss(t, m, short), loss(t, m, b)
		// Another length may run in another form, whose bits differ.
		if d := math.Abs(got - want); !(d <= 1e-13*want) {
			t.Errorf("%s: loss is %v, without padding %v", name, got, want)
		}
	}
}

// textbookLoss returns what output i of a batch loses, and whether it is counted.
func textbookLoss(c Config, row []float64, b *Batch, i int) (loss float64, counted bool) {
	if c.Loss == CrossEntropy {
		if b.Targets[i] < 0 {
			return 0, false
		}
		var all float64
		for _, l := range row {
			all += math.Exp(l)
		}
		return math.Log(all) - row[b.Targets[i]], true
	}
	n := 0
	for j, x := range b.Numbers[i*c.Numbers():][:c.Numbers()] {
		want := float64(x)
		if math.IsNaN(want) {
			continue
		}
		n++
		if c.Loss == Squared {
			loss += (row[j] - want) * (row[j] - want)
			continue
		}
		parts := len(row) / 3
		var all, joint float64
		for k := range parts {
			f := func(x float64) float64 { return 1 / (1 + math.Exp(-(x-row[parts+k])*math.Exp(-row[2*parts+k]))) }
			at := want/127.5 - 1
			p := f(at+1./255) - f(at-1./255)
			switch want {
			case 0:
				p = f(at + 1./255)
			case 255:
				p = 1 - f(at-1./255)
			}
			all += math.Exp(row[k])
			joint += math.Exp(row[k]) * p
		}
		loss -= math.Log(joint / all)
	}
	return loss / float64(max(n, 1)), n > 0
}

func TestLossesAreThoseOfTheLogits(t *testing.T) {
	for name, c := range cases() {
		m := made(t, c)
		b := batch(c, 7, 4, 6, true)
		x := logits(t, m, b)
		got := make([]float64, c.Rows(b.B, b.N))
		want := loss(t, m, b)
		if err := m.Losses(t.Context(), b, got); err != nil {
			t.Fatal(err)
		}
		var sum float64
		var counted int
		for i := range got {
			padded := c.Pool == "" && int64(i%b.N) >= b.Lens[i/b.N]
			row := x[i*c.outputSize():][:c.outputSize()]
			l, seen := textbookLoss(c, row, b, i)
			if padded || !seen {
				if got[i] != 0 {
					t.Errorf("%s: output %d is not counted, its loss is %v", name, i, got[i])
				}
				continue
			}
			if !(math.Abs(got[i]-l) <= 1e-13*(1+l)) {
				t.Errorf("%s: loss of output %d is %v, of its logits %v", name, i, got[i], l)
			}
			sum += got[i]
			counted++
		}
		if mean := sum / float64(counted); !(math.Abs(mean-want) <= 1e-14*want) {
			t.Errorf("%s: mean loss is %v, Forward returned %v", name, mean, want)
		}
		// Inference between Forward and Backward leaves no trace.
		backward(t, m)
		between := slices.Clone(m.Params().All()[0].Grad)
		if !slices.Equal(between, grads(t, m, b)[0]) {
			t.Errorf("%s: inference changes the gradient", name)
		}
	}
}
