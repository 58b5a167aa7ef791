package mechanism

import (
	"math"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/oracle"
)

func TestEvaRefusesSettingsThatDoNotFit(t *testing.T) {
	for _, x := range []struct {
		set  map[string]string
		want string
	}{
		{map[string]string{"chunk": "0"}, "setting chunk=0: needs a whole number from 1 to 4096"},
		{map[string]string{"chunk": "5"}, "setting chunk=5: needs a divisor of window=32"},
		{map[string]string{"chunk": "8", "noise": "normal"}, "setting noise=normal: needs none with chunk=8"},
	} {
		if _, err := New("eva", Options{Set: x.set}); err == nil || !strings.Contains(err.Error(), x.want) {
			t.Errorf("%v: error %v, want one that says %q", x.set, err, x.want)
		}
	}
}

// The bound on the elements of a table is one for tables that exist.
func TestEvaTakesLargeWindowsWithoutABias(t *testing.T) {
	o := Options{Heads: 64, Width: 64, Set: map[string]string{"window": "4096", "overlap": "4096", "landmarks": "4096"}}
	for name, refused := range map[string]bool{"false": false, "true": true} {
		o.Set["rpe"] = name
		if _, err := New("eva", o); (err != nil) != refused {
			t.Errorf("rpe=%s: error %v", name, err)
		}
	}
}

// With equal values the outputs depend on nothing else. The gradients of keys and of chunk
// maps, summed over many queries, are then smaller than a rounding error of the gradients
// of values.
func TestEvaGradientsOfEqualValuesVanish(t *testing.T) {
	for _, chunk := range []string{"none", "2"} {
		m, err := New("eva", Options{Width: 3, Heads: 4, Set: map[string]string{"window": "6", "chunk": chunk, "rpe": "true"}})
		if err != nil {
			t.Fatal(err)
		}
		oc, do := shape{b: 1, h: 4, hkv: 2, n: 25, m: 1, d: 3, dv: 9}.call(108)
		r := both(t, m, callIn(oc), in(do))
		if most := max(check.MaxAbs(r.g.DQ.Data), check.MaxAbs(r.g.DK.Data), check.MaxAbs(r.tau)); most > 0x1p-24 {
			t.Errorf("chunk=%s: a gradient is %v, want 0", chunk, most)
		}
	}
}

// Chunks of large queries keep their direction: squares that float32 does not hold have a norm.
func TestEvaNormalisesLargeQueries(t *testing.T) {
	m, textbook := build(t, subject{
		name: "eva", o: Options{Width: 8, Set: map[string]string{"window": "4", "landmarks": "8"}},
		whole: func(p numbers) oracle.HeadMatrix {
			book := oracle.EVA{
				Window: 4, Landmarks: 8,
				MapQ: oracle.EVAMap{W: p["mq"], B: p["mq_bias"], Gain: p["lnq"], Bias: p["lnq_bias"]},
				MapK: oracle.EVAMap{W: p["mk"], B: p["mk_bias"], Gain: p["lnk"], Bias: p["lnk_bias"]},
			}
			return book.Weights
		},
	}, 1)
	oc, _ := shape{b: 1, h: 1, hkv: 1, n: 64, m: 64, d: 8, dv: 2}.call(110)
	for i := range oc.Q.Data {
		oc.Q.Data[i] = float64(float32(oc.Q.Data[i] * 1e20))
	}
	want := textbook.result(oc).O.Data
	for i, got := range forward(t, m, callIn(oc)).o.Data {
		if d := math.Abs(float64(got) - want[i]); !(d <= 1e-3) {
			t.Fatalf("output %d is %v, want %v", i, got, want[i])
		}
	}
}
