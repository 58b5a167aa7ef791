package mechanism

import (
	"math"
	"reflect"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/par"
)

func diagnoses(t *testing.T, s subject) {
	for i, sh := range shapesOf(s) {
		t.Run(sh.name, func(t *testing.T) { diagnosisOf(t, s, s.fit(sh), uint64(i)) })
	}
}

// diagnosisOf compares a diagnosis with the weights of the textbook. With
// weights over their sum that are off by ε in all, so is the condition, and the
// entropy by no more than T·ln M - T·ln T, T = 2ε (Fannes 1973).
func diagnosisOf(t *testing.T, s subject, sh shape, seed uint64) {
	oc, _ := sh.call(seed)
	m, book := build(t, s, sh.h)
	c := callIn(oc)
	got, err := m.Diagnose(c)
	if err != nil {
		t.Fatal(err)
	}
	var keep attention.Saved
	direct := *c
	direct.Form = attention.Direct
	if err := m.Forward(output(c), &direct, &keep); err != nil {
		t.Fatal(err)
	}
	want := book.answers(s, sh, seed, oc)
	l := limitsOfWeights(s, m, c)
	var unseen, weak int64
	for b := range sh.b {
		for h := range sh.h {
			d := got[b*sh.h+h]
			unseen += d.UnseenCount
			weak += d.WeakCount
			if d.Rows+d.UnseenCount != int64(sh.n) {
				t.Fatalf("head %d of row %d: %d rows and %d unseen of %d queries", h, b, d.Rows, d.UnseenCount, sh.n)
			}
			entropy, condition := make([]float64, sh.n), make([]float64, sh.n)
			var meanEntropy, meanCondition, offEntropy, offCondition, offDen float64
			lowEntropy, highCondition, lowDen := math.Inf(1), 0.0, math.Inf(1)
			size := func(den float64) float64 {
				if s.book.Exp || s.book.Window != nil && !s.book.Window.Separate {
					return den // a logarithm
				}
				return math.Abs(den)
			}
			for i := range sh.n {
				at := (b*sh.h+h)*sh.n + i
				if want.Cond[at] == 0 {
					continue
				}
				row := want.W.Head(b, h).Row(i)
				var sum float64
				for _, w := range row {
					sum += math.Abs(w)
				}
				for _, w := range row {
					if p := math.Abs(w) / sum; p > 0 {
						entropy[i] -= p * math.Log(p)
					}
				}
				condition[i] = sum / total(book.Mechanism, h)
				off := float64(sh.m) * l.Output(want.Cond[at], 1+check.MaxAbs(row))
				moved := min(2*off/sum, 1/math.E)
				offEntropy += moved*math.Log(float64(sh.m)) - moved*math.Log(moved)
				offCondition += off
				offDen = max(offDen, l.Sum(sh.m, want.Cond[at]*(1+math.Abs(want.Den[at]))))
				meanEntropy += entropy[i]
				meanCondition += condition[i]
				lowEntropy, highCondition = min(lowEntropy, entropy[i]), max(highCondition, condition[i])
				lowDen = min(lowDen, size(want.Den[at]))
			}
			if d.Rows == 0 {
				if (d != attention.Diagnosis{UnseenCount: d.UnseenCount}) {
					t.Errorf("head %d of row %d sees nothing: %+v", h, b, d)
				}
				continue
			}
			if math.IsInf(d.MaxCondition, 1) {
				if d.WeakCount == 0 {
					t.Errorf("head %d of row %d: a denominator is 0, and no row is doubtful", h, b)
				}
				continue
			}
			if s.ownSums {
				offDen = math.Inf(1)
			}
			n := float64(d.Rows)
			for _, x := range []struct {
				name             string
				got, want, limit float64
			}{
				{"entropy", d.Entropy, meanEntropy / n, offEntropy / n},
				{"least entropy", d.MinEntropy, lowEntropy, offEntropy},
				{"its query", entropy[d.MinEntropyAt], lowEntropy, 2 * offEntropy},
				{"condition", d.Condition, meanCondition / n, offCondition / n},
				{"greatest condition", d.MaxCondition, highCondition, offCondition},
				{"its query", condition[d.MaxConditionAt], highCondition, 2 * offCondition},
				{"smallest denominator", size(d.MinDen), lowDen, offDen},
				{"its query", size(want.Den[(b*sh.h+h)*sh.n+d.MinDenAt]), lowDen, 2 * offDen},
			} {
				if err := math.Abs(x.got - x.want); !(err <= x.limit) {
					t.Errorf("head %d of row %d: %s is %.9g, want %.9g within %.3g", h, b, x.name, x.got, x.want, x.limit)
				}
			}
		}
	}
	if unseen != keep.UnseenCount || weak != keep.WeakCount {
		t.Errorf("%d unseen and %d weak rows, Forward says %d and %d", unseen, weak, keep.UnseenCount, keep.WeakCount)
	}
}

func TestThreadsDoNotChangeADiagnosis(t *testing.T) {
	defer par.SetThreads(0)
	sh := shape{b: 1, h: 2, hkv: 1, n: 1700, m: 1700, d: 3, dv: 1, causal: true}
	oc, _ := sh.call(80)
	for _, name := range []string{"softmax", "fastmax"} {
		m, err := New(name, Options{})
		if err != nil {
			t.Fatal(err)
		}
		var first []attention.Diagnosis
		for _, n := range []int{1, 2, 5} {
			par.SetThreads(n)
			d, err := m.Diagnose(callIn(oc))
			if err != nil {
				t.Fatal(err)
			}
			if first == nil {
				first = d
			}
			if !reflect.DeepEqual(d, first) {
				t.Errorf("%s: %d threads change the diagnosis", name, n)
			}
		}
	}
}
