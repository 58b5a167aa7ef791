package mechanism

import (
	"fmt"
	"math"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
)

// scatterSubjects returns subjects with sparse and low-rank weights.
func scatterSubjects() (list []subject) {
	for _, x := range []struct {
		book oracle.Scatterbrain
		set  map[string]string
	}{
		{oracle.Scatterbrain{Window: 3}, map[string]string{"window": "3", "features": "5"}},
		{oracle.Scatterbrain{Window: 70, Scale: 0.5}, map[string]string{"window": "70", "features": "4", "scale": "0.5", "projection": "iid"}},
		{oracle.Scatterbrain{Cluster: 4}, map[string]string{"support": "lsh", "cluster": "4", "features": "5"}},
		{oracle.Scatterbrain{Cluster: 90}, map[string]string{"support": "lsh", "cluster": "90", "features": "3"}},
	} {
		label, places := "scatterbrain window="+x.set["window"], "windows go by the places of keys"
		if x.book.Window == 0 {
			label, places = "scatterbrain support=lsh cluster="+x.set["cluster"], ""
		}
		list = append(list, subject{
			label: label, name: "scatterbrain", o: Options{Width: 3, Set: x.set}, average: true, places: places,
			whole: func(p numbers) oracle.HeadMatrix {
				book := x.book
				book.W, book.Alpha = p["projection"], p["alpha"]
				return book.Weights
			},
		})
	}
	return list
}

// Hashing, sorting and sums take no memory of their own.
func TestScatterbrainDoesNotAllocate(t *testing.T) {
	par.SetThreads(1)
	defer par.SetThreads(0)
	doNotAllocate(t, "scatterbrain", map[string]string{"window": "8"})
	doNotAllocate(t, "scatterbrain", map[string]string{"support": "lsh", "cluster": "8"})
}

// Weights are kept as logarithms: scores of hundreds, and queries whose windows
// are empty and whose other weights are below e^-300, have rows that sum to one,
// with no part of anything that is added to a denominator.
func TestScatterbrainKeepsLogarithms(t *testing.T) {
	for _, set := range []map[string]string{
		{"window": "4", "features": "16"},
		{"support": "lsh", "cluster": "4", "features": "16"},
	} {
		s := subject{label: "scatterbrain", name: "scatterbrain", o: Options{Width: 8, Set: set}, whole: func(p numbers) oracle.HeadMatrix {
			book := &oracle.Scatterbrain{W: p["projection"], Alpha: p["alpha"], Cluster: 4}
			if set["window"] != "" {
				book.Window = 4
			}
			return book.Weights
		}}
		for _, factor := range []float64{1, 8, 20} {
			oc, _ := shape{b: 1, h: 2, hkv: 1, n: 140, m: 140, d: 8, dv: 1}.call(131)
			oc.KeyMask = make([]bool, 140)
			for j := range oc.KeyMask {
				oc.KeyMask[j] = j < 60 || j > 130
			}
			for i := range oc.Q.Data {
				oc.Q.Data[i] *= factor
			}
			for i := range oc.K.Data {
				oc.K.Data[i] *= factor
			}
			m, book := build(t, s, 2)
			want := book.whole(book.numbers).Forward(oc)
			got := forward(t, m, callIn(oc))
			// The rounding of a logarithm, in parts of its terms, is that of the weight: of
			// scores, of squares of lengths, and of products with rows of the projection.
			_, q := rowLengths(oc.Q)
			_, k := rowLengths(oc.K)
			w := check.MaxAbs(book.numbers["projection"]) * math.Sqrt(8)
			l, scale := wholeLimits(m, callIn(oc)), 1/math.Sqrt(8)
			cond := 1 + scale*(q+k)*(q+k)/2 + math.Sqrt(scale)*(q+k)*w
			off := check.ErrorRatio(got.o.Data, want.O.Data, l.Output(cond, 2*check.MaxAbs(oc.V.Data)))
			t.Logf("%v, rows times %v: o is off by %.3g limits", set, factor, off)
			if off > 1 || got.keep.UnseenCount > 0 {
				t.Errorf("%v, rows times %v: o is off by %.3g limits, %d queries see nothing", set, factor, off, got.keep.UnseenCount)
			}
			for i := range oc.V.Data {
				oc.V.Data[i] = 1
			}
			single, _ := build(t, s, 2)
			for i, x := range forward(t, single, callIn(oc)).o.Data {
				if !(math.Abs(float64(x)-1) <= l.Output(1, 2)) {
					t.Errorf("%v, rows times %v: weights of query %d sum to %v", set, factor, i, x)
					break
				}
			}
		}
	}
}

// With a window of all tokens, or a block, it is softmax.
func TestScatterbrainOfAllIsSoftmax(t *testing.T) {
	oc, do := shape{b: 1, h: 2, hkv: 1, n: 150, m: 150, d: 4, dv: 3, causal: true}.call(132)
	exact, err := New("softmax", Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, set := range []map[string]string{{"window": "400"}, {"support": "lsh", "cluster": "150"}} {
		c := callIn(oc)
		c.Causal = set["window"] != ""
		m, err := New("scatterbrain", Options{Width: 4, Set: set})
		if err != nil {
			t.Fatal(err)
		}
		got, want := both(t, m, c, in(do)), both(t, exact, c, in(do))
		holdSoftmax(t, fmt.Sprint(set), got, want, oc, do)
	}
}

// Blocks of sorted tokens have no causal form, which is said.
func TestScatterbrainRefusesCallsThatDoNotFit(t *testing.T) {
	m, err := New("scatterbrain", Options{Width: 4, Set: map[string]string{"support": "lsh"}})
	if err != nil {
		t.Fatal(err)
	}
	x := tensor.NewHeads(1, 1, 3, 4)
	err = m.Forward(x, &attention.Call{Q: x, K: x, V: x, Causal: true}, nil)
	if want := "causal: scatterbrain has no causal form: sorting puts tokens into blocks by later ones, too"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
	y := tensor.NewHeads(1, 1, 3, 5)
	err = m.Forward(y, &attention.Call{Q: y, K: y, V: y}, nil)
	if want := "q: has width 5, rows of the projection have 4"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}
