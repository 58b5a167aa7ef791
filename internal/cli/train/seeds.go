package train

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/farfield-ml/farfield/comm"
	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/cli/compare"
	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/runs"
	"github.com/farfield-ml/farfield/internal/infile"
	"github.com/farfield-ml/farfield/internal/task"
	"github.com/farfield-ml/farfield/train"
)

// seedsFile is the record of all seeds in the folder of their runs, which is there before
// the first run is.
const seedsFile = "seeds.json"

// seedsBytes bounds the size of the record.
const seedsBytes = 1 << 20

// mostSeeds bounds how many runs one command makes.
const mostSeeds = 1000

// seeds returns those to train with; nil if one run is asked for. Of runs to resume
// they are in their folders.
func (t *Command) seeds() ([]uint64, error) {
	if t.Seeds == "" {
		if t.Resume && len(runs.SeedRuns(t.Out)) > 0 {
			return []uint64{}, nil
		}
		return nil, nil
	}
	if t.Seed != nil {
		return nil, env.InputErrorf("--seed: given beside --seeds")
	}
	var list []uint64
	for _, word := range strings.Split(t.Seeds, ",") {
		n, err := strconv.ParseUint(strings.TrimSpace(word), 10, 64)
		if err != nil || slices.Contains(list, n) {
			return nil, env.InputErrorf("--seeds: %q is neither a number nor a list of different ones", t.Seeds)
		}
		list = append(list, n)
	}
	if len(list) == 1 {
		n := list[0]
		if n < 1 || n > mostSeeds {
			return nil, env.InputErrorf("--seeds: %d runs, 1 to %d are possible", n, mostSeeds)
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
		return nil, env.MarkInput(err)
	}
	all := slices.Concat(known, seeds)
	for _, run := range runs.SeedRuns(dir) {
		all = append(all, runs.SeedOf(run))
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
		if _, err := os.Stat(filepath.Join(dir, fmt.Sprintf("%s%d", runs.SeedPrefix, seed), "config.json")); err != nil {
			missing = append(missing, seed)
		}
	}
	return missing, nil
}

// checkSeedRuns returns an error if dir has a run of one of the seeds, or of another
// configuration than c.
func checkSeedRuns(dir string, seeds []uint64, c train.Config) error {
	for _, run := range runs.SeedRuns(dir) {
		if slices.Contains(seeds, runs.SeedOf(run)) {
			return env.InputErrorf("%s: %w", run, train.ErrRunExists)
		}
		there, err := runs.ReadRunConfig(run)
		if err != nil {
			return env.MarkInput(err)
		}
		c.Seed = there.Seed
		x, err := json.Marshal(there)
		if err != nil {
			return err
		}
		y, err := json.Marshal(c)
		if err != nil {
			return err
		}
		if field, has, needs := differingField(x, y); field != "" {
			return env.InputErrorf("%s: is a run of another configuration: its %s is %s, the new seeds have %s", run, field, has, needs)
		}
	}
	return nil
}

// checkSeedData returns an error if a run in dir began with other data than src.
func checkSeedData(dir string, src task.Source) error {
	list := runs.SeedRuns(dir)
	if len(list) == 0 {
		return nil
	}
	sum, err := task.Digest(src, nil)
	if err != nil {
		return env.MarkInput(err)
	}
	for _, run := range list {
		was, err := train.DataSum(run)
		if err != nil {
			return env.MarkInput(err)
		}
		is, err := task.DigestLike(was, src, sum)
		if err != nil {
			return env.MarkInput(err)
		}
		if was != "" && was != is {
			return env.InputErrorf("%s: began with other data: its SHA-256 was %.12s…, is %.12s…", run, was, is)
		}
	}
	return nil
}

// differingField returns the path of the first field by which two JSON values differ, and
// the field in both; "" if there is none.
func differingField(a, b json.RawMessage) (path, inA, inB string) {
	var x, y map[string]json.RawMessage
	if bytes.Equal(a, b) {
		return "", "", ""
	}
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return ".", cmp.Or(string(a), "absent"), cmp.Or(string(b), "absent")
	}
	all := maps.Clone(x)
	maps.Copy(all, y)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if path, inA, inB = differingField(x[name], y[name]); path != "" {
			return strings.TrimSuffix(name+"."+path, ".."), inA, inB
		}
	}
	return "", "", ""
}

// trainSeeds trains with several seeds, one after another; nothing else differs. It records the
// seeds before it makes the first run, and makes all runs before it begins the first, so that
// --resume makes those that are missing. Rank 0 owns the folder of these runs.
func (t *Command) trainSeeds(e *env.Env, c train.Config, src task.Source, seeds []uint64) (err error) {
	if e.IsFirst() {
		_, absent := os.Stat(t.Out)
		held, failed := env.OwnFolder(t.Out)
		defer func() {
			if err != nil && failed == nil && len(runs.SeedRuns(t.Out)) == 0 {
				os.Remove(filepath.Join(t.Out, seedsFile))
			}
			held.Release()
			if err != nil && absent != nil {
				os.Remove(t.Out) // if no run was made
			}
		}()
		err = failed
	}
	if err = comm.ShareError(e.Ranks, err); err != nil {
		return err
	}
	job := train.Job{Ranks: e.Ranks, Divide: train.Division(t.Divide)}
	if !t.Resume {
		trainer, err := job.New(c, src, "") // whose configuration is complete
		if err != nil {
			return env.MarkInput(err)
		}
		_, err = comm.CallOnRankZero(e.Ranks, func() (bool, error) { return true, checkSeedRuns(t.Out, seeds, trainer.Config()) })
		if err = errors.Join(err, trainer.Close()); err != nil {
			return err
		}
	}
	missing, err := comm.CallOnRankZero(e.Ranks, func() ([]uint64, error) {
		if err := checkSeedData(t.Out, src); err != nil {
			return nil, err
		}
		return recordSeeds(t.Out, seeds)
	})
	if err != nil {
		return err
	}
	for _, seed := range slices.Compact(slices.Sorted(slices.Values(slices.Concat(seeds, missing)))) {
		c.Seed = seed
		trainer, err := job.New(c, src, filepath.Join(t.Out, fmt.Sprintf("%s%d", runs.SeedPrefix, seed)))
		if err != nil {
			return env.MarkInput(err)
		}
		if err := trainer.Close(); err != nil {
			return err
		}
	}
	folders, err := comm.CallOnRankZero(e.Ranks, func() ([]string, error) { return runs.SeedRuns(t.Out), nil })
	if err != nil {
		return err
	}
	if err := t.lengthen(e, src, folders...); err != nil {
		return env.MarkInput(err)
	}
	var all SeedsReport
	for _, dir := range folders {
		r, err := t.resumeOne(e, src, dir)
		if err != nil {
			return err
		}
		all.Runs = append(all.Runs, r)
	}
	all.summarise()
	if e.IsFirst() {
		x, err := compare.WriteComparison(filepath.Join(t.Out, runs.ReportFile), t.Out, folders)
		if err != nil {
			return err
		}
		all.Verdict = x.Verdict
	}
	if t.JSON {
		return display.PrintJSON(e.Stdout, &all)
	}
	return all.print(e)
}

func (t *Command) resumeOne(e *env.Env, src task.Source, dir string) (*runs.Report, error) {
	trainer, err := train.Job{Ranks: e.Ranks, Divide: train.Division(t.Divide)}.Resume(src, dir)
	if err != nil {
		return nil, env.MarkInput(err)
	}
	defer trainer.Close()
	return t.one(e, trainer, dir)
}

// SeedsReport is the result of trainings that differ in their seeds.
type SeedsReport struct {
	Runs      []*runs.Report `json:"runs"`
	Mean      float64        `json:"mean"` // of the scores
	Deviation float64        `json:"deviation"`
	Verdict   string         `json:"verdict"`
}

// summarise sets mean and deviation of the scores.
func (r *SeedsReport) summarise() {
	var scores []float64
	for _, run := range r.Runs {
		scores = append(scores, run.Value)
	}
	r.Mean, r.Deviation = compare.MeanDeviation(scores)
}

func (r *SeedsReport) print(e *env.Env) error {
	w := tabwriter.NewWriter(e.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	first := r.Runs[0]
	fmt.Fprintf(e.Stdout, "verdict     %s\n", r.Verdict)
	fmt.Fprintf(w, "run\t%s\tloss\tupdate\t\n", first.Metric)
	for _, run := range r.Runs {
		at := run.Steps
		if run.Best > 0 {
			at = run.Best
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%d\t\n", filepath.Base(run.Run), display.FormatValue(run.Metric, run.Value), display.FormatValue(run.Metric, run.Loss), at)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(e.Stdout, "%-12s%s %s ± %s, mean and deviation of %d seeds\n", first.Split, first.Metric, display.FormatValue(first.Metric, r.Mean), display.FormatValue(first.Metric, r.Deviation), len(r.Runs))
	runs.PrintBaselines(e, first.Metric, first.Baselines, first.BaselinesError)
	if first.Table != nil {
		fmt.Fprintf(e.Stdout, "table       %.4f bits per byte from counts of the two tokens before\n", first.Table[2])
	}
	return nil
}
