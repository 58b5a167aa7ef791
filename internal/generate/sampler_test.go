package generate

import (
	"math"
	"slices"
	"strings"
	"testing"
)

// draw returns how often each token is drawn in n draws.
func draw(t *testing.T, s Sampling, logits []float32, n int) []int {
	t.Helper()
	sampler, err := NewSampler(s, len(logits))
	if err != nil {
		t.Fatal(err)
	}
	times := make([]int, len(logits))
	for i := range n {
		k, err := sampler.DrawToken(logits, uint64(i))
		if err != nil {
			t.Fatal(err)
		}
		times[k]++
	}
	return times
}

func logs(p ...float64) []float32 {
	l := make([]float32, len(p))
	for i, x := range p {
		l[i] = float32(math.Log(x)) + 3 // a shift changes nothing
	}
	return l
}

func TestTokensFollowTheLimitedDistribution(t *testing.T) {
	p := []float64{0.1, 0.4, 0.05, 0.3, 0.15}
	share := func(w ...float64) []float64 {
		var sum float64
		for _, x := range w {
			sum += x
		}
		for i := range w {
			w[i] /= sum
		}
		return w
	}
	for _, c := range []struct {
		name string
		s    Sampling
		want []float64
	}{
		{"as they are", Sampling{Temperature: 1}, p},
		{"top-p of 1 is all", Sampling{Temperature: 1, TopP: 1}, p},
		{"top-k above the vocabulary is all", Sampling{Temperature: 1, TopK: 9}, p},
		{"temperature a half squares", Sampling{Temperature: 0.5}, share(0.01, 0.16, 0.0025, 0.09, 0.0225)},
		{"top-k", Sampling{Temperature: 1, TopK: 2}, share(0, 0.4, 0, 0.3, 0)},
		{"top-p ends inside", Sampling{Temperature: 1, TopP: 0.71}, share(0, 0.4, 0, 0.3, 0.15)},
		{"top-p keeps at least one", Sampling{Temperature: 1, TopP: 0.01}, share(0, 1, 0, 0, 0)},
		{"min-p", Sampling{Temperature: 1, MinP: 0.3}, share(0, 0.4, 0, 0.3, 0.15)},
		{"min-p after temperature and top-p", Sampling{Temperature: 0.5, MinP: 0.5, TopP: 0.99}, share(0, 0.16, 0, 0.09, 0)},
		{"top-p after top-k", Sampling{Temperature: 1, TopK: 3, TopP: 0.8}, share(0, 0.4, 0, 0.3, 0)},
		{"greedy", Sampling{}, share(0, 1, 0, 0, 0)},
		{"top-k of one is greedy", Sampling{Temperature: 2, TopK: 1}, share(0, 1, 0, 0, 0)},
	} {
		const n = 20000
		for k, times := range draw(t, c.s, logs(p...), n) {
			got, want := float64(times)/n, c.want[k]
			// Five standard deviations of a binomial share.
			if limit := 5 * math.Sqrt(want*(1-want)/n); math.Abs(got-want) > limit {
				t.Errorf("%s: token %d has share %.4f, want %.4f ± %.4f", c.name, k, got, want, limit)
			}
		}
	}
}

func TestTiesGoToTheLowerToken(t *testing.T) {
	l := []float32{1, 2, 2, 2}
	if times := draw(t, Sampling{}, l, 10); times[1] != 10 {
		t.Errorf("greedy drew %v", times)
	}
	if times := draw(t, Sampling{Temperature: 1, TopK: 2}, l, 1000); times[3] != 0 || times[1] == 0 || times[2] == 0 {
		t.Errorf("top-k of 2 drew %v", times)
	}
}

func TestNextIsAFunctionOfSeedAndNumber(t *testing.T) {
	l := logs(0.2, 0.2, 0.2, 0.2, 0.2)
	run := func(seed uint64, backwards bool) []int32 {
		s, err := NewSampler(Sampling{Temperature: 1, Seed: seed}, len(l))
		if err != nil {
			t.Fatal(err)
		}
		out := make([]int32, 100)
		for j := range out {
			i := j
			if backwards {
				i = len(out) - 1 - j
			}
			if out[i], err = s.DrawToken(l, uint64(i)); err != nil {
				t.Fatal(err)
			}
		}
		return out
	}
	a := run(1, false)
	if !slices.Equal(a, run(1, true)) {
		t.Error("the order of the draws changes them")
	}
	if slices.Equal(a, run(2, false)) {
		t.Error("the seed does not change the draws")
	}
}

func TestImpossibleTokensAreNotDrawn(t *testing.T) {
	none := float32(math.Inf(-1))
	l := []float32{none, 0, none, -200, none}
	for _, s := range []Sampling{{Temperature: 1}, {Temperature: 1, TopK: 4}, {Temperature: 0.1, TopP: 0.99}} {
		if times := draw(t, s, l, 1000); times[1] != 1000 {
			t.Errorf("%+v drew %v", s, times)
		}
	}
}

func TestNewRefusesNoModel(t *testing.T) {
	if _, err := New(nil, Sampling{}); err == nil || err.Error() != "model: it is nil" {
		t.Errorf("error %v about a model that is not there", err)
	}
}

func TestSamplerRefusesBadSettingsAndLogits(t *testing.T) {
	for _, c := range []struct {
		s     Sampling
		vocab int
		want  string
	}{
		{Sampling{Temperature: -1}, 2, "temperature: -1"},
		{Sampling{Temperature: math.NaN()}, 2, "temperature: NaN"},
		{Sampling{TopK: -1}, 2, "top-k: -1"},
		{Sampling{TopP: 1.5}, 2, "top-p: 1.5"},
		{Sampling{TopP: math.NaN()}, 2, "top-p: NaN"},
		{Sampling{}, 0, "0 tokens"},
	} {
		if _, err := NewSampler(c.s, c.vocab); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: error is %v", c.s, err)
		}
	}
	s, err := NewSampler(Sampling{Temperature: 1}, 2)
	if err != nil {
		t.Fatal(err)
	}
	inf := float32(math.Inf(1))
	for _, l := range [][]float32{{1}, {0, float32(math.NaN())}, {0, inf}, {-inf, -inf}} {
		if _, err := s.DrawToken(l, 0); err == nil {
			t.Errorf("logits %v: no error", l)
		}
	}
}

func TestNextDoesNotAllocate(t *testing.T) {
	l := make([]float32, 257)
	for i := range l {
		l[i] = float32(i * 31 % 17)
	}
	for _, set := range []Sampling{{}, {Temperature: 1}, {Temperature: 0.8, TopK: 40, TopP: 0.9}} {
		s, err := NewSampler(set, len(l))
		if err != nil {
			t.Fatal(err)
		}
		i := uint64(0)
		if n := testing.AllocsPerRun(100, func() {
			if _, err := s.DrawToken(l, i); err != nil {
				t.Fatal(err)
			}
			i++
		}); n != 0 {
			t.Errorf("%+v: %v allocations a token", set, n)
		}
	}
}
