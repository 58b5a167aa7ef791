package mechanism

import (
	"strconv"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
)

// reformerSubjects are those that sort by angles.
func reformerSubjects() (list []subject) {
	for _, x := range []struct {
		oracle.Reformer
		set map[string]string
	}{
		{oracle.Reformer{Bucket: 4, Rounds: 4, Buckets: 8}, nil},
		{oracle.Reformer{Bucket: 3, Rounds: 1, Buckets: 64}, nil},
		{oracle.Reformer{Bucket: 5, Rounds: 2, Buckets: 4, Counted: true, Self: true}, map[string]string{"repeats": "counted", "self": "seen"}},
		{oracle.Reformer{Bucket: 2, Rounds: 3, Buckets: 6, MaskedKeysSort: true}, map[string]string{"masks": "kept"}},
		{oracle.Reformer{Bucket: 2, Rounds: 3, Buckets: 2}, nil}, // long buckets of causal calls
		{oracle.Reformer{Bucket: 4, Rounds: 3, Buckets: 6, SeparateRounds: true}, map[string]string{"form": "fast-transformers"}},
		{oracle.Reformer{Bucket: 3, Rounds: 1, Buckets: 4, SeparateRounds: true, Self: true, MaskedKeysSort: true, Scale: 2},
			map[string]string{"form": "fast-transformers", "self": "seen", "masks": "kept", "scale": "2"}},
	} {
		set := map[string]string{"bucket": strconv.Itoa(x.Bucket), "rounds": strconv.Itoa(x.Rounds), "buckets": strconv.Itoa(x.Buckets)}
		label := "reformer bucket=" + set["bucket"] + " rounds=" + set["rounds"] + " buckets=" + set["buckets"]
		for _, key := range []string{"form", "repeats", "self", "masks", "scale"} {
			if v := x.set[key]; v != "" {
				set[key] = v
				label += " " + key + "=" + v
			}
		}
		list = append(list, subject{
			label: label, name: "reformer", o: Options{Width: 3, Set: set}, average: true, shared: true,
			places: "its keys are its queries: that of a masked key still asks", recalls: true,
			whole: func(p numbers) oracle.HeadMatrix {
				book := x.Reformer
				book.Rotations = p["rotations"]
				return book.Weights
			},
		})
	}
	return list
}

func reformerOf(t *testing.T, width int, pairs ...string) attention.Mechanism {
	t.Helper()
	set := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		set[pairs[i]] = pairs[i+1]
	}
	m, err := New("reformer", Options{Width: width, Set: set})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Hashing and sorting take no memory of their own.
func TestReformerDoesNotAllocate(t *testing.T) {
	par.SetThreads(1)
	defer par.SetThreads(0)
	doNotAllocate(t, "reformer", map[string]string{"bucket": "8"})
	doNotAllocate(t, "reformer", map[string]string{"bucket": "8", "form": "fast-transformers"})
}

// Softmax of scores below 2⁻⁸⁰⁰ is uniform, and gradients do not depend on the scale of rows.
// Subnormal rows are known to 2⁻⁴⁴ of their length, whose inverse leaves the range.
func TestReformerNormalisesSubnormalRows(t *testing.T) {
	oc, do := shape{b: 1, h: 2, hkv: 2, n: 12, m: 12, d: 4, dv: 3}.call(124)
	scaled := func(factor float64) *attention.Call {
		c := callIn(oc)
		c.Q, c.K = tensor.NewHeads(1, 2, 12, 4), tensor.NewHeads(1, 2, 12, 4)
		for i, x := range oc.Q.Data {
			c.Q.Data[i], c.K.Data[i] = float(factor*x), float(factor*x)
		}
		return c
	}
	if precision == "float64" {
		m := reformerOf(t, 4, "bucket", "12", "rounds", "1")
		want, got := both(t, m, scaled(0x1p-900), in(do)), both(t, m, scaled(0x1p-1030), in(do))
		for name, x := range map[string][2][]float{"o": {got.o.Data, want.o.Data}, "dq": {got.g.DQ.Data, want.g.DQ.Data}, "dv": {got.g.DV.Data, want.g.DV.Data}} {
			if e := check.ErrorRatio(x[0], widened(x[1]), 32*0x1p-44*check.MaxAbs(x[1])); !(e <= 1) {
				t.Errorf("%s is off by %.3g limits", name, e)
			}
		}
		return
	}
	m, err := New("reformer", Options{Width: 4})
	if err != nil {
		t.Fatal(err)
	}
	r := both(t, m, scaled(0x1p-140), in(do))
	if rows, first := attention.NonFinite(r.g.DQ); rows > 0 {
		t.Errorf("float32: %d rows of dq are not finite, the first %v", rows, first)
	}
}
