package engine

import (
	"math"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/internal/attention/calltest"
	"github.com/farfield-ml/farfield/internal/attention/headtask"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/internal/par"
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

// hook is a feature map that calls f first.
type hook struct{ f func() }

func (hook) Dim(d int) int { return d }

// longCall is one head of many tokens.
func longCall(causal bool) (*attention.Call, tensor.Heads) {
	r := rand.New(rand.NewPCG(34, 35))
	c := calltest.NewCall(&oracle.Call{Q: calltest.Normal(r, 1, 1, 2000, 4), K: calltest.Normal(r, 1, 1, 2000, 4), V: calltest.Normal(r, 1, 1, 2000, 4), Causal: causal})
	return c, tensor.NewHeads(1, 1, 2000, 4)
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
			e := mustNew(t, attention.Spec{Name: "hook", Scale: 1, Coef: oracle.TaylorCoef(2), Map: hook{func() {
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
		e := mustNew(t, attention.Spec{Name: "hook", Scale: 1, Coef: oracle.TaylorCoef(2), Map: hook{func() {
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
	e := mechanismOf(t, "fastmax2", calltest.Textbook["fastmax2"])
	for _, form := range []attention.Form{attention.Linear, attention.Direct} {
		for _, causal := range []bool{false, true} {
			c, out := longCall(causal)
			c.Form, c.Chunk = form, 4
			keep := new(attention.Saved)
			g := &attention.Grads{DQ: calltest.Convert(calltest.Normal(rand.New(rand.NewPCG(1, 1)), 1, 1, 2000, 4)), DK: tensor.NewHeads(1, 1, 2000, 4), DV: tensor.NewHeads(1, 1, 2000, 4)}
			const most = 150 // there are 500 chunks
			allocs := math.Inf(1)
			for i := 0; i < 10 && allocs > most; i++ {
				allocs = min(allocs, testing.AllocsPerRun(1, func() {
					if e.Forward(out, c, keep) != nil || e.Backward(g, out, out, c, keep) != nil {
						t.Fatal("fails")
					}
				}))
			}
			if allocs > most {
				t.Errorf("%v, causal %v: %v allocations", form, causal, allocs)
			}
		}
	}
}

func (h hook) Map(dst, x []float) {
	h.f()
	copy(dst, x)
}

func (h hook) Grad(dx, dy, x []float) { copy(dx, dy) }
