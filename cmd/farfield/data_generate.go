package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/farfield-ml/farfield/fetch"
	"github.com/farfield-ml/farfield/internal/atomicfile"
	"github.com/farfield-ml/farfield/task"
)

type dataGenerateCmd struct {
	dataFolder
	Seed  uint64 `placeholder:"N" default:"1" help:"Of everything that is drawn (${default})."`
	Train *int   `placeholder:"N" help:"Samples to learn from; by default as many as are published."`
	Valid *int   `placeholder:"N" help:"Samples to choose by, likewise."`
	Test  *int   `placeholder:"N" help:"Samples to be judged by, likewise."`
	Name  string `arg:"" help:"Data set: listops."`
}

// generators make the data sets that are generated: files in a folder.
var generators = map[string]func(c *dataGenerateCmd, e *env, dir string) error{
	"listops": (*dataGenerateCmd).listOps,
}

func (c *dataGenerateCmd) Run(e *env) error {
	s, err := fetch.Lookup(c.Name)
	if err != nil {
		return input(err)
	}
	generate, ok := generators[s.Name]
	if !ok {
		return inputf("data set %s: it is not generated: farfield data fetch %s", s.Name, s.Name)
	}
	folder, err := c.path()
	if err != nil {
		return err
	}
	dir := filepath.Join(folder, s.Name)
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return err
	}
	return generate(c, e, dir)
}

// count returns how many samples of each split are asked for.
func (c *dataGenerateCmd) count(published [3]int) ([3]int, error) {
	for split, flag := range []*int{c.Train, c.Valid, c.Test} {
		if flag == nil {
			continue
		}
		if *flag < 1 || *flag > 1<<26 {
			return published, inputf("--%v: it is %d, 1 to %d are possible", task.Split(split), *flag, 1<<26)
		}
		published[split] = *flag
	}
	return published, nil
}

// listOps writes the three files of the Long Range Arena.
func (c *dataGenerateCmd) listOps(e *env, dir string) error {
	count, err := c.count([3]int{96000, 2000, 2000})
	if err != nil {
		return err
	}
	src, err := task.NewListOps(task.ListOps{Above: 500, Below: 2000, Seed: c.Seed})
	if err != nil {
		return err
	}
	for split, name := range []string{"basic_train.tsv", "basic_val.tsv", "basic_test.tsv"} {
		path, n := filepath.Join(dir, name), count[split]
		p := newTransfer(e)
		err := atomicfile.Write(path, func(w io.Writer) error {
			return task.WriteListOps(w, src, task.Split(split), n, func(i int) error {
				p.items(name, i, n)
				return e.ctx.Err()
			})
		})
		p.finish()
		if err != nil {
			return err
		}
		fmt.Fprintf(e.stdout, "%s: %d expressions\n", path, n)
	}
	return nil
}
