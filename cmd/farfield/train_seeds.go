package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/task"
	"github.com/farfield-ml/farfield/train"
)

// seedPrefix is what the name of a run of several seeds begins with.
const seedPrefix = "seed-"

// seedsFile is the record of all seeds in the folder of their runs, which is there before
// the first run is.
const seedsFile = "seeds.json"

// seedsBytes bounds what is read of the record.
const seedsBytes = 1 << 20

// mostSeeds bounds how many runs one command makes.
const mostSeeds = 1000

// seedRuns returns the folders of the runs below dir, by seed.
func seedRuns(dir string) []string {
	list, _ := filepath.Glob(filepath.Join(dir, seedPrefix+"*", "config.json"))
	for i := range list {
		list[i] = filepath.Dir(list[i])
	}
	slices.SortFunc(list, func(a, b string) int {
		if seedOf(a) < seedOf(b) {
			return -1
		}
		return 1
	})
	return list
}

// seedOf returns the seed of a run's folder.
func seedOf(dir string) uint64 {
	n, _ := strconv.ParseUint(strings.TrimPrefix(filepath.Base(dir), seedPrefix), 10, 64)
	return n
}

// seeds returns those to train with; nil if one run is asked for. Of runs to resume
// they are in their folders.
func (t *trainCmd) seeds() ([]uint64, error) {
	if t.Seeds == "" {
		if t.Resume && len(seedRuns(t.Out)) > 0 {
			return []uint64{}, nil
		}
		return nil, nil
	}
	if t.Seed != nil {
		return nil, inputf("--seed: given beside --seeds")
	}
	var list []uint64
	for _, word := range strings.Split(t.Seeds, ",") {
		n, err := strconv.ParseUint(strings.TrimSpace(word), 10, 64)
		if err != nil || slices.Contains(list, n) {
			return nil, inputf("--seeds: %q is neither a number nor a list of different ones", t.Seeds)
		}
		list = append(list, n)
	}
	if len(list) == 1 {
		n := list[0]
		if n < 1 || n > mostSeeds {
			return nil, inputf("--seeds: %d runs, 1 to %d are possible", n, mostSeeds)
		}
		list = list[:0]
		for i := range n {
			list = append(list, i+1)
		}
	}
	return list, nil
}

// recordSeeds adds seeds to the record in dir and returns those that have no run there,
// in ascending order. Runs that are there count as recorded.
func recordSeeds(dir string, seeds []uint64) (missing []uint64, err error) {
	path := filepath.Join(dir, seedsFile)
	var known []uint64
	if err := infile.ReadJSON(path, seedsBytes, &known); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, input(err)
	}
	all := slices.Concat(known, seeds)
	for _, run := range seedRuns(dir) {
		all = append(all, seedOf(run))
	}
	slices.Sort(all)
	all = slices.Compact(all)
	if !slices.Equal(all, known) {
		err := atomicfile.Write(path, func(w io.Writer) error { return json.NewEncoder(w).Encode(all) })
		if err != nil {
			return nil, err
		}
	}
	for _, seed := range all {
		if _, err := os.Stat(filepath.Join(dir, fmt.Sprintf("%s%d", seedPrefix, seed), "config.json")); err != nil {
			missing = append(missing, seed)
		}
	}
	return missing, nil
}

// many trains with several seeds, one after another, which do not differ in anything
// else. The record of the seeds is there before the first run is, and all runs before the
// first begins, so that --resume makes those that are missing. Rank 0 owns the folder that
// has them.
func (t *trainCmd) many(e *env, c train.Config, src task.Source, seeds []uint64) (err error) {
	if e.first() {
		_, absent := os.Stat(t.Out)
		held, failed := own(t.Out)
		defer func() {
			if err != nil && failed == nil && len(seedRuns(t.Out)) == 0 {
				os.Remove(filepath.Join(t.Out, seedsFile))
			}
			held.Release()
			if err != nil && absent != nil {
				os.Remove(t.Out) // if no run was made
			}
		}()
		err = failed
	}
	if err = comm.ShareError(e.ranks, err); err != nil {
		return err
	}
	missing, err := comm.CallOnRankZero(e.ranks, func() ([]uint64, error) { return recordSeeds(t.Out, seeds) })
	if err != nil {
		return err
	}
	// Seeds that are asked for and there already are refused by New.
	job := train.Job{Ranks: e.ranks, Divide: t.Divide}
	for _, seed := range slices.Compact(slices.Sorted(slices.Values(slices.Concat(seeds, missing)))) {
		c.Seed = seed
		trainer, err := job.New(c, src, filepath.Join(t.Out, fmt.Sprintf("%s%d", seedPrefix, seed)))
		if err != nil {
			return input(err)
		}
		if err := trainer.Close(); err != nil {
			return err
		}
	}
	runs, err := comm.CallOnRankZero(e.ranks, func() ([]string, error) { return seedRuns(t.Out), nil })
	if err != nil {
		return err
	}
	if err := t.lengthen(e, runs...); err != nil {
		return input(err)
	}
	var all seedsReport
	for _, dir := range runs {
		r, err := t.resumeOne(e, src, dir)
		if err != nil {
			return err
		}
		all.Runs = append(all.Runs, r)
	}
	all.summarise()
	if e.first() {
		x, err := writeComparison(filepath.Join(t.Out, reportFile), t.Out)
		if err != nil {
			return err
		}
		all.Verdict = x.Verdict
	}
	if t.JSON {
		return printJSON(e.stdout, &all)
	}
	return all.print(e)
}

func (t *trainCmd) resumeOne(e *env, src task.Source, dir string) (*trainReport, error) {
	trainer, err := train.Job{Ranks: e.ranks, Divide: t.Divide}.Resume(src, dir)
	if err != nil {
		return nil, input(err)
	}
	defer trainer.Close()
	return t.one(e, trainer, dir)
}

// seedsReport is what trainings with several seeds came to.
type seedsReport struct {
	Runs      []*trainReport `json:"runs"`
	Mean      float64        `json:"mean"` // of the scores
	Deviation float64        `json:"deviation"`
	Verdict   string         `json:"verdict"`
}

// summarise sets mean and deviation of the scores.
func (r *seedsReport) summarise() {
	var scores []float64
	for _, run := range r.Runs {
		scores = append(scores, run.Value)
	}
	r.Mean, r.Deviation = meanDeviation(scores)
}

func (r *seedsReport) print(e *env) error {
	w := tabwriter.NewWriter(e.stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	first := r.Runs[0]
	fmt.Fprintf(e.stdout, "verdict     %s\n", r.Verdict)
	fmt.Fprintf(w, "run\t%s\tloss\tupdate\t\n", first.Metric)
	for _, run := range r.Runs {
		at := run.Steps
		if run.Best > 0 {
			at = run.Best
		}
		fmt.Fprintf(w, "%s\t%.4f\t%.4f\t%d\t\n", filepath.Base(run.Run), run.Value, run.Loss, at)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(e.stdout, "%-12s%s %.4f ± %.4f, mean and deviation of %d seeds\n", first.Split, first.Metric, r.Mean, r.Deviation, len(r.Runs))
	printBaselines(e, first.Metric, first.Baselines)
	if first.Table != nil {
		fmt.Fprintf(e.stdout, "table       %.4f bits per byte from counts of the two tokens before\n", first.Table[2])
	}
	return nil
}
