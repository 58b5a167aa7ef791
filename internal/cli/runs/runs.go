// Package runs reads the folders of runs, judges their scores and draws their pages.
package runs

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/train"
)

// ReadRunConfig reads the configuration of the run in dir. It returns an error if dir
// is no run.
func ReadRunConfig(dir string) (train.Config, error) {
	c, err := train.RunConfig(dir)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%s: holds no run: it has no config.json; farfield train --out %s begins one", dir, display.QuoteWord(dir))
	}
	return c, err
}

// SeedPrefix begins the name of each run of several seeds.
const SeedPrefix = "seed-"

// SeedRuns returns the folders of the runs below dir, sorted by seed. It leaves out other folders,
// such as copies.
func SeedRuns(dir string) []string {
	list, _ := fs.Glob(os.DirFS(dir), SeedPrefix+"*/config.json") // dir itself may have brackets
	for i := range list {
		list[i] = filepath.Join(dir, filepath.Dir(list[i]))
	}
	list = slices.DeleteFunc(list, func(run string) bool {
		return filepath.Base(run) != fmt.Sprint(SeedPrefix, SeedOf(run))
	})
	slices.SortFunc(list, func(a, b string) int { return cmp.Compare(SeedOf(a), SeedOf(b)) })
	return list
}

// SeedOf returns the seed of a folder of SeedRuns.
func SeedOf(dir string) uint64 {
	n, _ := strconv.ParseUint(strings.TrimPrefix(filepath.Base(dir), SeedPrefix), 10, 64)
	return n
}
