package engine

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/attention/internal/calltest"
	"github.com/farfield-ml/farfield/attention/internal/headtask"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/internal/par"
	"github.com/farfield-ml/farfield/internal/suite"
	"github.com/farfield-ml/farfield/tensor"
)

// divide has the tokens of every task divided, however few they are, until the
// test ends.
func divide(t *testing.T) {
	before := headtask.SplitWork
	headtask.SplitWork = 0
	t.Cleanup(func() {
		headtask.SplitWork = before
		par.SetThreads(0)
	})
}

// sameForAnyTeam compares the bits of both directions for several numbers of
// workers.
func sameForAnyTeam(t *testing.T, e attention.Mechanism[float32], c *attention.Call[float32], form attention.Form) {
	t.Helper()
	do := calltest.Convert[float32](calltest.Normal(rand.New(rand.NewPCG(30, 31)), c.Q.B, c.Q.H, c.Q.N, c.V.D))
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
	for what, c := range calltest.Problems() {
		for name, m := range mechanisms {
			if m.OutputNorm && c.LogG.D > 0 {
				continue // refused: see TestOutputNormRefusesDecay
			}
			t.Run(name+"/"+what, func(t *testing.T) {
				e, call := mechanismOf[float32](t, name, m), calltest.NewCall[float32](c)
				for _, chunk := range []int{1, 4, 0} {
					if call.Chunk = chunk; !m.Exp && c.AttnKeep == nil {
						sameForAnyTeam(t, e, call, attention.Linear)
					}
				}
				sameForAnyTeam(t, e, call, attention.Direct)
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
		widths, n = widths[:3], headtask.GradQueries+45
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
				e := mechanismOf[float32](t, name, &mechanism)
				for _, causal := range []bool{false, true} {
					if c.LogG.D > 0 && !causal {
						continue
					}
					t.Run(fmt.Sprintf("%s/%s/%d/%v", name, what, d, causal), func(t *testing.T) {
						call := calltest.NewCall[float32](c)
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

// hook is a feature map that calls f first.
type hook struct{ f func() }

func (hook) Dim(d int) int { return d }

func (h hook) Map(dst, x []float32) {
	h.f()
	copy(dst, x)
}

func (h hook) Grad(dx, dy, x []float32) { copy(dx, dy) }

// longCall is one head of many tokens.
func longCall(causal bool) (*attention.Call[float32], tensor.Heads[float32]) {
	r := rand.New(rand.NewPCG(34, 35))
	c := calltest.NewCall[float32](&oracle.Call{Q: calltest.Normal(r, 1, 1, 2000, 4), K: calltest.Normal(r, 1, 1, 2000, 4), V: calltest.Normal(r, 1, 1, 2000, 4), Causal: causal})
	return c, tensor.NewHeads[float32](1, 1, 2000, 4)
}

// One key head is work for more than one worker.
func TestTeamWorksAtTheSameTime(t *testing.T) {
	divide(t)
	par.SetThreads(2)
	for _, form := range []attention.Form{attention.Linear, attention.Direct} {
		for _, causal := range []bool{false, true} {
			var once sync.Once
			var mu sync.Mutex
			inside, met := 0, make(chan bool)
			e := mustNew(t, attention.Spec[float32]{Name: "hook", Scale: 1, Coef: oracle.TaylorCoef(2), Map: hook{func() {
				mu.Lock()
				inside++
				if inside == 2 {
					once.Do(func() { close(met) })
				}
				mu.Unlock()
				select { // until somebody else is here too
				case <-met:
				case <-time.After(20 * time.Second):
					t.Errorf("%v, causal %v: one worker is alone", form, causal)
					once.Do(func() { close(met) })
				}
				mu.Lock()
				inside--
				mu.Unlock()
			}}})
			c, out := longCall(causal)
			c.Form = form
			if err := e.Forward(out, c, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A worker that panics leaves no worker waiting.
func TestTeamRaisesPanics(t *testing.T) {
	divide(t)
	par.SetThreads(3)
	for _, form := range []attention.Form{attention.Linear, attention.Direct} {
		c, out := longCall(true)
		c.Form = form
		var mu sync.Mutex
		calls := 0
		e := mustNew(t, attention.Spec[float32]{Name: "hook", Scale: 1, Coef: oracle.TaylorCoef(2), Map: hook{func() {
			mu.Lock()
			defer mu.Unlock()
			if calls++; calls == 17 {
				panic("17")
			}
		}}})
		func() {
			defer func() {
				if x := recover(); x != "17" {
					t.Errorf("%v: recovered %v", form, x)
				}
			}()
			e.Forward(out, c, nil)
		}()
	}
}

// A group allocates for its members, and nothing for a piece once their scratch
// memory has grown.
func TestTeamAllocations(t *testing.T) {
	if calltest.Raced {
		t.Skip("the race detector allocates")
	}
	divide(t)
	par.SetThreads(2)
	e := mechanismOf[float32](t, "fastmax2", calltest.Textbook["fastmax2"])
	for _, form := range []attention.Form{attention.Linear, attention.Direct} {
		for _, causal := range []bool{false, true} {
			c, out := longCall(causal)
			c.Form, c.Chunk = form, 4
			keep := new(attention.Saved[float32])
			g := &attention.Grads[float32]{DQ: calltest.Convert[float32](calltest.Normal(rand.New(rand.NewPCG(1, 1)), 1, 1, 2000, 4)), DK: tensor.NewHeads[float32](1, 1, 2000, 4), DV: tensor.NewHeads[float32](1, 1, 2000, 4)}
			allocs := math.Inf(1)
			for range 10 {
				allocs = min(allocs, testing.AllocsPerRun(1, func() {
					if e.Forward(out, c, keep) != nil || e.Backward(g, out, out, c, keep) != nil {
						t.Fatal("fails")
					}
				}))
			}
			if allocs > 150 { // there are 500 chunks
				t.Errorf("%v, causal %v: %v allocations", form, causal, allocs)
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
		c := calltest.NewCall[float32](&oracle.Call{Q: calltest.Normal(r, 1, 2, n, d), K: calltest.Normal(r, 1, 1, n, d), V: calltest.Normal(r, 1, 1, n, d+1)})
		for variant := range 4 {
			masked, decay := variant&1 > 0, variant&2 > 0
			if c.KeyMask = nil; masked {
				c.KeyMask = calltest.Flags(r, n)
				clear(c.KeyMask[:200])
				clear(c.KeyMask[300:420])
			}
			if c.LogG = (tensor.Heads[float32]{}); decay {
				c.LogG = tensor.NewHeads[float32](1, 1, n, 1)
				for i := range c.LogG.Data {
					c.LogG.Data[i] = -float32(r.ExpFloat64()) / 10
				}
			}
			for _, carry := range []attention.Carry{attention.Rounded, attention.Compensated} {
				for _, name := range []string{"fastmax2", "linear", "softmax"} {
					e := mechanismOf[float32](t, name, calltest.Textbook[name])
					sh := c.Shape()
					sh.Carry = carry
					var want attention.State[float32]
					var first []float32
					for _, threads := range []int{1, 2, 5} {
						par.SetThreads(threads)
						st, err := e.NewState(sh)
						if err != nil {
							t.Fatal(err)
						}
						out, all := calltest.Poisoned[float32](1, 2, n, d+1), calltest.Poisoned[float32](1, 2, n, d+1)
						for _, f := range []func() error{
							func() error { return st.Absorb(tokens(c, 0, 5)) },
							func() error { return st.Step(out.Tokens(5, 600), tokens(c, 5, 600)) },
							func() error { return st.Absorb(tokens(c, 600, n)) },
							func() error { return st.Read(out.Tokens(600, n), &attention.Call[float32]{Q: c.Q.Tokens(600, n)}) },
							func() error { return st.Read(all, &attention.Call[float32]{Q: c.Q}) },
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
