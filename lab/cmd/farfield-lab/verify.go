package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/farfield-ml/farfield/internal/cli/display"
	"github.com/farfield-ml/farfield/internal/cli/env"
	"github.com/farfield-ml/farfield/internal/cli/flags"
	"github.com/farfield-ml/farfield/lab/golden"
)

// verifyCmd is the verb verify: golden files held against this build.
type verifyCmd struct {
	JSON bool `name:"json" help:"Print one JSON object instead of lines."`

	Folder string `arg:"" optional:"" help:"Folder of golden files (default the committed ones)."`
}

// Help returns the long help text with examples.
func (c *verifyCmd) Help() string {
	return "A case fails where an error is larger than its tolerance; then the exit status is 1." + flags.JoinExamples(
		"farfield-lab verify",
		"farfield-lab verify FOLDER",
		"farfield-lab verify --json FOLDER",
	)
}

// caseCounts counts cases by outcome.
type caseCounts struct {
	Compared int `json:"compared"`
	Skipped  int `json:"skipped"`
	Failed   int `json:"failed"` // of those compared
}

type verifyReport struct {
	Cases []golden.Case `json:"cases"`
	Total caseCounts    `json:"total"`
}

func (v *caseCounts) add(c golden.Case) {
	switch {
	case c.Skipped != "":
		v.Skipped++
		return
	case c.Failed:
		v.Failed++
	}
	v.Compared++
}

// committedFolder is the folder of committed golden files, for a command in the root of a checkout or in lab.
func committedFolder() string {
	const folder = "golden/testdata"
	if _, err := os.Stat(folder); err == nil {
		return folder
	}
	return filepath.Join("lab", folder)
}

func (c *verifyCmd) Run(e *env.Env) error {
	if c.Folder == "" {
		c.Folder = committedFolder()
	}
	var total caseCounts
	cases := []golden.Case{}
	err := e.RunInterruptibly(func() error {
		return golden.Run(c.Folder, func(k golden.Case) {
			total.add(k)
			if c.JSON {
				cases = append(cases, k)
			} else {
				printCase(e.Stdout, k)
			}
		})
	})
	if err != nil {
		if e.Context.Err() != nil {
			return err
		}
		return env.MarkInput(err)
	}
	if c.JSON {
		err = display.PrintJSON(e.Stdout, verifyReport{cases, total})
	} else {
		_, err = fmt.Fprintf(e.Stdout, "%s: %d compared, %d failed, %d skipped\n", display.Escape(c.Folder), total.Compared, total.Failed, total.Skipped)
	}
	if err == nil && total.Failed > 0 {
		err = fmt.Errorf("%s: %d of %d compared cases failed", c.Folder, total.Failed, total.Compared)
	}
	return err
}

// printCase prints one line: case, form, and the largest error in units of its
// tolerance.
func printCase(w io.Writer, k golden.Case) {
	what := k.File
	if k.Name != "" && k.Name != k.File {
		what += " " + k.Name
	}
	what = display.Escape(what)
	switch {
	case k.Skipped != "":
		fmt.Fprintf(w, "skip  %s: %s\n", what, display.Escape(k.Skipped))
		return
	case k.Problem != "":
		fmt.Fprintf(w, "FAIL  %s %s %s: %s\n", what, k.Form, k.Precision, display.Escape(k.Problem))
		return
	}
	word := "ok  "
	if k.Failed {
		word = "FAIL"
	}
	fmt.Fprintf(w, "%s  %s %s %s: error %.3g of its tolerance (%s of %s)\n",
		word, what, k.Form, k.Precision, k.Err, k.Worst, strings.Join(display.EscapeAll(k.Arrays), ", "))
}
