package exchange

import (
	"context"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/model"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

// Six windows teach the models of tests enough in an update.
func init() { updateTokens, MostTimed = 576, 1024 }

// subject returns a small model of a kind.
func subject(t *testing.T, kind model.Kind) *Subject {
	t.Helper()
	m, err := model.New(model.Config{Kind: kind, Vocab: 31, Context: 96, Layers: 2, Width: 16, Heads: 4, KVHeads: 2, Mechanism: "softmax", Positions: model.Rotary}, rng.New(3))
	if err != nil {
		t.Fatal(err)
	}
	// Larger projections make weights that differ from each other, as those of trained models do.
	for _, p := range m.Params().All() {
		if strings.HasSuffix(p.Name, "_proj.weight") {
			for i := range p.Data {
				p.Data[i] *= 20
			}
		}
	}
	return &Subject{Model: m}
}

// windows returns windows of random tokens.
func windows(n, tokens int) [][]int32 {
	list := make([][]int32, n)
	for i := range list {
		key := rng.New(7).Fold(uint64(i))
		for j := range tokens {
			list[i] = append(list[i], int32(key.Intn(uint64(j), 31)))
		}
	}
	return list
}

func texts() Texts {
	w := windows(9, 96)
	return Texts{Calibration: w[:6], HeldOut: w[6:]}
}

func number(x int) *int { return &x }

// untimed is Run without the times of attention, which take longer than all else with a small model.
func untimed(ctx context.Context, s *Subject, texts Texts, o Options) (*Result, error) {
	_, x, err := measure(ctx, s, texts, o)
	return x, err
}

// The near field alone is softmax over the keys that multipole computes exactly.
func TestNearAloneIsTheNearFieldOfMultipole(t *testing.T) {
	for _, causal := range []bool{false, true} {
		for _, f := range []field{{8, 4, 1, 1}, {5, 0, 0, 0}, {1, 3, 2, 2}, {64, 64, 1, 1}} {
			const n, d = 41, 8
			c := &attention.Call{Causal: causal, Q: tensor.NewHeads(1, 2, n, d), K: tensor.NewHeads(1, 2, n, d), V: tensor.NewHeads(1, 2, n, d)}
			for i, x := range [][]float32{c.Q.Data, c.K.Data, c.V.Data} {
				for j := range x {
					x[j] = float32(rng.New(5).Fold(uint64(i)).Normal(uint64(j)))
				}
			}
			w := tensor.Mat{Data: make([]float32, n*n), Rows: n, Cols: n, Stride: n}
			if err := newNearAlone(f, 0).Weights(w, c, 0, 1, 0, n); err != nil {
				t.Fatal(err)
			}
			for i := range n {
				var scores [n]float64
				var sum float64
				for j := range n {
					if f.isNear(i, j, n, causal) && (!causal || j <= i) {
						var s float64
						for e := range d {
							s += float64(c.Q.Data[(n+i)*d+e]) * float64(c.K.Data[(n+j)*d+e])
						}
						scores[j] = math.Exp(s / math.Sqrt(d))
						sum += scores[j]
					}
				}
				for j := range n {
					if got := float64(w.Row(i)[j]); math.Abs(got-scores[j]/sum) > 1e-5 {
						t.Fatalf("causal %t, %+v: weight of query %d and key %d is %g, want %g", causal, f, i, j, got, scores[j]/sum)
					}
				}
			}
		}
	}
}

func TestRunIsDeterministic(t *testing.T) {
	for _, kind := range []model.Kind{model.Encoder, model.Decoder} {
		o := Options{Cells: number(16), Order: number(1), Block: number(8), Window: number(4), Length: 96, Seed: 2}
		run := func(of func(context.Context, *Subject, Texts, Options) (*Result, error)) *Result {
			x, err := of(t.Context(), subject(t, kind), texts(), o)
			if err != nil {
				t.Fatal(err)
			}
			return x
		}
		a := run(Run)
		threads := par.Threads()
		par.SetThreads(1)
		b := run(untimed)
		par.SetThreads(threads)
		if !reflect.DeepEqual(a.Manifest(), b.Manifest()) || !reflect.DeepEqual(a.Numbers(), b.Numbers()) {
			t.Errorf("%s: two runs differ: %+v and %+v", kind, a.Manifest(), b.Manifest())
		}
		if a.Whole.Loss() == 0 || kind == "encoder" && math.Abs(a.Whole.Loss()) >= math.Abs(a.NearAlone.Loss()) {
			t.Errorf("%s: the loss is %v, %v with the near field alone", kind, a.Whole, a.NearAlone)
		}
		if len(a.Layers) != 2 || !(a.Layers[0].FarShare > 0.1 && a.Layers[0].FarShare < 1) || len(a.Layers[0].Distances) != 2 {
			t.Errorf("%s: layers are %+v", kind, a.Layers)
		}
		wild := a.Manifest().Calibration.WildShares
		for _, l := range a.Layers {
			if share := wild[layerName(l.Number)]; share != l.WildShare || !(share > 0 && share < 1) {
				t.Errorf("%s: %g of the weight of layer %d is wild, %g in the manifest", kind, l.WildShare, l.Number, share)
			}
		}
		if last := a.Times[len(a.Times)-1]; a.Times[0].Tokens != 512 || !(last.Trained > 0 && last.Choice > 0 && last.NearAlone > 0) || last.StateBytes > 0 != (kind == model.Decoder) {
			t.Errorf("%s: times are %+v", kind, a.Times)
		}
		page := string(a.Page("a model"))
		if first, _, _ := strings.Cut(page, "\n"); first != a.Verdict() || !strings.Contains(page, "near field alone") || !strings.Contains(page, "run wild at order 1") {
			t.Errorf("%s: the page is %s", kind, page)
		}
	}
}

// Where keys are as many as cells nothing is lost, and a wish that no cells meet keeps layers exact.
func TestWishes(t *testing.T) {
	s := subject(t, "decoder")
	x, err := untimed(context.Background(), s, texts(), Options{Wish: &Wish{Nats: 100}, Length: 4096})
	if err != nil {
		t.Fatal(err)
	}
	if !x.Meets || len(x.Exact) != 0 || x.Choice.Cells != 64 || x.ChoiceFLOPs >= x.TrainedFLOPs {
		t.Errorf("a wish that all meet is met by %v, exact %v, with %g of %g operations", x.Choice, x.Exact, x.ChoiceFLOPs, x.TrainedFLOPs)
	}
	x, err = untimed(context.Background(), subject(t, "encoder"), texts(), Options{Wish: &Wish{Cosine: 1 - 1e-12}, Length: 96})
	if err != nil {
		t.Fatal(err)
	}
	if !x.Meets || len(x.Exact) != 2 || len(x.Exchanged) != 0 || math.Abs(x.Whole.Loss()) > 1e-9 || len(x.Numbers()) != 0 {
		t.Errorf("a wish that none meets: %v, exact %v, exchanged %v, met %t", x.Whole, x.Exact, x.Exchanged, x.Meets)
	}
	if _, err := untimed(context.Background(), s, texts(), Options{Wish: &Wish{State: 100}, Length: 96}); err == nil || !strings.Contains(err.Error(), "state: 100 bytes") {
		t.Errorf("a state that no choice has: %v", err)
	}
}

func TestRunIsRefused(t *testing.T) {
	s := subject(t, "decoder")
	for want, o := range map[string]Options{
		"layers: 5":   {Layers: []int{0, 5}},
		"cells: 4000": {Cells: number(4000)},
		"window":      {Window: number(-1), Cells: number(4)},
		"order 3":     {Order: number(3), Cells: number(4)},
	} {
		o.Length = 96
		if _, err := untimed(context.Background(), s, texts(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %q", err, want)
		}
	}
	ctx, stop := context.WithCancel(context.Background())
	stop()
	if _, err := untimed(ctx, s, texts(), Options{Length: 96}); err == nil {
		t.Error("a run that has ended goes on")
	}
	if err := s.Model.CheckMechanisms(); err != nil {
		t.Errorf("mechanisms are not put back: %v", err)
	}
	if _, _, err := CutWindows(windows(1, 96), 100); err == nil {
		t.Error("one window is divided")
	}
	cal, held, err := CutWindows(windows(100, 96), 960)
	if err != nil || len(cal) != 10 || len(held) != 20 {
		t.Errorf("%d windows calibrate, %d judge: %v", len(cal), len(held), err)
	}
}

// The keys of the calibration lie about as far from their centres as the calibration says; other keys
// lie farther.
func TestKeyDistanceTellsTextsApart(t *testing.T) {
	s := subject(t, "decoder")
	in := texts()
	for _, w := range slices.Concat(in.Calibration, in.HeldOut) {
		for i := range w {
			w[i] %= 5
		}
	}
	x, err := untimed(context.Background(), s, in, Options{Cells: number(64), Length: 96})
	if err != nil {
		t.Fatal(err)
	}
	numbers := map[string][]float32{}
	for _, a := range x.Numbers() {
		if numbers[a.Name], err = a.Float32(); err != nil {
			t.Fatal(err)
		}
	}
	y, err := s.Model.Exchanged(model.Exchange{Mechanism: Name, Set: map[string]string{"cells": "64"}, Numbers: numbers})
	if err != nil {
		t.Fatal(err)
	}
	known := x.Manifest().Calibration.Distances
	if largest := x.Manifest().Calibration.Largest; !(largest > 0.95 && largest < 1.2) {
		t.Errorf("the farthest held-out window is %g times as far as all", largest)
	}
	near, err := KeyDistance(t.Context(), y, &model.Batch{B: 1, N: 96, Tokens: in.HeldOut[0]}, known)
	if err != nil || !(near > 0.9 && near < 1.1) {
		t.Errorf("held-out keys are %g times as far as held-out keys: %v", near, err)
	}
	far, err := KeyDistance(t.Context(), y, &model.Batch{B: 1, N: 96, Tokens: windows(1, 96)[0]}, known)
	if err != nil || far < 1.1 {
		t.Errorf("keys of other tokens are %g times as far: %v", far, err)
	}
	if none, err := KeyDistance(t.Context(), s.Model, &model.Batch{B: 1, N: 96, Tokens: in.HeldOut[0]}, nil); none != 0 || err != nil {
		t.Errorf("a model without cells has the distance %g: %v", none, err)
	}
	if _, err := mechanism.Lookup(Name); err != nil {
		t.Error(err)
	}
}

// Clusters of the input are chosen where no codebook meets the wish, and the page says why; in short
// windows they are not tried.
func TestClustersOfTheInputAreACandidate(t *testing.T) {
	const n = 1100
	m, err := model.New(model.Config{Kind: model.Encoder, Vocab: 31, Context: n, Layers: 1, Width: 16, Heads: 2, Mechanism: "softmax", Positions: model.Rotary}, rng.New(3))
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range m.Params().All() {
		if strings.HasSuffix(p.Name, "_proj.weight") {
			for i := range p.Data {
				p.Data[i] *= 20
			}
		}
	}
	w := windows(3, n)
	in := Texts{Calibration: w[:1], HeldOut: w[1:2], Other: w[2:]}
	x, err := untimed(t.Context(), &Subject{Model: m}, in, Options{Cells: number(64), Order: number(0), Window: number(16), Wish: &Wish{Cosine: 0.999}, Length: n})
	if err != nil {
		t.Fatal(err)
	}
	if x.Choice.Tol == 0 || !x.Meets || len(x.Exact) != 0 || len(x.Numbers()) != 0 || !strings.Contains(x.Why, "no codebook meets the wish") {
		t.Errorf("the choice is %v, exact %v, because %s", x.Choice, x.Exact, x.Why)
	}
	if page := string(x.Page("a model")); !strings.Contains(page, "Why this choice: "+x.Why) || !strings.Contains(page, "of the input, tol") {
		t.Errorf("the page is %s", page)
	}
	if got := x.Manifest().Layers[0].Set["centres"]; got != "input" {
		t.Errorf("the layer has centres=%s", got)
	}
	if x, err = untimed(t.Context(), subject(t, model.Encoder), texts(), Options{Wish: &Wish{Cosine: 0.5}, Length: 96}); err != nil || !strings.Contains(x.Why, "were not tried") {
		t.Errorf("in short windows: %v, %v", x, err)
	}
}

// The page says at once from which length on an exchange saves time, where that is beyond the texts.
func TestPageSaysWhereTheExchangePays(t *testing.T) {
	times := func(choice ...float64) (list []Time) {
		for i, seconds := range choice {
			list = append(list, Time{Tokens: 512 << i, Trained: 1, Choice: seconds})
		}
		return list
	}
	for _, x := range []struct {
		times []Time
		want  string
	}{
		{times(0.9, 0.5), ""},
		{times(2, 1, 0.5), "In the times measured here the exchanged layer is faster from 2048 tokens on, and slower below."},
		{times(0.5, 2, 0.5), "In the times measured here the exchanged layer is faster from 2048 tokens on, and slower below."},
		{times(2, 1), "In the times measured here, up to 1024 tokens, the exchange saves no time."},
	} {
		r := &Result{Exchanged: []int{0}, Length: 512, Times: x.times}
		_, rest, _ := strings.Cut(string(r.Page("model")), "\n\n")
		if got, _, _ := strings.Cut(rest, "\n\n"); strings.HasPrefix(got, "In the times") != (x.want != "") || x.want != "" && got != x.want {
			t.Errorf("%v: %q, want %q behind the first line", x.times, got, x.want)
		}
	}
}
