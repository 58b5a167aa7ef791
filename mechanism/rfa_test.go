package mechanism

import (
	"fmt"
	"math"
	"testing"

	"github.com/farfield-ml/farfield/internal/oracle"
)

// randomFeatures are the subjects of rfa.
func randomFeatures() (list []subject) {
	for _, set := range []map[string]string{
		{},
		{"features": "7", "tau": "2", "norm": "none", "eps": "1e-3", "seed": "3"},
		{"features": "24", "gate": "true"},
		{"kernel": "arccos", "features": "9", "eps": "1e-6", "gate": "true"},
		{"kernel": "arccos", "seed": "1"},
		{"form": "code"},
		{"form": "code-cross", "features": "5", "tau": "0.25"},
		{"form": "code-masked", "features": "7"},
		{"features": "1", "eps": "1e-3"}, // fewer than D
	} {
		label := "rfa"
		for _, key := range []string{"kernel", "features", "tau", "norm", "eps", "gate", "form"} {
			if v := set[key]; v != "" {
				label += fmt.Sprintf(" %s=%s", key, v)
			}
		}
		s := subject{label: label, name: "rfa", learns: true, o: Options{Width: streamed.d, Set: set},
			book: oracle.Mechanism{Norm: oracle.Unit, Scale: 1, Coef: []float64{0, 1}, Gated: set["gate"] == "true"}}
		tau, shortest := 1.0, -1.0
		fmt.Sscan(set["tau"], &tau)
		fmt.Sscan(set["eps"], &s.book.Eps)
		switch set["form"] {
		case "code":
			s.book.Norm, s.book.Floor, shortest = oracle.NoNorm, 1, 1e-3
		case "code-cross":
			s.book.Norm, s.book.Floor, s.book.FloorSize, shortest = oracle.NoNorm, 1, true, 1e-3
		case "code-masked":
			s.book.Norm, s.book.Floor, s.book.FloorSize, shortest = oracle.NoNorm, 1e-3, true, 1e-3
		}
		if set["norm"] == "none" {
			s.book.Norm = oracle.NoNorm
		}
		s.features = func(p numbers, d int) oracle.Features {
			heads := len(p["sigma"]) / d
			all := rowsOf(p["R"], d)
			f := &oracle.RandomFeatures{Sigma: p["sigma"], Tau: tau, Arccos: set["kernel"] == "arccos", Shortest: shortest, Factor: 0.1}
			if shortest < 0 {
				f.Factor = 1 / math.Sqrt(float64(len(all)/heads))
			}
			for h := range heads {
				n := len(all) / heads
				f.R = append(f.R, all[h*n:][:n])
			}
			return f
		}
		list = append(list, s)
	}
	return list
}

func TestRFARefusesSettingsThatDoNotFit(t *testing.T) {
	for _, set := range []map[string]string{
		{"kernel": "cosine"}, {"features": "0"}, {"tau": "0"}, {"norm": "max"}, {"gate": "maybe"}, {"form": "program"},
		{"form": "code", "gate": "true"}, {"form": "code", "kernel": "arccos"}, {"form": "code-cross", "eps": "1"}, {"form": "code-masked", "norm": "none"},
	} {
		if _, err := New("rfa", Options{Width: 8, Set: set}); err == nil {
			t.Errorf("%v is taken", set)
		}
	}
	m, err := New("rfa", Options{Width: 8, Heads: 2, Set: map[string]string{"form": "code"}})
	if err != nil {
		t.Fatal(err)
	}
	if m.Traits().Decay {
		t.Error("form=code says that it takes a decay")
	}
	sh := shape{b: 1, h: 2, hkv: 1, n: 4, m: 4, d: 8, dv: 3, causal: true, decay: 1}
	oc, _ := sh.call(72)
	c := callIn(oc)
	if err := m.Forward(output(c), c, nil); err == nil {
		t.Error("form=code takes log_g")
	}
	sh.h, sh.decay = 3, 0
	oc, _ = sh.call(72)
	c = callIn(oc)
	if err := m.Forward(output(c), c, nil); err == nil {
		t.Error("features of 2 heads take a call of 3")
	}
}
