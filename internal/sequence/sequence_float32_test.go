//go:build !float64

package sequence_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/comm/mpi"
	"github.com/farfield-ml/farfield/internal/check"
	"github.com/farfield-ml/farfield/internal/sequence"
	"github.com/farfield-ml/farfield/mechanism"
	"github.com/farfield-ml/farfield/rng"
	"github.com/farfield-ml/farfield/tensor"
)

func TestMain(m *testing.M) {
	if os.Getenv(rankVariable) == "" {
		os.Exit(m.Run())
	}
	if err := rank(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// problem is a call over n tokens, and the gradient of its output.
func problem(n int, causal bool) (*attention.Call, tensor.Heads) {
	k := rng.New(11)
	heads := func(key uint64, h, d int) tensor.Heads {
		x := tensor.NewHeads(1, h, n, d)
		for i := range x.Data {
			x.Data[i] = float32(k.Fold(key).Normal(uint64(i)))
		}
		return x
	}
	return &attention.Call{Q: heads(1, 2, 8), K: heads(2, 1, 8), V: heads(3, 1, 8), Causal: causal}, heads(4, 2, 8)
}

// What a rank sends, forward and back, is the same for any number of tokens.
func TestBytesDoNotDependOnTokens(t *testing.T) {
	for _, causal := range []bool{false, true} {
		var sent [3]int64
		for i, n := range []int{0, 100, 3000} {
			whole, do := problem(n, causal)
			err := comm.RunLocal(3, func(c *comm.Comm) error {
				m := build(t, "fastmax")
				p, i0, i1 := part(c, whole)
				out := tensor.NewHeads(1, 2, i1-i0, 8)
				var keep sequence.Saved
				if err := sequence.Forward(c, m, out, p, &keep); err != nil {
					return err
				}
				g := attention.Grads{DQ: like(p.Q), DK: like(p.K), DV: like(p.V)}
				if err := sequence.Backward(c, m, &g, do.Tokens(i0, i1), out, p, &keep); err != nil {
					return err
				}
				if c.Rank() == 1 {
					sent[i] = c.SentBytes()
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		// 45 features of 8 values and a one under them, twice each way. A third stays at
		// home.
		sums := int64(45 * 9 * 4)
		if sent[0] != sent[1] || sent[1] != sent[2] || sent[2] < 8*sums/3 || sent[2] > 8*sums/3+2000 {
			t.Errorf("causal %t: %d bytes were sent, %d are twice two thirds of the sums each way", causal, sent, 8*sums/3)
		}
	}
}

func TestUnfitPartsAreRefusedOnAllRanks(t *testing.T) {
	for want, x := range map[string]struct {
		mechanism string
		change    func(p *attention.Call, rank int)
	}{
		"the state of softmax grows with the tokens": {"softmax", nil},
		"mechanism: nystrom has no state":            {"nystrom", nil},
		"rank 1: k: a causal part has 6 queries and only 2 keys": {"fastmax", func(p *attention.Call, r int) {
			if r == 1 {
				p.K, p.V = p.K.Tokens(0, 2), p.V.Tokens(0, 2)
			}
		}},
		"rank 0: attn_keep: not defined with ranks":          {"fastmax", func(p *attention.Call, _ int) { p.AttnKeep = make([]bool, 36) }},
		"rank 0: cu_q and cu_k: not defined":                 {"fastmax", func(p *attention.Call, _ int) { p.CuQ = []int64{0, 6} }},
		"rank 0: dropout: not defined":                       {"fastmax", func(p *attention.Call, _ int) { p.Drop = new(attention.Drop) }},
		"rank 0: form: direct is not that of ranks":          {"fastmax", func(p *attention.Call, _ int) { p.Form = attention.Direct }},
		"rank 1: call: is":                                   {"fastmax", func(p *attention.Call, r int) { p.Chunk = 4 + r }},
		"rank 0: v: shape [1,1,6,9] needs 54 elements, has":  {"fastmax", func(p *attention.Call, _ int) { p.V.D, p.V.SN, p.V.Data = 9, 9, p.V.Data[:48] }},
		"rank 0: rope: has 3 rows, the part has 6 positions": {"fastmax", func(p *attention.Call, _ int) { p.Rope = attention.NewRope(8, 100, 0, 3) }},
		"rank 1: o: shape is [1,2,6,8], needs [1,2,5,8]":     {"fastmax", func(p *attention.Call, r int) { p.Q = p.Q.Tokens(0, 6-r) }},
		"rank 1: init and final: not defined with ranks, whose sta": {"fastmax", func(p *attention.Call, r int) {
			if r == 1 {
				p.Init, _ = build(t, "fastmax").NewState(p.Shape())
			}
		}},
	} {
		whole, _ := problem(12, true)
		told := make([]error, 2)
		err := comm.RunLocal(2, func(c *comm.Comm) error {
			p, i0, i1 := part(c, whole)
			if x.change != nil {
				x.change(p, c.Rank())
			}
			told[c.Rank()] = sequence.Forward(c, build(t, x.mechanism), tensor.NewHeads(1, 2, i1-i0, 8), p, nil)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for r, err := range told {
			var shared *comm.RankError
			if !errors.As(err, &shared) || !strings.Contains(err.Error(), want) {
				t.Errorf("rank %d: error %v, want one that says %q", r, err, want)
			}
		}
	}
}

func TestBackwardNeedsForward(t *testing.T) {
	whole, do := problem(4, true)
	err := comm.RunLocal(2, func(c *comm.Comm) error {
		p, i0, i1 := part(c, whole)
		g := attention.Grads{DQ: like(p.Q), DK: like(p.K), DV: like(p.V)}
		d := do.Tokens(i0, i1)
		return sequence.Backward(c, build(t, "fastmax"), &g, d, d, p, new(sequence.Saved))
	})
	if err == nil || !strings.Contains(err.Error(), "saved: not what Forward left") {
		t.Errorf("error %v", err)
	}
}

func TestUnfitGradientsAreRefusedOnAllRanks(t *testing.T) {
	for _, causal := range []bool{false, true} {
		whole, do := problem(8, causal)
		told := make([]error, 2)
		err := comm.RunLocal(2, func(c *comm.Comm) error {
			p, i0, i1 := part(c, whole)
			m, out := build(t, "fastmax"), like(do.Tokens(i0, i1))
			var keep sequence.Saved
			if err := sequence.Forward(c, m, out, p, &keep); err != nil {
				return err
			}
			g := attention.Grads{DQ: like(p.Q), DK: like(p.K), DV: like(p.V)}
			if c.Rank() == 1 {
				g.DV = g.DV.Tokens(0, 3)
			}
			told[c.Rank()] = sequence.Backward(c, m, &g, do.Tokens(i0, i1), out, p, &keep)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for r, err := range told {
			if err == nil || !strings.Contains(err.Error(), "rank 1: dv: shape is [1,1,3,8], needs [1,1,4,8]") {
				t.Errorf("causal %t: rank %d has the error %v", causal, r, err)
			}
		}
	}
}

// rank computes its parts by MPI and holds them against one process.
func rank() error {
	transport, err := mpi.Open(time.Minute)
	if err != nil {
		return err
	}
	c := comm.New(transport)
	for _, causal := range []bool{false, true} {
		for _, x := range []struct {
			name   string
			o      mechanism.Options
			limits check.Limits
			cond   float64
		}{
			// Both err by as much as a chunk of all tokens may. The rows of fastmax have deviation 1, so
			// that |s| ≤ D and f̄/f < 2D.
			{"fastmax", mechanism.Options{}, check.LinearLimits[float32](45, 1001), 16},
			// With order 0 no weight is negative.
			{"multipole", mechanism.Options{Width: 8, KeyHeads: 1, Set: map[string]string{"cells": "20"}}, check.HeadMatrixLimits[float32](1001 + 1001 + 8), 1},
		} {
			m, err := mechanism.New(x.name, x.o)
			if err == nil {
				err = agreesWithOne(c, m, causal, x.limits, x.cond)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", x.name, err)
			}
		}
	}
	fmt.Printf("rank %d of %d agrees by %s\n", c.Rank(), c.Size(), mpi.LibraryName(transport))
	return c.Close()
}

// agreesWithOne returns an error if the rank's part of outputs or gradients is not that of one process,
// within twice the limits, since both err.
func agreesWithOne(c *comm.Comm, m attention.Mechanism, causal bool, l check.Limits, cond float64) error {
	whole, do := problem(1001, causal)
	alone, g := tensor.NewHeads(1, 2, 1001, 8), attention.Grads{DQ: like(whole.Q), DK: like(whole.K), DV: like(whole.V)}
	var saved attention.Saved
	if err := m.Forward(alone, whole, &saved); err != nil {
		return err
	}
	if err := m.Backward(&g, do, alone, whole, &saved); err != nil {
		return err
	}
	p, i0, i1 := part(c, whole)
	out, d := like(alone.Tokens(i0, i1)), attention.Grads{DQ: like(p.Q), DK: like(p.K), DV: like(p.V)}
	var keep sequence.Saved
	if err := sequence.Forward(c, m, out, p, &keep); err != nil {
		return err
	}
	if err := sequence.Backward(c, m, &d, do.Tokens(i0, i1), out, p, &keep); err != nil {
		return err
	}
	for _, x := range []struct {
		name      string
		got, want tensor.Heads
	}{{"o", out, alone}, {"dq", d.DQ, g.DQ}, {"dk", d.DK, g.DK}, {"dv", d.DV, g.DV}} {
		limit := 2 * l.Gradient(cond, max(check.MaxAbs(x.want.Data), check.MaxAbs(do.Data)*check.MaxAbs(whole.V.Data)))
		for h := range x.got.H {
			for i := range i1 - i0 {
				for j, y := range x.got.Head(0, h).Row(i) {
					if w := x.want.Head(0, h).Row(i0 + i)[j]; !(math.Abs(float64(y-w)) <= limit) {
						return fmt.Errorf("rank %d, causal %t: %s of token %d is %v, of one process %v", c.Rank(), causal, x.name, i0+i, y, w)
					}
				}
			}
		}
	}
	return nil
}

func TestUnderMPI(t *testing.T) {
	path, err := exec.LookPath("mpirun")
	if err != nil {
		t.Skip("mpirun is not installed")
	}
	about, err := exec.CommandContext(t.Context(), path, "--version").Output()
	if err != nil || !strings.Contains(string(about), "Open MPI") {
		t.Skip("mpirun is not that of Open MPI, which may have more ranks than cores")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range []int{1, 2, 4} {
		ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
		defer stop()
		cmd := exec.CommandContext(ctx, path, "--oversubscribe", "--mca", "mpi_yield_when_idle", "1", "-n", fmt.Sprint(n), self)
		cmd.Env = append(os.Environ(), rankVariable+"=1", "OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1")
		out, err := cmd.CombinedOutput()
		switch {
		case strings.Contains(string(out), "no library of"):
			t.Skip("the library of MPI is missing")
		case strings.Contains(string(out), "built without MPI"):
			t.Skip("without -tags mpi")
		}
		if err != nil {
			t.Fatalf("%d ranks: %v\n%s", n, err, out)
		}
		for r := range n {
			if want := fmt.Sprintf("rank %d of %d agrees", r, n); !strings.Contains(string(out), want) {
				t.Errorf("%q is missing:\n%s", want, out)
			}
		}
	}
}
