// Package recipes runs the blocks of sh of README.md and docs/recipes.md in their
// order, in a clone of this checkout. It compares the output of each with the block
// of text that follows, line by line, any number for any number.
//
//	recipes [-o PAGE]
//
// Without -o it runs docs/recipes.md, with this account's Go caches. With -o all
// blocks run in a new account with empty caches and nothing but Go, git, bash and
// coreutils, and PAGE has their times and output. It runs in the
// folder lab of a checkout, and clones its last commit.
package recipes

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/farfield-ml/farfield/internal/atomicfile"
)

// Run runs the commands of README.md. It returns an error if an argument is wrong, a
// command fails, or one prints something other than the page.
func Run(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("recipes", flag.ContinueOnError)
	out := f.String("o", "", "page to write, of all blocks in a new account")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("%q: no arguments but flags", f.Arg(0))
	}
	dir, err := os.MkdirTemp("", "recipes")
	if err != nil {
		return err
	}
	defer removeAll(dir)
	a, err := newAccount(ctx, dir, "..", *out != "")
	if err != nil {
		return err
	}
	list, recipes, err := readBlocks(a.checkout)
	if err != nil {
		return err
	}
	if list = append(list, recipes...); *out == "" {
		list = recipes
	}
	done, err := a.run(ctx, list, os.Stderr)
	if err != nil || *out == "" {
		return err
	}
	return atomicfile.Write(*out, func(w io.Writer) error { return writePage(w, a.commit, done) })
}

// result is what a block printed, and how long it took.
type result struct {
	block
	output string
	took   time.Duration
}

// run runs blocks, and tells of each on log. It ends at the first that fails, or
// prints something else than the page says.
func (a *account) run(ctx context.Context, list []block, log io.Writer) ([]result, error) {
	var done []result
	for _, b := range list {
		if b.needs != "" && !a.has(b.needs) {
			fmt.Fprintf(log, "%-40s left out: there is no %s\n", b.title, b.needs)
			continue
		}
		cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", b.commands)
		cmd.Dir, cmd.Env = a.checkout, a.env
		start := time.Now()
		text, err := cmd.CombinedOutput()
		r := result{b, a.clean(string(text)), time.Since(start)}
		if err != nil {
			return nil, fmt.Errorf("%s: %w\n%s%s", b.title, err, b.commands, r.output)
		}
		if line, why := findMissing(b.prints, r.output); why != "" {
			return nil, fmt.Errorf("%s: the page has %q: %s; printed was\n%s", b.title, line, why, r.output)
		}
		fmt.Fprintf(log, "%-40s %s\n", b.title, formatSeconds(r.took))
		done = append(done, r)
	}
	return done, nil
}

func formatSeconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// removeAll deletes a folder with a module cache in it, whose folders are read-only.
func removeAll(dir string) {
	filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			os.Chmod(path, 0o700)
		}
		return nil
	})
	os.RemoveAll(dir)
}
