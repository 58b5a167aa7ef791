//go:build !float64

package engine

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/attention/calltest"
	"github.com/farfield-ml/farfield/internal/attention/headtask"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/internal/suite"
	"github.com/farfield-ml/farfield/tensor"
)

// sameForAnyTeam compares the bits of both directions for several numbers of
// workers.
func sameForAnyTeam(t *testing.T, e attention.Mechanism, c *attention.Call, form attention.Form) {
	t.Helper()
	do := calltest.Convert(calltest.Normal(rand.New(rand.NewPCG(30, 31)), c.Q.B, c.Q.H, c.Q.N, c.V.D))
	var want [7][]float32
	workers := []int{1, 2, 3, 5}
	if !suite.IsLong() {
		workers = []int{1, 3}
	}
	for _, threads := range workers {
		par.SetThreads(threads)
		out, keep := calltest.Forward(t, e, c, form)
		g, dtau := calltest.Backward(t, e, c, do, out, keep)
		got := [...][]float32{out.Data, keep.Den, g.DQ.Data, g.DK.Data, g.DV.Data, dtau, g.DLogG.Data}
		if threads == 1 {
			want = got
			continue
		}
		for i, name := range []string{"o", "denominators", "dq", "dk", "dv", "dtau", "dlog_g"} {
			for j, x := range got[i] {
				if math.Float32bits(x) != math.Float32bits(want[i][j]) {
					t.Fatalf("%v: %d workers change %s[%d] from %v to %v", form, threads, name, j, want[i][j], x)
				}
			}
		}
	}
}

// Any number of workers on the tokens of one key head gives the same bits.
func TestTeamOnProblems(t *testing.T) {
	divide(t)
	mechanisms := polynomials()
	maps.Copy(mechanisms, calltest.Textbook)
	problems := calltest.Problems()
	for i, what := range slices.Sorted(maps.Keys(problems)) {
		c := problems[what]
		for j, name := range slices.Sorted(maps.Keys(mechanisms)) {
			m := mechanisms[name]
			if m.OutputNorm && c.LogG.D > 0 {
				continue // refused: see TestOutputNormRefusesDecay
			}
			t.Run(name+"/"+what, func(t *testing.T) {
				e, call := mechanismOf(t, name, m), calltest.NewCall(c)
				chunks := []int{1, 4, 0}
				if !suite.IsLong() { // each with some mechanisms of each problem, and some problems of each mechanism
					chunks = chunks[(i+j)%3:][:1]
				}
				for _, chunk := range chunks {
					if call.Chunk = chunk; !m.Exp && c.AttnKeep == nil {
						sameForAnyTeam(t, e, call, attention.Linear)
					}
				}
				if calltest.IsTried(name, c) {
					sameForAnyTeam(t, e, call, attention.Direct)
				}
			})
		}
	}
}

// The same at widths and lengths of several chunks and blocks, none of them
// whole at the end.
func TestTeamOnLongSequences(t *testing.T) {
	divide(t)
	widths, n, m := []int{3, 16, 33, 64}, 2*headtask.GradQueries+45, 3*headtask.KeyBlock+5
	if !suite.IsLong() {
		widths, n = []int{3, 33}, headtask.GradQueries+45
	}
	for _, d := range widths {
		r := rand.New(rand.NewPCG(32, uint64(d)))
		of := func(h, hkv int) *oracle.Call {
			return &oracle.Call{Q: calltest.Normal(r, 1, h, n, d), K: calltest.Normal(r, 1, hkv, m, d), V: calltest.Normal(r, 1, hkv, m, d+1)}
		}
		one, group, masked, packed, rotated := of(1, 1), of(3, 1), of(2, 2), of(2, 1), of(1, 1)
		faded, late := *group, *masked
		calltest.Fade(r, &faded)
		calltest.Fade(r, &late)
		masked.KeyMask = calltest.Flags(r, m)
		clear(masked.KeyMask[:300])
		packed.CuQ, packed.CuK = []int64{0, 7, 9, int64(n) - 3, int64(n)}, []int64{0, 11, 11, int64(m) - 5, int64(m)}
		rotated.Theta = 100
		rotated.Q = calltest.Normal(r, 1, 1, m-20, d)
		rotated.KeyMask = make([]bool, m) // no key at all
		late.KeyMask = slices.Clone(masked.KeyMask)
		clear(late.KeyMask[500:])
		for what, c := range map[string]*oracle.Call{"one": one, "group": group, "masked": masked, "packed": packed, "unseen": rotated, "decay": &faded, "decay, masked": &late} {
			for _, name := range []string{"softmax", "fastmax2", "taylorshift", "linear"} {
				if name == "linear" && c.LogG.D == 0 {
					continue
				}
				mechanism := *calltest.Textbook[name]
				if mechanism.Tau != nil {
					mechanism.Tau = mechanism.Tau[:c.Q.H]
				}
				e := mechanismOf(t, name, &mechanism)
				for _, causal := range []bool{false, true} {
					if c.LogG.D > 0 && !causal {
						continue
					}
					t.Run(fmt.Sprintf("%s/%s/%d/%v", name, what, d, causal), func(t *testing.T) {
						call := calltest.NewCall(c)
						call.Causal = causal
						if name != "softmax" {
							sameForAnyTeam(t, e, call, attention.Linear)
						}
						sameForAnyTeam(t, e, call, attention.Direct)
					})
				}
			}
		}
	}
}

// States take in long pieces, and answer them, with the same bits too.
func TestTeamOnStates(t *testing.T) {
	divide(t)
	r := rand.New(rand.NewPCG(36, 37))
	for _, d := range []int{3, 33} {
		const n = 700
		c := calltest.NewCall(&oracle.Call{Q: calltest.Normal(r, 1, 2, n, d), K: calltest.Normal(r, 1, 1, n, d), V: calltest.Normal(r, 1, 1, n, d+1)})
		for variant := range 4 {
			masked, decay := variant&1 > 0, variant&2 > 0
			if c.KeyMask = nil; masked {
				c.KeyMask = calltest.Flags(r, n)
				clear(c.KeyMask[:200])
				clear(c.KeyMask[300:420])
			}
			if c.LogG = (tensor.Heads{}); decay {
				c.LogG = tensor.NewHeads(1, 1, n, 1)
				for i := range c.LogG.Data {
					c.LogG.Data[i] = -float32(r.ExpFloat64()) / 10
				}
			}
			for _, carry := range []attention.Carry{attention.Rounded, attention.Compensated} {
				for _, name := range []string{"fastmax2", "linear", "softmax"} {
					e := mechanismOf(t, name, calltest.Textbook[name])
					sh := c.Shape()
					sh.Carry = carry
					var want attention.State
					var first []float32
					for _, threads := range []int{1, 2, 5} {
						par.SetThreads(threads)
						st, err := e.NewState(sh)
						if err != nil {
							t.Fatal(err)
						}
						out, all := calltest.Poisoned(1, 2, n, d+1), calltest.Poisoned(1, 2, n, d+1)
						for _, f := range []func() error{
							func() error { return st.Absorb(tokens(c, 0, 5)) },
							func() error { return st.Step(out.Tokens(5, 600), tokens(c, 5, 600)) },
							func() error { return st.Absorb(tokens(c, 600, n)) },
							func() error { return st.Read(out.Tokens(600, n), &attention.Call{Q: c.Q.Tokens(600, n)}) },
							func() error { return st.Read(all, &attention.Call{Q: c.Q}) },
							func() error { return st.Absorb(c) },
						} {
							if err := f(); err != nil {
								t.Fatal(err)
							}
						}
						answers := append(append([]float32(nil), out.Tokens(5, n).Data...), all.Data...)
						if threads == 1 {
							want, first = st, answers
							continue
						}
						what := fmt.Sprintf("%s, D = %d, masked %v, decay %v, carry %v, %d workers", name, d, masked, decay, carry, threads)
						sameState(t, what, st, want)
						for i := range answers {
							if math.Float32bits(answers[i]) != math.Float32bits(first[i]) && !(answers[i] != answers[i] && first[i] != first[i]) {
								t.Fatalf("%s: answer %d is %v, want %v", what, i, answers[i], first[i])
							}
						}
					}
				}
			}
		}
	}
}
