package train

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/internal/suite"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/model"
)

// ranksTrain has n ranks train, from the latest checkpoint of the run in dir if there is
// one, until rank 0 is stopped after an update; 0: to the end. It returns the score that
// all ranks have.
func ranksTrain(t *testing.T, n int, c Config, src func(rank int) task.Source, dir string, stop int) (score Score, err error) {
	t.Helper()
	return ranksDivide(t, "", n, c, src, dir, stop)
}

// ranksDivide is ranksTrain, with what ranks divide.
func ranksDivide(t *testing.T, what Division, n int, c Config, src func(rank int) task.Source, dir string, stop int) (score Score, err error) {
	t.Helper()
	scores := make([]Score, n)
	err = comm.RunLocal(n, func(ranks *comm.Comm) error {
		job := Job{Ranks: ranks, Divide: what}
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		of := src(ranks.Rank())
		begun, err := comm.CallOnRankZero(ranks, func() (bool, error) {
			_, err := RunConfig(dir)
			return err == nil, nil
		})
		if err != nil {
			return err
		}
		trainer, err := (*Trainer)(nil), error(nil)
		if begun {
			trainer, err = job.Resume(of, dir)
		} else {
			trainer, err = job.New(c, of, dir)
		}
		if err != nil {
			return err
		}
		defer trainer.Close()
		o := Observer{Step: func(s Step) {
			if s.Step == stop && ranks.Rank() == 0 {
				cancel()
			}
		}}
		scores[ranks.Rank()], err = trainer.Train(ctx, o)
		if stop > 0 && errors.Is(err, context.Canceled) {
			return nil
		}
		return err
	})
	for r, s := range scores {
		if s != scores[0] {
			t.Errorf("rank %d has the score %+v, rank 0 %+v", r, s, scores[0])
		}
	}
	return scores[0], err
}

// alike gives each rank a source of its own.
func alike(t *testing.T, name string) func(rank int) task.Source {
	return func(int) task.Source {
		if name == "text" {
			return littleText(t)
		}
		return kinds()[name]
	}
}

// passes is a run of four passes an update: with dropout, sequences that grow, looks at
// the validation part, and of a class with the best of them kept.
func passes(t *testing.T, name string) Config {
	c := little("fastmax")
	if name != "text" {
		c = littleTask(kinds()[name], "fastmax")
	} else {
		c.Model.AttentionDropout, c.FirstBatch = 0.2, 4
	}
	c.Batch, c.Accumulate, c.Model.Dropout = 1, 4, 0.1
	if name == "pairs" {
		c.Accumulate = 5
	}
	return c
}

// Any number of ranks trains to the bits of one process, also when a run goes on with
// another number of them.
func TestRanksTrainToTheSameBits(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"text", "class", "pairs", "trace"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of the time a disk is awaited
			c := passes(t, name)
			want := filepath.Join(t.TempDir(), "alone")
			alone, err := New(c, alike(t, name)(0), want)
			if err != nil {
				t.Fatal(err)
			}
			score, err := alone.Train(context.Background(), Observer{})
			if err != nil {
				t.Fatal(err)
			}
			alone.Close()
			check := func(what string, dir string, got Score, err error) {
				t.Helper()
				if err != nil || got != score {
					t.Errorf("%s, %s: the score is %+v, %v, want %+v", name, what, got, err, score)
					return
				}
				same(t, dir, want)
				if c.Patience > 0 || name == "class" {
					a, b := weightsOf(t, filepath.Join(dir, checkpointsFolder, bestName)), weightsOf(t, filepath.Join(want, checkpointsFolder, bestName))
					if !bytes.Equal(a, b) {
						t.Errorf("%s, %s: the best weights differ", name, what)
					}
				}
			}
			for n := 1; n <= 4; n++ {
				if !suite.IsLong() && (name != "text" || n < 3) { // see below
					continue
				}
				dir := filepath.Join(t.TempDir(), "run")
				got, err := ranksTrain(t, n, c, alike(t, name), dir, 0)
				check(fmt.Sprintf("%d ranks", n), dir, got, err)
			}
			dir := filepath.Join(t.TempDir(), "run")
			for _, part := range []struct{ ranks, stop int }{{2, 3}, {3, 12}, {1, 0}} {
				got, err := ranksTrain(t, part.ranks, c, alike(t, name), dir, part.stop)
				if part.stop == 0 {
					check("2, 3 and 1 ranks", dir, got, err)
				} else if err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// A run of one pass an update is cut into passes for the ranks, as its configuration
// says. One process repeats it to the same bits. Its first update equals the update of
// the whole batch within the 2⁻²⁴ of a few hundred terms.
func TestRanksCutAnUpdate(t *testing.T) {
	t.Parallel()
	c := little("fastmax")
	c.Batch, c.FirstBatch = 4, 16
	whole, _ := run(t, c)
	dir := filepath.Join(t.TempDir(), "run")
	if _, err := ranksTrain(t, 3, c, alike(t, "text"), dir, 0); err != nil {
		t.Fatal(err)
	}
	cut, err := RunConfig(dir)
	if err != nil {
		t.Fatal(err)
	}
	if cut.Batch != 1 || cut.FirstBatch != 4 || cut.Accumulate != 4 {
		t.Errorf("the run has %d passes of %d, at first %d", cut.Accumulate, cut.Batch, cut.FirstBatch)
	}
	again, _ := run(t, cut)
	same(t, dir, again)
	a, b := rows(t, whole)[0], rows(t, dir)[0]
	for _, x := range []string{"loss", "grad_norm"} {
		if !near(a[x].(float64), b[x].(float64), 256*0x1p-24) {
			t.Errorf("%s of the first update is %v, of the whole %v", x, b[x], a[x])
		}
	}
}

func TestRanksRefuseWhatDiffers(t *testing.T) {
	t.Parallel()
	c := passes(t, "text")
	other := func(rank int) task.Source {
		if rank == 1 {
			return kinds()["class"]
		}
		return kinds()["pairs"]
	}
	for _, x := range []struct {
		name  string
		ranks int
		c     func(rank int) Config
		src   func(rank int) task.Source
		want  string
	}{
		{"seed", 2, func(rank int) Config { c := c; c.Seed += uint64(rank); return c }, alike(t, "text"), "rank 1: configuration: is"},
		{"data", 2, func(int) Config { return c }, func(rank int) task.Source {
			text := littleText(t)
			if rank == 1 {
				text = tokensOf(t, text.Vocab, slices.Collect(text.Tokens(task.Train).All())[1:])
			}
			return text
		}, "rank 1: "},
		{"task", 2, func(int) Config { return littleTask(kinds()["pairs"], "fastmax") }, other, "rank 1: "},
		{"ranks", 3, func(int) Config { c := c; c.Batch, c.FirstBatch, c.Accumulate = 2, 0, 1; return c }, alike(t, "text"), "cannot be cut into one or more for each of 3 ranks"},
	} {
		dir := filepath.Join(t.TempDir(), "run")
		var refused atomic.Int32
		err := comm.RunLocal(x.ranks, func(ranks *comm.Comm) error {
			_, err := Job{Ranks: ranks}.New(x.c(ranks.Rank()), x.src(ranks.Rank()), dir)
			if err != nil && strings.Contains(err.Error(), x.want) {
				refused.Add(1)
			} else {
				t.Errorf("%s: rank %d: error %v, want %q", x.name, ranks.Rank(), err, x.want)
			}
			return nil
		})
		if err != nil || int(refused.Load()) != x.ranks {
			t.Errorf("%s: %d ranks refused, %v", x.name, refused.Load(), err)
		}
		if _, err := RunConfig(dir); err == nil {
			t.Errorf("%s: the run has begun", x.name)
		}
	}
	dir := filepath.Join(t.TempDir(), "run")
	if _, err := ranksTrain(t, 2, c, alike(t, "text"), dir, 5); err != nil {
		t.Fatal(err)
	}
	if _, err := ranksTrain(t, 5, c, alike(t, "text"), dir, 0); err == nil || !strings.Contains(err.Error(), "4 passes, too few for 5 ranks; continue with 4 ranks or fewer") {
		t.Errorf("resumed with more ranks than passes: %v", err)
	}
}

// failing is a source that is lost after some samples.
type failing struct {
	task.Source
	left int
}

func (f *failing) Sample(s *task.Sample, split task.Split, i int) error {
	if f.left--; f.left < 0 {
		return errors.New("the disk is gone")
	}
	return f.Source.Sample(s, split, i)
}

// What ends one rank ends all, with its reason, and the run goes on from its checkpoint.
func TestRankThatFailsEndsAll(t *testing.T) {
	t.Parallel()
	c := passes(t, "trace")
	c.Steps, c.SaveEvery = 14, 2
	want := filepath.Join(t.TempDir(), "alone")
	if _, err := ranksTrain(t, 1, c, alike(t, "trace"), want, 0); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "run")
	var told atomic.Int32
	err := comm.RunLocal(3, func(ranks *comm.Comm) error {
		src := alike(t, "trace")(0)
		digest := &failing{src, 1 << 30}
		trainer, err := Job{Ranks: ranks}.New(c, digest, dir)
		if err != nil {
			return err
		}
		defer trainer.Close()
		if ranks.Rank() == 2 {
			digest.left = 5
		}
		_, err = trainer.Train(context.Background(), Observer{})
		if err == nil || err.Error() != "rank 2: the disk is gone" {
			t.Errorf("rank %d: error %v", ranks.Rank(), err)
		} else {
			told.Add(1)
		}
		return nil
	})
	if err != nil || told.Load() != 3 {
		t.Fatalf("%d ranks were told, %v", told.Load(), err)
	}
	if _, err := latestCheckpoint(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := ranksTrain(t, 1, c, alike(t, "trace"), dir, 0); err != nil {
		t.Fatal(err)
	}
	same(t, dir, want)
}

// Ranks that divide windows train as one process does: the first update within the 2⁻²⁴
// of a few hundred terms, later ones within 1e-5 (1e-7 measured). They continue
// with another number of ranks, and with the batch divided.
func TestRanksDivideSequences(t *testing.T) {
	t.Parallel()
	c := little("fastmax")
	c.Model.Set = map[string]string{"window": "0"} // whose state is a list of sums
	c.Model.Conv, c.FirstContext, c.Accumulate, c.Model.Decay = 3, 9, 2, model.LearnedDecay
	whole, _ := run(t, c)
	want := rows(t, whole)
	for _, x := range []struct {
		ranks int
		then  Division
	}{{2, DivideSequence}, {3, DivideSequence}, {2, DivideBatch}} {
		if !suite.IsLong() && x.ranks == 2 && x.then == DivideSequence {
			continue
		}
		dir := filepath.Join(t.TempDir(), "run")
		if _, err := ranksDivide(t, DivideSequence, x.ranks, c, alike(t, "text"), dir, 11); err != nil {
			t.Fatal(err)
		}
		if _, err := ranksDivide(t, x.then, 2, c, alike(t, "text"), dir, 0); err != nil {
			t.Fatal(err)
		}
		got := rows(t, dir)
		if len(got) != len(want) {
			t.Fatalf("%d ranks: %d lines of metrics, want %d", x.ranks, len(got), len(want))
		}
		for i := range want {
			bound := 256 * 0x1p-24
			if i > 0 {
				bound = 1e-5
			}
			if a, b := got[i]["loss"].(float64), want[i]["loss"].(float64); !near(a, b, bound) {
				t.Errorf("%d ranks, line %d: loss %v, one process %v", x.ranks, i+1, a, b)
			}
		}
	}
	c.Model.Mechanism, c.Model.Set, c.Model.Decay = "softmax", nil, ""
	if _, err := ranksDivide(t, DivideSequence, 2, c, alike(t, "text"), filepath.Join(t.TempDir(), "run"), 0); err == nil || !strings.Contains(err.Error(), "ranks: ") {
		t.Errorf("softmax: %v", err)
	}
	c = little("fastmax")
	if _, err := ranksDivide(t, DivideSequence, 2, c, alike(t, "text"), filepath.Join(t.TempDir(), "run"), 0); err == nil || !strings.Contains(err.Error(), "window=0, which is 64") {
		t.Errorf("window: %v", err)
	}
	c.Segment = 5
	if _, err := ranksDivide(t, DivideSequence, 2, c, alike(t, "text"), filepath.Join(t.TempDir(), "run"), 0); err == nil || !strings.Contains(err.Error(), "Segment: 5") {
		t.Errorf("segments: %v", err)
	}
}

// Ranks above 0 have the tokens of the model, and resume without the folder that it is in.
func TestRanksTuneAModelWithATokenizer(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "tiny")
	if err := os.CopyFS(folder, os.DirFS(filepath.Join("..", "pretrained", "testdata", "tiny"))); err != nil {
		t.Fatal(err)
	}
	data := filepath.Join(t.TempDir(), "t.csv")
	if err := os.WriteFile(data, []byte("text,label\n"+strings.Repeat("the cat,a\nthe dog,b\n", 30)), 0o666); err != nil {
		t.Fatal(err)
	}
	c := little("softmax")
	c.SetTask("file")
	c.setTaskSettings("data", data)
	c, err := c.StartFrom(folder)
	if err != nil {
		t.Fatal(err)
	}
	sources := make([]task.Source, 2)
	err = comm.RunLocal(2, func(ranks *comm.Comm) (err error) {
		var own Config
		if ranks.Rank() == 0 {
			own = c
		}
		if own, err = (Job{Ranks: ranks}).ShareConfig(own); err != nil {
			return err
		}
		if own.complete != c.complete {
			t.Errorf("rank %d: complete is %q, want %q", ranks.Rank(), own.complete, c.complete)
		}
		sources[ranks.Rank()], err = own.OpenTask()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	src := func(rank int) task.Source { return sources[rank] }
	dir := filepath.Join(t.TempDir(), "run")
	if _, err := ranksTrain(t, 2, c, src, dir, 2); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(folder); err != nil {
		t.Fatal(err)
	}
	if _, err := ranksTrain(t, 2, c, src, dir, 0); err != nil {
		t.Fatal(err)
	}
}
