// Package golden compares folders of golden files with this build. A file is an
// .npz of inputs, parameters, outputs and gradients in float64. There are two formats.
// A folder with an index.json has arrays out, go and d_NAME, and tolerances in the
// index. Files of polynomial attention have arrays o_CASE, dq_CASE, ..., and limits
// derived from the condition of each row. The names of the arrays identify a case, so
// other seeds and shapes need no list.
package golden

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"sort"

	"github.com/farfield-ml/farfield/internal/array"
)

// Case is the outcome of one case of a file in one form and precision.
type Case struct {
	File      string   `json:"file"`
	Name      string   `json:"case"`
	Mechanism string   `json:"mechanism,omitempty"`
	Form      string   `json:"form,omitempty"`      // direct, linear, step or state
	Precision string   `json:"precision,omitempty"` // float32 or float64
	Arrays    []string `json:"arrays,omitempty"`    // compared
	Worst     string   `json:"worst,omitempty"`     // array with the largest error
	Err       float64  `json:"err"`                 // largest error in units of its tolerance; MaxFloat64 if not finite
	Skipped   string   `json:"skipped,omitempty"`   // why nothing was compared
	Problem   string   `json:"problem,omitempty"`   // why nothing could be compared
	Failed    bool     `json:"failed"`              // Err > 1 or Problem
}

// Run compares every golden file of dir, in the order of their names, and
// reports each case as it ends. A file that cannot be read is a failed case;
// only a folder without any golden file is an error.
func Run(dir string, report func(Case)) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	idx, err := readIndex(filepath.Join(dir, "index.json"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	var found int
	for _, e := range entries {
		if e.IsDir() || filepath.Ext(e.Name()) != ".npz" {
			continue
		}
		found++
		runFile(filepath.Join(dir, e.Name()), idx, report)
	}
	for _, name := range idx.missing(entries) {
		report(Case{File: name, Problem: "listed in index.json, not in the folder", Failed: true})
		found++
	}
	if found == 0 {
		return fmt.Errorf("%s: holds no golden files (.npz)", dir)
	}
	return nil
}

func runFile(path string, idx index, report func(Case)) {
	base := filepath.Base(path)
	f, err := openFile(path)
	if err != nil {
		report(Case{File: base, Problem: err.Error(), Failed: true})
		return
	}
	defer f.src.Close()
	cases := polyCases
	if _, listed := idx[f.stem()]; listed || f.hasArray("out") {
		cases = func(f *file) ([]*problem, []skip) { return zooCases(f, idx) }
	}
	problems, skips := cases(f)
	for _, s := range skips {
		report(Case{File: base, Name: s.name, Skipped: s.reason})
	}
	for _, p := range problems {
		for _, form := range p.forms {
			report(f.runFile(runForm(p, form)))
		}
	}
}

// skip is a case that is not compared.
type skip struct{ name, reason string }

// runFile completes a case: failures, and an error that JSON can carry.
func (f *file) runFile(c Case) Case {
	c.File = f.base
	if c.Problem != "" || math.IsInf(c.Err, 0) {
		c.Err = math.MaxFloat64
	}
	c.Failed = c.Err > 1
	return c
}

// file is an open golden file.
type file struct {
	base  string
	src   array.Source
	names map[string]bool
}

func openFile(path string) (*file, error) {
	src, err := array.OpenNPZ(path)
	if err != nil {
		return nil, err
	}
	f := &file{filepath.Base(path), src, map[string]bool{}}
	for _, n := range src.Names() {
		f.names[n] = true
	}
	return f, nil
}

func (f *file) stem() string { return f.base[:len(f.base)-len(filepath.Ext(f.base))] }

func (f *file) hasArray(names ...string) bool {
	for _, n := range names {
		if !f.names[n] {
			return false
		}
	}
	return true
}

// sortedNames returns the names of the arrays in alphabetical order.
func (f *file) sortedNames() []string {
	var list []string
	for n := range f.names {
		list = append(list, n)
	}
	sort.Strings(list)
	return list
}
