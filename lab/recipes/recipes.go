// Package recipes runs the blocks of commands on README.md and the pages in docs that
// are marked "sh run", and compares what each prints with the block of text that
// follows it, line by line, numbers within a tolerance.
//
//	recipes [-new] [PAGE...]
//
// The blocks of a page run in their order, in a folder that is empty at first and named
// as the page. Before them "go install" installs the command. What pages clone is the
// last commit of this checkout. With -new the account is new: it has empty caches, and
// nothing but Go, git, bash and coreutils; blocks that need another program are left
// out. PAGE is the name of a page, such as train; by default all run. It runs in the
// folder lab of a checkout.
package recipes

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

// Run runs the blocks of pages, and prints how long each took. It returns an error if an
// argument is wrong, a command fails, or one prints something other than its page.
func Run(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("recipes", flag.ContinueOnError)
	isNew := f.Bool("new", false, "run in a new account with empty caches")
	if err := f.Parse(args); err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "recipes")
	if err != nil {
		return err
	}
	defer removeAll(dir)
	a, err := newAccount(ctx, dir, "..", *isNew)
	if err != nil {
		return err
	}
	pages, err := readPages(a.checkout)
	if err != nil {
		return err
	}
	for _, name := range f.Args() {
		if !slices.ContainsFunc(pages, func(p page) bool { return p.name == name }) {
			return fmt.Errorf("%q: no page of this name has blocks marked \"sh run\"", name)
		}
	}
	return a.runPages(ctx, pages, f.Args(), os.Stdout)
}

// runPages installs the command and runs the pages with names, or all without names. It
// tells of each block on log. It ends at the first that fails.
func (a *account) runPages(ctx context.Context, pages []page, names []string, log io.Writer) error {
	start := time.Now()
	install := block{title: "go install", commands: "go install ./cmd/farfield\n"}
	if _, err := a.run(ctx, a.checkout, []block{install}, log); err != nil {
		return err
	}
	for _, p := range pages {
		if len(names) > 0 && !slices.Contains(names, p.name) {
			continue
		}
		folder := filepath.Join(a.home, p.name)
		if err := os.Mkdir(folder, 0o777); err != nil {
			return err
		}
		fmt.Fprintln(log, p.name)
		if _, err := a.run(ctx, folder, p.blocks, log); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
	}
	fmt.Fprintf(log, "%-40s %s\n", "together", formatSeconds(time.Since(start)))
	return nil
}

// run runs blocks in a folder, tells of each on log, and returns what each printed. It
// ends at the first that fails, or prints something else than the page says.
func (a *account) run(ctx context.Context, folder string, list []block, log io.Writer) (outputs []string, err error) {
	for _, b := range list {
		if b.needs != "" && !a.has(b.needs) {
			fmt.Fprintf(log, "  %-38s left out: there is no %s\n", b.title, b.needs)
			continue
		}
		cmd := exec.CommandContext(ctx, "bash", "-euo", "pipefail", "-c", b.commands)
		cmd.Dir, cmd.Env = folder, a.env
		start := time.Now()
		text, err := cmd.CombinedOutput()
		output := a.clean(string(text))
		if err != nil {
			return nil, fmt.Errorf("%s: %w\n%s%s", b.title, err, b.commands, output)
		}
		if line, why := findMissing(b.prints, output); why != "" {
			return nil, fmt.Errorf("%s: the page has %q: %s; printed was\n%s", b.title, line, why, output)
		}
		fmt.Fprintf(log, "  %-38s %s\n", b.title, formatSeconds(time.Since(start)))
		outputs = append(outputs, output)
	}
	return outputs, nil
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
