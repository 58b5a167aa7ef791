// Package peers times farfield beside PyTorch and ONNX Runtime: in one run, in
// turns, on the same shapes, and writes a table of the ratios.
//
//	peers run [-peers FOLDER] [-run REGEXP] [-long] [-o FILE] [-page FILE]
//	peers table [-page FILE] FILE
//	peers encoders [-python PROGRAM] [-run REGEXP]
//
// run measures; table writes the tables of a file that run wrote with -o; encoders
// times passes of encoders beside ONNX Runtime's. The tables go
// to the standard output, or between two markers of a page. README.md says how the peers
// are installed.
package peers

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/farfield-ml/farfield/internal/bench"
)

// Run runs the verb that args begin with. It returns an error if an argument is wrong, a
// file cannot be read or written, or ctx ends.
func Run(ctx context.Context, args []string) error {
	if len(args) > 0 {
		switch args[0] {
		case "run":
			return runVerb(ctx, args[1:])
		case "table":
			return tableVerb(args[1:])
		case "encoders":
			return encodersVerb(ctx, args[1:])
		}
	}
	return errors.New("usage: peers run | table | encoders, with -h for their flags")
}

func runVerb(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("run", flag.ContinueOnError)
	folder := f.String("peers", defaultFolder(), "where install.sh has put the peers")
	scripts := f.String("scripts", "peers", "where the peers' programs are")
	choice := f.String("run", "", "run the cells whose name, such as forward/64/1024, matches")
	long := f.Bool("long", false, "add the lengths that take minutes")
	var p pace
	f.IntVar(&p.rounds, "rounds", 7, "rounds of turns, three at least")
	f.DurationVar(&p.turn, "turn", 40*time.Millisecond, "time of a turn, one call at least")
	f.DurationVar(&p.cell, "cell", 4*time.Second, "time after which a cell has three rounds, not more")
	output := f.String("o", "", "write every turn's line to this file, as JSON")
	page := f.String("page", "", "write the tables between the markers of this page")
	if err := f.Parse(args); err != nil {
		return err
	}
	chosen, err := regexp.Compile(*choice)
	if err != nil {
		return fmt.Errorf("-run: %w", err)
	}
	if f.NArg() > 0 {
		return fmt.Errorf("%q: no arguments but flags", f.Arg(0))
	}
	p.rounds = max(p.rounds, leastRounds)
	all := allSections(*long)
	cells := chooseCells(all, chosen)
	if len(cells) == 0 {
		return fmt.Errorf("-run %s: matches no cell", *choice)
	}
	tell := func(text string) { fmt.Fprintln(os.Stderr, text) }

	by := map[string]measurer{}
	var we ours
	by[farfield] = func(l bench.Line, budget time.Duration) (bench.Line, error) { return we.measure(ctx, l, budget) }
	r := &run{Machine: bench.DescribeMachine(peakTime).String(), Date: time.Now().UTC().Format(time.DateOnly)}
	if out, err := exec.Command("git", "rev-parse", "--short", "HEAD").Output(); err == nil {
		r.Commit = strings.TrimSpace(string(out))
	}
	tell(r.Machine)
	for _, x := range []struct {
		name     string
		commands []command
	}{{torch, torchCommands(*folder, *scripts)}, {onnxruntime, onnxCommands(*folder, *scripts)}} {
		lines := linesOf(cells, x.name)
		if len(lines) == 0 {
			continue
		}
		peer, err := startAll(ctx, x.commands)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			tell(fmt.Sprintf("without %s: %v (make peers installs it)", x.name, err))
			continue
		}
		defer peer.close()
		if err := peer.choose(ctx, lines, p.turn); err != nil {
			return err
		}
		for _, s := range peer.settings() {
			tell(s)
			r.Settings = append(r.Settings, s)
		}
		by[x.name] = peer.measure
	}
	var file io.Writer = io.Discard
	if *output != "" {
		f, err := os.Create(*output)
		if err != nil {
			return err
		}
		defer f.Close()
		file = f
	}
	lines := json.NewEncoder(file)
	if err := lines.Encode(r); err != nil {
		return err
	}
	for i, c := range cells {
		tell(fmt.Sprintf("%d of %d: %s", i+1, len(cells), c.name()))
		records, err := takeTurns(ctx, c, by, p, tell)
		if err != nil {
			return err
		}
		if err := r.add(records, lines); err != nil {
			return err
		}
		we.forget()
	}
	return r.show(all, *page)
}

// peakTime is how long the peak is measured that the machine is described with.
const peakTime = 200 * time.Millisecond

func tableVerb(args []string) error {
	f := flag.NewFlagSet("table", flag.ContinueOnError)
	page := f.String("page", "", "write the tables between the markers of this page")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() != 1 {
		return errors.New("table: needs one file that run -o has written")
	}
	file, err := os.Open(f.Arg(0))
	if err != nil {
		return err
	}
	defer file.Close()
	r, err := readLines(file)
	if err != nil {
		return fmt.Errorf("%s: %w", f.Arg(0), err)
	}
	return r.show(allSections(true), *page)
}

// show writes the tables to the page, or prints them if it has no name.
func (r *run) show(all []section, path string) error {
	tables := r.markdown(all)
	if path == "" {
		_, err := os.Stdout.Write(tables)
		return err
	}
	return written.WriteFile(path, tables)
}

// chooseCells returns the cells whose name matches.
func chooseCells(all []section, chosen *regexp.Regexp) []cell {
	var cells []cell
	for _, s := range all {
		for _, c := range s.cells {
			if chosen.MatchString(c.name()) {
				cells = append(cells, c)
			}
		}
	}
	return cells
}

// linesOf returns the lines of an implementation, without figures, each once.
func linesOf(cells []cell, impl string) []bench.Line {
	var lines []bench.Line
	for _, c := range cells {
		for _, x := range c.contestants {
			if x.line.Impl == impl && !slices.Contains(lines, x.line) {
				lines = append(lines, x.line)
			}
		}
	}
	return lines
}

// defaultFolder is the default folder of the peers, in the user's cache.
func defaultFolder() string {
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	return filepath.Join(cache, "farfield", "peers")
}
