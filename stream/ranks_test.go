package stream

import (
	"context"
	"fmt"
	"hash/crc32"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/internal/check"
)

// A stream that is divided among ranks writes the file of one that is not, to twice
// the bound of what a state of all tokens errs by, and what goes between ranks does
// not depend on the tokens.
func TestRanksWriteOneFile(t *testing.T) {
	for _, p := range problems {
		if p.set["window"] != "" {
			continue
		}
		c := p.call()
		in, dir := file(t, c), t.TempDir()
		whole := filepath.Join(dir, "whole.npy")
		r, err := Run(context.Background(), p.mechanism(t), source(t, in), output(t, whole, 4), Options{Causal: p.causal})
		if err != nil {
			t.Fatal(err)
		}
		want, limit := read(t, whole), 2*r.Bound*check.Max(c.V.Data)
		if r.Bound == 0 {
			// Of retention none is known: a key weighs at most |q|·|k|, and all together
			// 1/(1-γ) ≤ 64 times as much.
			most := 64 * float64(p.shape.D) * check.Max(c.Q.Data) * check.Max(c.K.Data) * check.Max(c.V.Data)
			limit = 2 * check.Linear[float32](p.shape.D, r.Chunk).Sum(c.K.N, most)
		}
		for _, size := range []int{2, 3, 7} {
			path := filepath.Join(dir, fmt.Sprintf("%d.npy", size))
			reports, err := runRanks(t, &p, in, path, size, Options{Causal: p.causal, Window: 16})
			if err != nil {
				t.Fatalf("%s, %d ranks: %v", p.String(), size, err)
			}
			got := read(t, path)
			for i := range want {
				if !(math.Abs(float64(got[i])-float64(want[i])) <= limit) {
					t.Fatalf("%s, %d ranks: element %d is %v, alone %v: more than %v", p.String(), size, i, got[i], want[i], limit)
				}
			}
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			rows := b[len(b)-4*len(want):]
			if sum := crc32.Checksum(rows, castagnoli); reports[0].Digest != sum {
				t.Errorf("%s, %d ranks: the digest is %08x, of the file %08x", p.String(), size, reports[0].Digest, sum)
			}
			if sums := r.StateBytes; reports[1].Sent == 0 || reports[1].Sent > 2*sums {
				t.Errorf("%s, %d ranks: %d bytes were sent, the state has %d", p.String(), size, reports[1].Sent, sums)
			}
		}
	}
}

// runRanks runs a problem with so many ranks.
func runRanks(t *testing.T, p *problem[float32], in, path string, size int, o Options) ([]*Report, error) {
	var (
		sources []*Arrays[float32]
		outs    []*Output[float32]
		mechs   []attention.Mechanism[float32]
	)
	for range size {
		sources, outs, mechs = append(sources, source(t, in)), append(outs, output(t, path, 4)), append(mechs, p.mechanism(t))
	}
	reports := make([]*Report, size)
	return reports, comm.Run(size, func(c *comm.Comm) (err error) {
		r, o := c.Rank(), o
		o.Ranks = c
		reports[r], err = Run(context.Background(), mechs[r], sources[r], outs[r], o)
		return err
	})
}

// What one rank cannot do ends the run of all, and leaves nothing behind.
func TestRanksFailTogether(t *testing.T) {
	p := problems[0]
	c := p.call()
	c.V.At(1, 0).Row(300)[2] = float32(math.NaN()) // a token of the last rank
	in, dir := file(t, c), t.TempDir()
	_, err := runRanks(t, &p, in, filepath.Join(dir, "o.npy"), 3, Options{Causal: true})
	if err == nil || !strings.Contains(err.Error(), "rank 2: v: element [1,0,300,2] is NaN") {
		t.Errorf("error %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
	_, err = runRanks(t, &p, in, filepath.Join(dir, "o.npy"), 3, Options{Causal: true, Checkpoint: filepath.Join(dir, "c")})
	if err == nil || !strings.Contains(err.Error(), "not defined with ranks") {
		t.Errorf("error %v", err)
	}
}

// Ranks that were told different things say so.
func TestRanksAgree(t *testing.T) {
	p := problems[0]
	in := file(t, p.call())
	one, two := source(t, in), source(t, in)
	a, b := p.mechanism(t), p.mechanism(t)
	err := comm.Run(2, func(c *comm.Comm) error {
		m, src, causal := a, one, true
		if c.Rank() == 1 {
			m, src, causal = b, two, false
		}
		_, err := Run(context.Background(), m, src, NewDigest[float32](), Options{Causal: causal, Ranks: c})
		return err
	})
	if err == nil || !strings.Contains(err.Error(), `rank 1: causal: is "false", rank 0 has causal "true"`) {
		t.Errorf("error %v", err)
	}
}
