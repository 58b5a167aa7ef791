package factorised

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/attention/calltest"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/tensor"
)

func benchmarkMechanism(b *testing.B, name string) attention.Mechanism {
	m := calltest.Textbook[name]
	e, err := New(attention.Spec{Name: name, Norm: attention.Norm(m.Norm), Scale: m.Scale, Exp: m.Exp, Coef: m.Coef, Positive: true})
	if err != nil {
		b.Fatal(err)
	}
	return e
}

// BenchmarkDecay times calls with decay. The metric "times-without" is their time over the
// time of the same calls without decay: the median of ratios of turns. Rates are the
// rates of RetNet's slowest and fastest heads, and one rate that removes all weight
// within a block of keys.
func BenchmarkDecay(b *testing.B) {
	par.SetThreads(1)
	defer par.SetThreads(0)
	const n, d = 2048, 64
	r := rand.New(rand.NewPCG(40, 41))
	c := calltest.NewCall(&oracle.Call{Q: calltest.Normal(r, 1, 1, n, d), K: calltest.Normal(r, 1, 1, n, d), V: calltest.Normal(r, 1, 1, n, d), Causal: true})
	do := calltest.Convert(calltest.Normal(r, 1, 1, n, d))
	for _, name := range []string{"softmax", "fastmax2"} {
		for _, form := range []attention.Form{attention.Direct, attention.Linear} {
			if name == "softmax" && form == attention.Linear {
				continue
			}
			for _, rate := range []struct {
				name string
				logG tensor.Float
			}{{"slow", -1. / 1024}, {"fast", -1. / 32}, {"fading", -1}} {
				for _, back := range []bool{false, true} {
					what := name + "/" + form.String() + "/" + rate.name
					if back {
						what += "/backward"
					}
					b.Run(what, func(b *testing.B) { benchmarkDecay(b, name, *c, do, form, rate.logG, back) })
				}
			}
		}
	}
}

func benchmarkDecay(b *testing.B, name string, c attention.Call, do tensor.Heads, form attention.Form, logG tensor.Float, back bool) {
	e := benchmarkMechanism(b, name)
	c.Form = form
	out, keep := tensor.NewHeads(c.Q.B, c.Q.H, c.Q.N, c.V.D), new(attention.Saved)
	g := &attention.Grads{DQ: tensor.NewHeads(1, 1, c.Q.N, c.Q.D), DK: tensor.NewHeads(1, 1, c.Q.N, c.Q.D), DV: tensor.NewHeads(1, 1, c.Q.N, c.Q.D)}
	faded, dfaded := tensor.NewHeads(1, 1, c.Q.N, 1), tensor.NewHeads(1, 1, c.Q.N, 1)
	for i := range faded.Data {
		faded.Data[i] = logG
	}
	run := func(logG, dlogG tensor.Heads) time.Duration {
		c.LogG, g.DLogG = logG, dlogG
		start := time.Now()
		err := e.Forward(out, &c, keep)
		if back && err == nil {
			start = time.Now()
			err = e.Backward(g, do, out, &c, keep)
		}
		if err != nil {
			b.Fatal(err)
		}
		return time.Since(start)
	}
	var ratios []float64
	for b.Loop() {
		with := run(faded, dfaded)
		ratios = append(ratios, float64(with)/float64(run(tensor.Heads{}, tensor.Heads{})))
	}
	slices.Sort(ratios)
	b.ReportMetric(ratios[len(ratios)/2], "times-without")
}
