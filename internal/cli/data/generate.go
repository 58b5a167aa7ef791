package data

import (
	"compress/gzip"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/flags"
	"github.com/farfield-ml/farfield/internal/cli/progress"
	"github.com/farfield-ml/farfield/internal/fetch"
	"github.com/farfield-ml/farfield/internal/task"
)

type dataGenerateCmd struct {
	flags.DataFolder
	Seed    uint64 `placeholder:"N" default:"1" help:"Seed of the samples (${default})."`
	Train   *int   `placeholder:"N" help:"Training samples (the published number)."`
	Valid   *int   `placeholder:"N" help:"Validation samples of listops (the published number)."`
	Test    *int   `placeholder:"N" help:"Test samples of listops (the published number)."`
	Contour []int  `placeholder:"6|9|14" help:"Path lengths of pathfinder32, a file each (all three)."`
	Name    string `complete:"listops,pathfinder32" arg:"" help:"Data set: listops or pathfinder32."`
}

// Help returns the long help text with examples.
func (c *dataGenerateCmd) Help() string {
	return "The same seed gives the same bytes. --train of pathfinder32 is a multiple of 8: validation and test sets have an eighth of it each." + flags.JoinExamples(
		"farfield data generate listops --train 1000 --valid 100 --test 100",
		"farfield data generate pathfinder32 --contour 6 --train 8000",
	)
}

// generators make the data sets that are generated: files in a folder, which is made once the flags
// are checked.
var generators = map[string]func(c *dataGenerateCmd, e *env.Env, dir string) error{
	"listops":      (*dataGenerateCmd).listOps,
	"pathfinder32": (*dataGenerateCmd).pathfinder,
}

func (c *dataGenerateCmd) Run(e *env.Env) error {
	s, err := fetch.Lookup(c.Name)
	if err != nil {
		return env.MarkInput(err)
	}
	generate, ok := generators[s.Name]
	if !ok {
		return env.InputErrorf("data set %s: it is not generated: farfield data fetch %s", s.Name, s.Name)
	}
	folder, err := c.Path()
	if err != nil {
		return err
	}
	return generate(c, e, filepath.Join(folder, s.Name))
}

// count returns how many samples of each split are asked for.
func (c *dataGenerateCmd) count(published [3]int) ([3]int, error) {
	for split, flag := range []*int{c.Train, c.Valid, c.Test} {
		if flag == nil {
			continue
		}
		if *flag < 1 || *flag > 1<<26 {
			return published, env.InputErrorf("--%v: it is %d, 1 to %d are possible", task.Split(split), *flag, 1<<26)
		}
		published[split] = *flag
	}
	return published, nil
}

// contours are the path lengths of the published files.
var contours = []int{6, 9, 14}

const pathfinderImages = 200000

// pathfinder writes the records of images that task pathfinder reads.
func (c *dataGenerateCmd) pathfinder(e *env.Env, dir string) error {
	err := flags.RefuseFlags("the images of pathfinder32 are divided 80, 10 and 10 of a hundred; --train says how many", flags.Presence{Name: "--valid", IsGiven: c.Valid != nil}, flags.Presence{Name: "--test", IsGiven: c.Test != nil})
	if err != nil {
		return err
	}
	count, err := c.count([3]int{pathfinderImages * 8 / 10})
	if err != nil {
		return err
	}
	if count[task.Train]%8 != 0 {
		return env.InputErrorf("--train: it is %d, a multiple of 8 is needed", count[task.Train])
	}
	count[task.Valid] = count[task.Train] / 8
	count[task.Test] = count[task.Valid]
	lengths := c.Contour
	if len(lengths) == 0 {
		lengths = contours
	}
	for _, contour := range lengths {
		if !slices.Contains(contours, contour) {
			return env.InputErrorf("--contour: it is %d; there are 6, 9 and 14", contour)
		}
	}
	held, err := env.OwnFolder(dir)
	if err != nil {
		return err
	}
	defer held.Release()
	all := count[task.Train] + count[task.Valid] + count[task.Test]
	for _, contour := range lengths {
		src, err := task.NewPathfinder(contour, c.Seed)
		if err != nil {
			return err
		}
		name := fmt.Sprintf("contour%d.bin.gz", contour)
		path := filepath.Join(dir, name)
		p := progress.NewTransfer(e)
		err = atomicfile.Write(path, func(w io.Writer) error {
			z := gzip.NewWriter(w)
			err := task.WritePathfinder(z, src, count, func(i int) error {
				p.ShowItems(name, i, all)
				return e.Context.Err()
			})
			if err != nil {
				return err
			}
			return z.Close()
		})
		p.Finish()
		if err != nil {
			return err
		}
		fmt.Fprintf(e.Stdout, "%s: %d images\n", path, all)
	}
	return nil
}

// listOps writes the three files of the Long Range Arena.
func (c *dataGenerateCmd) listOps(e *env.Env, dir string) error {
	if len(c.Contour) > 0 {
		return env.InputErrorf("--contour: is of pathfinder32")
	}
	count, err := c.count([3]int{96000, 2000, 2000})
	if err != nil {
		return err
	}
	src, err := task.NewListOps(task.ListOps{LowerBound: 500, UpperBound: 2000, Seed: c.Seed})
	if err != nil {
		return err
	}
	held, err := env.OwnFolder(dir)
	if err != nil {
		return err
	}
	defer held.Release()
	for split, name := range []string{"basic_train.tsv", "basic_val.tsv", "basic_test.tsv"} {
		path, n := filepath.Join(dir, name), count[split]
		p := progress.NewTransfer(e)
		err := atomicfile.Write(path, func(w io.Writer) error {
			return task.WriteListOps(w, src, task.Split(split), n, func(i int) error {
				p.ShowItems(name, i, n)
				return e.Context.Err()
			})
		})
		p.Finish()
		if err != nil {
			return err
		}
		fmt.Fprintf(e.Stdout, "%s: %d expressions\n", path, n)
	}
	return nil
}
