// Package results makes every missing reproduction. It writes a page of each and their
// table, RESULTS.md. It runs in the root of a checkout.
//
//	results [-out FOLDER] [-budget BUDGET] [-data FOLDER] [-page FILE] [-pages FOLDER] [-rows NAMES] [-renew] [-saved]
//
// Results in the folder, or complete on a page, are kept, whichever commit made them.
// They are marked stale if a file that decides their numbers has changed since; -renew
// makes stale ones once more. The page of a row stays until all pieces of its
// replacement exist. -saved makes nothing and writes existing results. -rows restricts
// the rows to names with commas between them. Rows are made within their quick budget
// or the budget of the catalogue; -budget applies to all.
//
// Rows of scores depend on the code of arithmetic only by its bits. A change of that
// code does not make them stale while the bits of short trainings stay. A file holds
// these bits, and a test checks them (reproduce.BitsFile): some commit has the
// arithmetic of the row's commit and, in its file, the digests of this tree.
package results

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/farfield-ml/farfield/internal/lab/reproduce"
	"github.com/farfield-ml/farfield/internal/lock"
	"github.com/farfield-ml/farfield/internal/page"
)

// written is the table on the page.
var written = page.Part{
	Begin: "<!-- results: written by make results -->",
	End:   "<!-- results: end -->",
	Title: "## The papers' tables and figures",
}

// Run makes the reproductions that args choose and writes the page. It returns an error
// if an argument is wrong, the page cannot be written, or ctx ends.
func Run(ctx context.Context, args []string) error {
	f := flag.NewFlagSet("results", flag.ContinueOnError)
	out := f.String("out", "out", "folder of results")
	budget := f.String("budget", "", "quick, hour or full, of every row")
	data := f.String("data", os.Getenv("FARFIELD_DATA"), "folder of data sets; without one nothing that needs them is made")
	path := f.String("page", "RESULTS.md", "page with the table of all rows")
	folder := f.String("pages", filepath.Join("docs", "results"), "folder with a page of each row")
	names := f.String("rows", "", "rows to make, others stay; all without it")
	renew := f.Bool("renew", false, "make again what is stale")
	saved := f.Bool("saved", false, "make nothing")
	if err := f.Parse(args); err != nil {
		return err
	}
	if f.NArg() > 0 {
		return fmt.Errorf("%q: no arguments but flags", f.Arg(0))
	}
	var only []string
	for _, name := range strings.Split(*names, ",") {
		if *names == "" {
			break
		}
		if _, err := reproduce.Lookup(name); err != nil {
			return fmt.Errorf("-rows: %w", err)
		}
		only = append(only, name)
	}
	held, err := lock.LockFile(*path) // sections of others would be lost
	if err != nil {
		return err
	}
	defer held.Release()
	build, err := checkedOut(ctx)
	if err != nil {
		return err
	}
	before, err := sections(*folder)
	if err != nil {
		return err
	}
	var lines bytes.Buffer
	lines.WriteString("| row | finding | published claim | command | machine | made |\n|---|---|---|---|---|---|\n")
	var pieces, missing, old int
	for _, r := range reproduce.Rows() {
		of := r.Wanted()
		if *budget != "" {
			b, err := reproduce.ParseBudget(*budget)
			if err != nil {
				return fmt.Errorf("-budget: %w", err)
			}
			of = reproduce.Options{Budget: b}
		}
		of.Out, of.Data, of.Build = *out, *data, build
		a := age{ctx: ctx, row: r, bits: of.Budget == r.Wanted().Budget, reasons: map[reproduce.Build]string{}}
		if *renew {
			of.Remake = func(record *reproduce.Record) bool { return a.stale(record.Build) != "" }
		}
		page, kept := before[r.Name]
		pageStale := a.all(page.builds)
		kept = kept && page.isComplete
		still := *saved || only != nil && !slices.Contains(only, r.Name) || kept && (len(pageStale) == 0 || !*renew)
		outcome, err := produce(ctx, r, &of, still)
		if ctx.Err() != nil {
			return fmt.Errorf("%w; the same command goes on", ctx.Err())
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "results:", err)
			if outcome, err = r.Saved(&of); err != nil {
				return err
			}
		}
		pieces += len(outcome.Records) + len(outcome.Missing)
		why, text := pageStale, page.text
		switch {
		case kept && len(outcome.Missing) > 0:
			if len(why) > 0 {
				old += len(outcome.Records) + len(outcome.Missing)
			}
		case len(outcome.Records) == 0:
			missing += len(outcome.Missing)
			continue
		default:
			missing += len(outcome.Missing)
			var b strings.Builder
			if err := outcome.WriteMarkdown(&b); err != nil {
				return err
			}
			text = strings.TrimPrefix(b.String(), "### "+r.Name+"\n\n")
			var builds []reproduce.Build
			for _, record := range outcome.Records {
				builds = append(builds, record.Build)
				if a.stale(record.Build) != "" {
					old++
				}
			}
			why = a.all(builds)
		}
		lines.WriteString(line(r.Name, filepath.Join(*folder, r.Name+".md"), filepath.Dir(*path), text, len(why) > 0) + "\n")
		for _, line := range why {
			text += fmt.Sprintf("\n**Stale**: %s.\n", line)
		}
		if err := writePage(*folder, r.Name, text); err != nil {
			return err
		}
	}
	if err := written.WriteFile(*path, lines.Bytes()); err != nil {
		return err
	}
	_, err = fmt.Fprintf(os.Stderr, "%s: %d reproductions of %d pieces; %d are missing, %d stale\n", *path, len(reproduce.Rows()), pieces, missing, old)
	return err
}

// produce makes what is missing of a row, unless only what is there is wanted.
func produce(ctx context.Context, r *reproduce.Row, o *reproduce.Options, saved bool) (*reproduce.Outcome, error) {
	if saved {
		return r.Saved(o)
	}
	var spoke time.Time
	absent := "" // data set that was reported last as absent
	out, err := r.Run(ctx, o, reproduce.Observer{
		Progress: func(p reproduce.Progress) {
			if now := time.Now(); now.Sub(spoke) > 10*time.Second {
				spoke = now
				fmt.Fprintf(os.Stderr, "%s %s, piece %d of %d, %s left\n", p.Row, p.Piece, p.Finished+1, p.Total, p.TimeLeft.Round(time.Second))
			}
		},
		Skipped: func(_ string, why error) {
			if text := why.Error(); text != absent {
				absent = text
				fmt.Fprintln(os.Stderr, "results: left out:", text)
			}
		},
	})
	if err != nil {
		return nil, err
	}
	_, err = out.Write(o)
	return out, err
}

// git returns what a git command prints.
func git(ctx context.Context, args ...string) (string, error) {
	text, err := exec.CommandContext(ctx, "git", args...).Output()
	if err != nil {
		var failed *exec.ExitError
		if errors.As(err, &failed) && len(failed.Stderr) > 0 {
			err = errors.New(strings.TrimSpace(string(failed.Stderr)))
		}
		return "", fmt.Errorf("git %s: %w", strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(text)), nil
}

// checkedOut returns what the tree is that this program was made from.
func checkedOut(ctx context.Context) (b reproduce.Build, err error) {
	if b.Revision, err = git(ctx, "rev-parse", "HEAD"); err != nil {
		return b, err
	}
	if b.Time, err = git(ctx, "log", "-1", "--format=%cI"); err != nil {
		return b, err
	}
	changes, err := git(ctx, "status", "--porcelain", "--untracked-files=no", "--", "*.go", "*.s", "go.mod")
	b.Modified = changes != ""
	return b, err
}

// age finds builds that are older than the last change of code or data that decides a
// row's numbers.
type age struct {
	ctx     context.Context
	row     *reproduce.Row
	bits    bool // the bits of its trainings are recorded: they are of the budget that the row asks for
	reasons map[reproduce.Build]string
}

// stale says why the results of a build are, "" if they are not.
func (a *age) stale(b reproduce.Build) string {
	why, found := a.reasons[b]
	if !found {
		why = a.find(b)
		a.reasons[b] = why
	}
	return why
}

func (a *age) find(b reproduce.Build) string {
	if b.Revision == "" {
		return "the commit that made it was not recorded"
	}
	if b.Modified {
		return fmt.Sprintf("it was made from %s", b)
	}
	code, arithmetic := a.row.Decides()
	files, err := changed(a.ctx, b.Revision, "", code)
	if err != nil {
		return fmt.Sprintf("the commit %s that made it is not in this repository", b)
	}
	if len(arithmetic) > 0 {
		more, err := changed(a.ctx, b.Revision, "", arithmetic)
		if err == nil && len(more) > 0 && !(a.bits && a.sameBits(b, arithmetic)) {
			files = append(files, more...)
		}
		if err != nil {
			return err.Error()
		}
	}
	if len(files) == 0 {
		return ""
	}
	return fmt.Sprintf("made by %s, since which %s changed", b, files[0]+others(len(files)-1))
}

func others(n int) string {
	switch n {
	case 0:
		return ""
	case 1:
		return " and one more file"
	}
	return fmt.Sprintf(" and %d more files", n)
}

// all says why what builds made is stale, each reason once.
func (a *age) all(builds []reproduce.Build) (list []string) {
	seen := map[reproduce.Build]bool{}
	for _, b := range builds {
		if why := a.stale(b); why != "" && !seen[b] {
			seen[b] = true
			list = append(list, why)
		}
	}
	return list
}
