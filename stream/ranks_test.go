//go:build !float64

package stream

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/farfield-ml/farfield/attention"
	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/internal/check"
)

// runRanks runs a problem with size ranks.
func runRanks(t *testing.T, p *problem, in, path string, size int, o Options) ([]*Report, error) {
	var (
		sources []*arraySource
		outs    []*Output
		mechs   []attention.Mechanism
	)
	for range size {
		sources, outs, mechs = append(sources, source(t, in)), append(outs, output(t, path, 4)), append(mechs, p.mechanism(t))
	}
	reports := make([]*Report, size)
	return reports, comm.RunLocal(size, func(c *comm.Comm) (err error) {
		r, o := c.Rank(), o
		o.Ranks = c
		reports[r], err = Run(context.Background(), mechs[r], sources[r], outs[r], o)
		return err
	})
}

// Ranks with different calls return an error.
func TestRanksWithOtherCallsAreRefused(t *testing.T) {
	t.Parallel()
	p := problems[0]
	in := file(t, p.call())
	one, two := source(t, in), source(t, in)
	a, b := p.mechanism(t), p.mechanism(t)
	err := comm.RunLocal(2, func(c *comm.Comm) error {
		m, src, causal := a, one, true
		if c.Rank() == 1 {
			m, src, causal = b, two, false
		}
		_, err := Run(context.Background(), m, src, NewDigestOutput(), Options{Causal: causal, Ranks: c})
		return err
	})
	if err == nil || !strings.Contains(err.Error(), `rank 1: causal: is "false", rank 0 has causal "true"`) {
		t.Errorf("error %v", err)
	}
}

// Ranks that are killed at any moment, each somewhere else, go on to the bits of ranks
// that were not. As many others are refused.
func TestKilledRanksContinueToTheSameBits(t *testing.T) {
	t.Parallel()
	const size = 3
	before, after := 0, 0 // runs that went on from before the exchange, and from behind it
	for _, p := range problems {
		if p.set["window"] != "" {
			continue
		}
		in, dir := file(t, p.call()), t.TempDir()
		path := func(dir string) string { return filepath.Join(dir, "o.npy") }
		o := Options{Causal: p.causal, Window: 16, CheckpointInterval: 1, Checkpoint: path(dir) + CheckpointSuffix}
		var mu sync.Mutex
		var killed []string
		calls := 0
		o.Progress = func(Progress) {
			mu.Lock()
			defer mu.Unlock()
			if calls++; calls%14 == 1 {
				killed = append(killed, t.TempDir())
				keep(t, dir, killed[len(killed)-1])
			}
		}
		if _, err := runRanks(t, &p, in, path(dir), size, o); err != nil {
			t.Fatalf("%s: %v", p.String(), err)
		}
		want, err := os.ReadFile(path(dir))
		if err != nil {
			t.Fatal(err)
		}
		if left, _ := os.ReadDir(dir); len(left) != 1 {
			t.Errorf("%s: %v is left", p.String(), left)
		}
		o.Progress = nil
		for i, dir := range killed {
			o.Checkpoint = path(dir) + CheckpointSuffix
			met, _ := filepath.Glob(o.Checkpoint + "*.met")
			if own, _ := filepath.Glob(o.Checkpoint + "*"); i == len(killed)/2 && slices.Contains(own, o.Checkpoint) {
				for _, n := range []int{1, 2, 4} {
					_, err := runRanks(t, &p, in, path(dir), n, o)
					if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("checkpoint: ranks is %d, this run has %d", size, n)) {
						t.Errorf("%s: %d ranks: %v", p.String(), n, err)
					}
				}
			}
			reports, err := runRanks(t, &p, in, path(dir), size, o)
			if err != nil {
				t.Fatalf("%s, killed at moment %d: %v", p.String(), i, err)
			}
			got, err := os.ReadFile(path(dir))
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%s, killed at moment %d: the output differs", p.String(), i)
			}
			switch resumed := reports[0].Resumed + reports[1].Resumed + reports[2].Resumed; {
			case len(met) == size:
				after++
			case resumed > 0:
				before++
			}
			if left, _ := os.ReadDir(dir); len(left) != 1 {
				t.Errorf("%s: %v is left", p.String(), left)
			}
		}
	}
	if before < 5 || after < 5 {
		t.Errorf("%d runs went on from before the exchange, %d from behind it", before, after)
	}
}

// keep copies what a run that is killed at this moment leaves: checkpoints, which are
// replaced as a whole, and then rows, which are written before them.
func keep(t *testing.T, from, to string) {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(from, "*"))
	if err != nil {
		t.Error(err)
	}
	slices.SortStableFunc(list, func(a, b string) int {
		return cmp.Compare(strings.Count(a, PartialSuffix), strings.Count(b, PartialSuffix))
	})
	for _, path := range list {
		if strings.HasSuffix(path, PartialSuffix) || strings.Contains(path, CheckpointSuffix) {
			b, err := os.ReadFile(path)
			if errors.Is(err, fs.ErrNotExist) {
				continue // a temporary name
			}
			if err == nil {
				err = os.WriteFile(filepath.Join(to, filepath.Base(path)), b, 0o666)
			}
			if err != nil {
				t.Error(err)
			}
		}
	}
}

// A divided stream writes the file of an undivided one, within twice the error bound of
// a state of all tokens. The bytes between ranks do not depend on the tokens.
func TestRanksWriteOneFile(t *testing.T) {
	t.Parallel()
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
		want, limit := read(t, whole), 2*r.Bound*check.MaxAbs(c.V.Data)
		if r.Bound == 0 {
			// Of retention none is known: a key weighs at most |q|·|k|, and all together
			// 1/(1-γ) ≤ 64 times as much.
			most := 64 * float64(p.shape.D) * check.MaxAbs(c.Q.Data) * check.MaxAbs(c.K.Data) * check.MaxAbs(c.V.Data)
			limit = 2 * check.LinearLimits[float32](p.shape.D, r.Chunk).Sum(c.K.N, most)
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

// What one rank cannot do ends the run of all, and leaves nothing behind.
func TestRanksFailTogether(t *testing.T) {
	t.Parallel()
	p := problems[0]
	c := p.call()
	c.V.Head(1, 0).Row(300)[2] = float32(math.NaN()) // a token of the last rank
	in, dir := file(t, c), t.TempDir()
	_, err := runRanks(t, &p, in, filepath.Join(dir, "o.npy"), 3, Options{Causal: true})
	if err == nil || !strings.Contains(err.Error(), "rank 2: v: element [1,0,300,2] is NaN") {
		t.Errorf("error %v", err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("%v is left", left)
	}
}
