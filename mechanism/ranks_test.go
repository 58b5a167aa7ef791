package mechanism

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/oracle"
	"github.com/farfield-ml/farfield/internal/sequence"
	"github.com/farfield-ml/farfield/internal/suite"
	"github.com/farfield-ml/farfield/tensor"
)

// partings are where sequences of 23 tokens are divided, some parts of them empty.
var partings = [][]int{{0, 23}, {0, 9, 23}, {0, 0, 17, 23}, {0, 4, 8, 23, 23}, {0, 3, 3, 7, 8, 16, 20, 23}}

// A sequence that is divided among ranks has the outputs and the gradients of the
// textbook. Subjects with neither a causal linear form nor states that calls go on from, and those with
// a window, are refused on every rank.
func TestRanksAreTheTextbook(t *testing.T) {
	for _, s := range subjects() {
		if !suite.IsLong() && !firstSubjects()[s.label] {
			continue
		}
		t.Run(s.label, func(t *testing.T) {
			t.Parallel()
			divided(t, s)
		})
	}
}

// dividedShapes returns the shapes of streams, unmasked shapes, and shapes with key
// lengths.
func dividedShapes(s subject) []shape {
	list := streams(s)
	for i, sh := range slices.Clone(list) {
		if sh.decay == 0 {
			sh.name, sh.causal = "unmasked, "+sh.name, false
			list = append(list, s.fit(sh))
		}
		sh = list[i]
		sh.name, sh.lens = "key lengths, "+sh.name, []int64{19, 5}
		list = append(list, sh)
		if sh.decay > 0 {
			sh.name, sh.decay = "fast, "+sh.name, 40
			list = append(list, sh)
		}
	}
	return list
}

func divided(t *testing.T, s subject) {
	for i, sh := range dividedShapes(s) {
		if testing.Short() && i%3 > 0 {
			continue
		}
		oc, do := sh.call(50)
		m, book := build(t, s, sh.h)
		c, doT := callIn(oc), in(do)
		c.Chunk = 4
		segments := m.Traits().Segments
		if !segments && (!s.linear() || !s.causal() || s.book.Window != nil) {
			refusedByRanks(t, s, sh, c)
			continue
		}
		if s.given != nil && !sh.causal { // tilted cells go over ranks in causal calls alone
			refusedByRanks(t, s, sh, c)
			continue
		}
		if err := sequence.CheckMechanism(m, sh.causal); err != nil {
			t.Errorf("%s: %v", sh.name, err)
			continue
		}
		want, v := book.Forward(oc), check.MaxAbs(oc.V.Data)
		grads := book.Backward(oc, do)
		if segments { // those of one process
			one, _ := build(t, s, sh.h)
			r := both(t, one, callIn(oc), doT)
			grads = &oracle.Grads{DQ: oracle.Heads{Data: widened(r.g.DQ.Data)}, DK: oracle.Heads{Data: widened(r.g.DK.Data)}, DV: oracle.Heads{Data: widened(r.g.DV.Data)}, DTau: widened(r.tau)}
		}
		// Sums of the ranks' sums are roundings more: a chunk of as many tokens.
		l := limits(s, m, &attention.Call{Q: c.Q, K: c.K, V: c.V, Chunk: 4 + len(partings[len(partings)-1]), Form: attention.Step})
		// Each shape is divided in one way, and in another one with the other type.
		turn := i
		if check.UnitRoundoff[float]() < 0x1p-24 {
			turn += 2
		}
		for _, cuts := range partings[turn%len(partings):][:1] {
			name := fmt.Sprintf("%s, %T, %d ranks", sh.name, c.Q.Data, len(cuts)-1)
			got, err := ranks(t, s, sh, c, doT, cuts)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if got.keep.UnseenCount != int64(want.QueriesWithoutKeys) {
				t.Errorf("%s: %d queries see no key, want %d", name, got.keep.UnseenCount, want.QueriesWithoutKeys)
			}
			if got.keep.WeakCount > 0 && check.UnitRoundoff[float]() == 0x1p-24 {
				continue // float32 promises nothing there
			}
			for i, cond := range want.Cond {
				ref := want.O.Data[i*sh.dv:][:sh.dv]
				if e := check.ErrorRatio(got.o.Data[i*sh.dv:][:sh.dv], ref, l.Output(cond, want.Factor[i]*v+check.MaxAbs(ref))); e > 1 {
					t.Fatalf("%s: row %d is off by %.3g limits", name, i, e)
				}
			}
			size := check.MaxAbs(do.Data) * v
			if segments {
				size *= check.Pick(2.0, 1) // in float32 both sides err
			}
			got.holdGradients(t, name, l, sh, want, grads, size)
		}
	}
}

// partOf is tokens i0 ≤ i < i1 of a call, with key lengths.
func partOf(c *attention.Call, i0, i1 int) *attention.Call {
	p := piece(c, i0, i1)
	p.Causal, p.Chunk = c.Causal, c.Chunk
	for _, n := range c.KeyLens {
		p.KeyLens = append(p.KeyLens, min(max(n-int64(i0), 0), int64(i1-i0)))
	}
	return p
}

// ranks computes c and its gradient with a rank for each part.
func ranks(t *testing.T, s subject, sh shape, c *attention.Call, do tensor.Heads, cuts []int) (*results, error) {
	got := &results{o: output(c)}
	got.g = attention.Grads{DQ: poisoned(sh.b, sh.h, sh.n, sh.d), DK: poisoned(sh.b, sh.hkv, sh.n, sh.d), DV: poisoned(sh.b, sh.hkv, sh.n, sh.dv)}
	if sh.decay > 0 {
		got.g.DLogG = poisoned(sh.b, sh.hkv, sh.n, 1)
	}
	var mu sync.Mutex
	err := comm.RunLocal(len(cuts)-1, func(r *comm.Comm) error {
		mu.Lock()
		m, _ := build(t, s, sh.h)
		mu.Unlock()
		i0, i1 := cuts[r.Rank()], cuts[r.Rank()+1]
		p, o := partOf(c, i0, i1), got.o.Tokens(i0, i1)
		g := attention.Grads{DQ: got.g.DQ.Tokens(i0, i1), DK: got.g.DK.Tokens(i0, i1), DV: got.g.DV.Tokens(i0, i1)}
		if sh.decay > 0 {
			g.DLogG = got.g.DLogG.Tokens(i0, i1)
		}
		m.Params().ZeroGrad()
		var keep sequence.Saved
		if err := sequence.Forward(r, m, o, p, &keep); err != nil {
			return err
		}
		if err := sequence.Backward(r, m, &g, do.Tokens(i0, i1), o, p, &keep); err != nil {
			return err
		}
		var tau []float
		for _, p := range m.Params().All() {
			tau = append(tau, p.Grad...)
		}
		if err := comm.AllReduce(r, tau); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		got.tau = tau
		got.keep.UnseenCount += keep.Queries.UnseenCount
		got.keep.WeakCount += keep.Queries.WeakCount
		return nil
	})
	return got, err
}

func refusedByRanks(t *testing.T, s subject, sh shape, c *attention.Call) {
	err := comm.RunLocal(2, func(r *comm.Comm) error {
		m, _ := build(t, s, sh.h)
		p := partOf(c, 11*r.Rank(), 11+12*r.Rank())
		return sequence.Forward(r, m, output(p), p, nil)
	})
	if err == nil || !strings.Contains(err.Error(), s.name) && !strings.Contains(err.Error(), "is causal alone") {
		t.Errorf("%s: error %v", sh.name, err)
	}
}
